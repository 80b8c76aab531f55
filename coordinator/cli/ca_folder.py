"""The CA's folder and its journal, for `fleet init`, `enroll` and `revoke`.

The coordinator is told of everything that it has not been told of yet. Where it cannot be reached,
the next of these commands tells it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.client.access import PEOPLE
from broker.errors import ConfigError, FleetError, plain
from broker.pki import ca_journal, keyfiles
from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.protocol.acl import Principal
from broker.protocol.messages import AskIdentity
from broker.system.address import DEFAULT_TLS_PORT, Address, parse_address, parse_addresses, text_of
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings, config_home, expanded
from broker.wrapping import printable
from coordinator.client.contact import NotDone
from coordinator.ui.options import PATH, Where, option, where
from coordinator.ui.words import say

if TYPE_CHECKING:
    from broker.pki.ca import Authority, Issued

F = TypeVar("F", bound=Callable[..., Any])
BROKER_CERTIFICATE = "broker.crt"
BROKER_KEY = "broker.key"
PORTS_FILE: Final = "ports.json"
MAX_PORTS_BYTES: Final = 4096
TIMEOUT_S: Final = 5.0


def home_of(given: Path | None) -> Path:
    """Return the folder that holds `ca`, `broker` and `identities`."""
    return expanded(given or config_home()).absolute()


def is_usual(home: Path) -> bool:
    """Whether that folder is where it is looked for unless somebody says another."""
    try:
        return home == home_of(None)
    except ConfigError:  # who has no home has to say it
        return False


@dataclass(frozen=True, slots=True)
class Office:
    """The CA in its folder, and where the broker and the configuration file are said to be."""

    home: Path
    authority: Authority
    broker: str | None = None
    config: Path | None = None
    root: str | None = None

    def settings(self) -> BrokerSettings:
        """Return where the fleet is, as it was said or is set."""
        return BrokerSettings.load(self.config, {"url": self.broker, "topic_root": self.root})

    def addresses(self, name: str) -> tuple[Address, ...]:
        """Return where `name` connects over TLS: as set, else by the broker's certificate.

        Raises `ConfigError` where another machine makes that.
        """
        addresses = parse_addresses(self.settings().url)
        if addresses[0].tls:
            return addresses_of(self.home, addresses, name)
        return parse_addresses(broker_url(self.home, name))

    def holding(self, name: str) -> Issued | None:
        """Return the certificate that `name` has, if it has one that holds."""
        return self.authority.holding(name, system_clock().wall_s)

    def publish(self) -> None:
        """Put the newest CRL into the broker's folder. Raises OSError."""
        from broker.pki.ca import CRL_FILE

        folder = self.home / "broker"
        if folder.is_dir():
            data = keyfiles.read(self.authority.folder / CRL_FILE, 64 * 1024 * 1024)
            path = folder / CRL_FILE
            if not path.exists() or path.read_bytes() != data:
                keyfiles.write(path, data, keyfiles.PUBLIC)

    def note(self, action: Any, name: str, what: str = "") -> str:
        """Put an entry into the journal and return its id. Raises `ConfigError` or OSError."""
        entry = AskIdentity(
            id=new_id(), action=action, name=name, what=what[:2000], who=self._doer(),
            made_at=system_clock().wall_s,
        )  # fmt: skip
        ca_journal.add(self.authority, entry)
        return entry.id

    def tell(self) -> dict[str, Any]:
        """Tell the coordinator what it does not know yet, if it answers; return its answers."""
        untold = ca_journal.read(self.authority.folder).untold()
        answers: dict[str, Any] = {}
        if not untold:
            return answers
        try:
            self._tell(untold, answers)
        except (FleetError, OSError) as error:
            why = printable(plain(error)).partition("\n")[0]
            say(
                f"not recorded at the coordinator yet: {why}; the next `fleet init`, `enroll` or "
                "`revoke` here tells it, and a coordinator that was started with --ca reads it",
                err=True,
                indent=2,
            )
        if answers:
            ca_journal.mark_told(self.authority, answers)
        return answers

    def _tell(self, untold: list[AskIdentity], answers: dict[str, Any]) -> None:
        from coordinator.client.client import OperatorClient

        settings = self.settings()
        # The identity that is set may be the coordinator's own, on its machine.
        folder = self._identity()
        name = self._doer() if folder is None else _name_of(folder)
        changed: dict[str, Any] = {} if folder is None else {"identity": folder}
        if "url" not in settings.model_fields_set or parse_addresses(settings.url)[0].tls:
            changed["url"] = text_of(self.addresses(name))
        with OperatorClient(settings.model_copy(update=changed), TIMEOUT_S) as client:
            for entry in untold:
                try:
                    answers[entry.id] = client.ask(entry)
                except NotDone as refusal:
                    raise NotDone(f"the coordinator refused it: {refusal}") from None

    def _identity(self) -> Path | None:
        """Return an operator's identity that holds: whose login this is, else any."""
        folders = (self.home / "identities").glob("operator@*")
        found = {_name_of(one): one for one in sorted(folders) if self.holding(_name_of(one))}
        return found.get(login()) or next(iter(found.values()), None)

    def _doer(self) -> str:
        """Return who works with the CA: the one person whose identity is here, or who logged in."""
        roles = frozenset(role.value for role in PEOPLE)
        try:
            found = ids.find_identity(self.home / "identities", roles)
        except ConfigError:
            found = None  # several
        return login() if found is None else _name_of(found)


