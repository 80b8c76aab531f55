"""The configuration file: where it is, and how a section becomes settings.

The command line wins over the environment, that over the file, that over the defaults. Every
setting is documented in etc/fleet.toml.example.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from broker import toml_text
from broker.errors import ConfigError
from broker.protocol.hyperschema import did_you_mean
from broker.protocol.signing import MAX_CHARS, OperatorKey
from broker.protocol.topics import Topics
from broker.protocol.value_faults import fault_words
from broker.system.address import DEFAULT_URL, parse_addresses
from broker.system.ownership import check_own

if TYPE_CHECKING:
    import argparse

OPERATOR_KEY: Final = "FLEET_OPERATOR_KEY"
_HOME: Final = "USERPROFILE" if os.name == "nt" else "HOME"
_HERE: Final = Path()
_LOCAL: Final = "fleet.toml"  # in the working folder
_MACHINES: Final = Path("/etc/fleet/fleet.toml")
SECTIONS: Final = ("broker", "coordinator", "homeassistant", "agent", "trainers", "programs")


def state_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder under which services keep their state unless told otherwise."""
    return _folder(environment, "XDG_STATE_HOME", ".local/state")


def config_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's identities: `$XDG_CONFIG_HOME/fleet`, `~/.config/fleet`."""
    return _folder(environment, "XDG_CONFIG_HOME", ".config")


def _folder(environment: Mapping[str, str], variable: str, usual: str) -> Path:
    named = environment.get(variable)
    home = environment.get(_HOME)
    try:
        return Path(named or (Path(home) if home else Path.home()) / usual) / "fleet"
    except RuntimeError:
        raise ConfigError(f"this user has no home folder: set {_HOME}, or {variable}") from None


def usual_config() -> Path:
    """Return the configuration file of this user, or where to make one."""
    found = find_config(None, os.environ)
    try:
        return found or config_home() / "fleet.toml"
    except ConfigError:  # who has no home
        return _MACHINES


def expanded(path: Path) -> Path:
    """Return a path with the home that `~` names. Raises `ConfigError` where that is nobody's."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: nobody here is called so; write the whole path") from None


def find_config(given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the configuration file in use; an unnamed one here must be the user's own."""
    found = config_in(_HERE, given, environment)
    if found == _HERE / _LOCAL and not (given or environment.get("FLEET_CONFIG")):
        check_own(found, f"name it with --config {_LOCAL} if it is to be obeyed")
    return found