def ca_options(broker_help: str) -> Callable[[F], F]:
    """Add the options of a verb that works with the CA, and hand it the `Office`."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, at: Where, home: Path | None, **kwargs: Any) -> Any:
            from broker.pki.ca import Authority

            folder = home_of(home)
            office = Office(folder, Authority(folder / "ca"), at.broker, at.config, at.root)
            return function(office, *args, **kwargs)

        text = "Folder that `fleet init` made.  [default: ~/.config/fleet]"
        with_where = where("config", broker=option("--broker", "URL", broker_help))(wrapped)
        return option("--home", "DIR", text, type=PATH)(with_where)  # type: ignore[return-value]

    return add


def write_ports(home: Path, hosts: int, people: int) -> None:
    """Save the broker's ports of hosts and people, and update the identities in `home`."""
    text = json.dumps({"hosts": hosts, "people": people})
    keyfiles.write(home / "ca" / PORTS_FILE, f"{text}\n".encode(), keyfiles.PUBLIC)
    for path in sorted((home / "identities").glob(f"*/{ids.BROKER_FILE}")):
        said = ids.broker_of(path.parent)
        port = people if _is_person(_name_of(path.parent)) else hosts
        url = str(replace(parse_address(said), port=port)) if said else said
        if url is not None and url != said:
            keyfiles.write(path, f"{url}\n".encode(), keyfiles.PUBLIC)


def ports(home: Path) -> tuple[int, int] | None:
    """Return the saved ports of hosts and people, if any. Raises `ConfigError`."""
    path = home / "ca" / PORTS_FILE
    if not path.exists():
        return None
    try:
        found = json.loads(keyfiles.read(path, MAX_PORTS_BYTES))
        return int(found["hosts"]), int(found["people"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: is damaged; run `fleet broker config` again") from None


def addresses_of(home: Path, addresses: Sequence[Address], name: str) -> tuple[Address, ...]:
    """Return a broker's addresses with the port that is meant for `name`, host or person."""
    both = ports(home)
    if both is None:
        return tuple(addresses)
    port = both[_is_person(name)]
    names = _names(home) if (home / "broker" / BROKER_CERTIFICATE).exists() else ()
    return tuple(
        replace(one, port=port) if one.port in both and (not names or one.host in names) else one
        for one in addresses
    )


def broker_url(home: Path, name: str) -> str:
    """Return the broker's address for `name`, by the first name of the broker's certificate.

    Its port is that of `[broker] url` (or `FLEET_BROKER`) where this names the same broker. Raises
    `ConfigError` with the remedy when there is no name, or the setting is wrong.
    """
    names = _names(home)
    if not names:
        path = home / "broker" / BROKER_CERTIFICATE
        raise ConfigError(f"{path}: has no names in it; make another with `fleet init --broker`")
    set_ = [one for one in parse_addresses(BrokerSettings.load().url) if one.tls]
    usual = (ports(home) or (DEFAULT_TLS_PORT,))[0]
    port = next((one.port for one in set_ if one.host in names), usual)
    return text_of(addresses_of(home, [Address(names[0], port, tls=True)], name))


def login() -> str:
    """Return the operator's name that goes with who is logged in."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        name = ""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:40]
    return f"operator:{plain or 'owner'}"


def _names(home: Path) -> Sequence[str]:
    """Return the names and addresses in the broker's certificate. Raises `ConfigError`."""
    from broker.pki.ca import alternative_names

    return alternative_names(certs.read_certificate(home / "broker" / BROKER_CERTIFICATE))


def _is_person(name: str) -> bool:
    return Principal.parse(name).role in PEOPLE


def _name_of(folder: Path) -> str:
    return folder.name.replace("@", ":")