def config_in(folder: Path, given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the configuration file for `folder`: given, of the environment, or the first found."""
    named = given or environment.get("FLEET_CONFIG")
    if named:
        return folder / named
    usual = [Path(_LOCAL)]
    with contextlib.suppress(ConfigError):  # who has no home has no file there
        usual.append(config_home(environment) / "fleet.toml")
    if os.name != "nt":  # where anybody may make that folder
        usual.append(_MACHINES)
    return next((path for one in usual if (path := folder / one).is_file()), None)


class Settings(BaseModel):
    """Base of a section's settings.

    `environment_names` maps variables to fields, `options` fields to command line options.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    section: ClassVar[str]
    environment_names: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}

    @field_validator("*", mode="after")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        try:
            return expanded(value) if isinstance(value, Path) else value
        except ConfigError as error:  # pydantic takes none but its own kinds
            raise ValueError(str(error)) from None

    @classmethod
    def load(
        cls,
        config: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """Return the section's settings; an override that is none does not count."""
        path = find_config(config, environment)
        values = dict(read_section(path, cls.section)) if path else {}
        sources = {key: f"{path}: [{cls.section}] {key}" for key in values}
        for variable, name in cls.environment_names.items():
            if environment.get(variable):
                values[name] = environment[variable]
                sources[name] = variable
        for name, value in (overrides or {}).items():
            if value is not None:
                values[name] = value
                sources[name] = cls.options.get(name, f"--{name}")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            faults = faults_of(error, [*cls.model_fields])
            said = (f"{sources.get(key.partition('.')[0], key)}: {what}" for key, what in faults)
            raise ConfigError(faults=tuple(said)) from None

    def part(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the values of the fields that `model` has, too."""
        return {name: getattr(self, name) for name in model.model_fields}

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser, *fields: str) -> None:
        """Add the options of these fields, of all that have one if none is named."""
        for name in fields or cls.options:
            field, option = cls.model_fields[name], cls.options[name]
            kind: dict[str, Any] = {"metavar": option.strip("-").upper()}
            if field.annotation is bool:
                kind = {"action": "store_const", "const": True}
            told = (field.description or "").replace("%", "%%")
            parser.add_argument(option, dest=name, help=told, **kind)

    @classmethod
    def by_options(cls, arguments: argparse.Namespace, **more: Any) -> Self:
        """Return the settings by the options of `add_options`, and what is said beside them."""
        said = {name: getattr(arguments, name, None) for name in cls.options}
        return cls.load(arguments.config, said | more)


class ServerPart(BaseModel):
    """The part of `[broker]` that `fleet broker` is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic_root: str = Field(default="fleet", description="First level(s) of every topic.")
    websocket: int | None = Field(
        default=None, ge=0, le=65_535, description="`fleet broker`: port of websockets, if any."
    )
    origins: tuple[str, ...] = Field(
        default=(), description="`fleet broker`: pages whose scripts may open a websocket."
    )


class BrokerSettings(Settings, ServerPart):
    """`[broker]`: where the broker is, and under which root the fleet's topics are."""

    section: ClassVar[str] = "broker"
    environment_names: ClassVar[Mapping[str, str]] = {
        "FLEET_BROKER": "url",
        "FLEET_TOPIC_ROOT": "topic_root",
        "FLEET_IDENTITY": "identity",
        "FLEET_PLAIN": "plain",
        "FLEET_OPERATOR_KEY_FILE": "operator_key_file",
    }
    options: ClassVar[Mapping[str, str]] = {
        "url": "--broker",
        "topic_root": "--root",
        "identity": "--identity",
        "plain": "--plain",
        "origins": "--origin",
        "websocket": "--websocket",
    }

    url: str = Field(
        default=DEFAULT_URL,
        description="Address of the broker; of a cluster, a list of addresses or commas between.",
    )
    identity: Path | None = Field(
        default=None, description="Folder of ca.crt, client.crt and client.key, for mqtts."
    )
    plain: bool = Field(
        default=False, description="Go without TLS beyond this machine, on a network one trusts."
    )
    operator_key_file: Path | None = Field(
        default=None, description="What commands are signed with; without it they are not."
    )

    @field_validator("url", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        listed = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
        return ",".join(value) if listed else value

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parse_addresses(url, "")
        except ConfigError as error:  # it does not repeat a password
            raise ValueError(str(error).removeprefix(": ")) from None
        return url

    @field_validator("topic_root")
    @classmethod
    def _is_root(cls, root: str) -> str:
        try:
            return Topics(root).root
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def operator_key(self, environment: Mapping[str, str] = os.environ) -> OperatorKey | None:
        """Return the key of `FLEET_OPERATOR_KEY`, else that of the file, else none."""
        told = environment.get(OPERATOR_KEY)
        if told:
            return OperatorKey(told, OPERATOR_KEY)
        return None if self.operator_key_file is None else read_key(self.operator_key_file)


def read_key(path: Path) -> OperatorKey:
    """Return the operator key in a file that only its owner may read; else `ConfigError`."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no file; see [broker] operator_key_file")  # a pipe blocks
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
                raise ConfigError(
                    f"{path}: others may read the operator key (mode {stat.S_IMODE(mode):04o}); "
                    f"chmod 600 {path}"
                )
            text = file.read(4 * MAX_CHARS + 1).decode("ascii")
    except OSError as error:
        raise ConfigError(
            f"{path}: the operator key cannot be read: {error.strerror}; see [broker] "
            "operator_key_file, or make one with `fleet operator-key -o FILE`"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path}: is no operator key; make one with `fleet operator-key`"
        ) from None
    return OperatorKey(text, str(path))


def read_section(path: Path, name: str) -> Mapping[str, Any]:
    """Return a section of a configuration file. Raises `ConfigError` when it cannot be read."""
    try:
        tables = toml_text.tables(toml_text.decoded(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check --config") from None
    except toml_text.TomlError as error:
        raise ConfigError(error.of(path)) from None
    for key in tables:
        if key not in SECTIONS:
            hint = did_you_mean(key, list(SECTIONS))
            raise ConfigError(f"{path}: [{key}]: unknown section{hint}")
    section = tables.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: {name}: must be a section; write [{name}]")
    return section


def faults_of(error: ValidationError, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and the words of each fault; `known` are the keys that there are."""
    for fault in error.errors(include_url=False):
        key = ".".join(part for part in fault["loc"] if isinstance(part, str))
        yield key, fault_words(fault, known)
