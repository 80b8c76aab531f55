"""What the verbs share: options, the connection, names of jobs and hosts."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import click

from broker.errors import ConfigError
from coordinator.client.contact import USUAL_S
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.words import JSON

if TYPE_CHECKING:
    from broker.protocol.topic_table import Kind
    from broker.system.address import Address
    from broker.system.settings import BrokerSettings
    from coordinator.client.client import OperatorClient as OperatorClient  # noqa: PLC0414
else:
    OperatorClient = Any  # the verbs name it, and who does not connect need not load it

F = TypeVar("F", bound=Callable[..., Any])
PATH: Final = click.Path(path_type=Path)
PORT: Final = click.IntRange(1, 65_535)
_CONFIRMED: Final = "coordinator.cli.confirmed"  # in a context's `meta`, as the next
_TOLD: Final = "coordinator.cli.told"


def option(names: str, metavar: str, help_: str, **more: Any) -> Callable[[F], F]:
    """Return an option with a value; its names have a blank between them."""
    return click.option(*names.split(), metavar=metavar, help=help_, **more)


def flag(names: str, help_: str, **more: Any) -> Callable[[F], F]:
    """Return an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help_, **more)


# The last one is the first that `--help` shows.
WHERE: Final = {
    "config": option("--config", "FILE", "Configuration file."),
    "plain": flag("--plain", "No TLS beyond this machine, on a trusted network."),
    "identity": option("--identity", "DIR", "Folder of the certificate, for mqtts."),
    "root": option("--root", "ROOT", "Topic root."),
    "broker": option("--broker", "URL", "Address of the broker, mqtts://HOST:PORT."),
}


@dataclass(frozen=True, slots=True)
class Where:
    """Where the fleet is, as far as the command line says it, and how long to wait for it."""

    broker: str | None
    root: str | None
    identity: str | None
    plain: bool | None
    config: Path | None
    timeout_s: float = USUAL_S

    @classmethod
    def of(
        cls, said: Mapping[str, Any], before: Mapping[str, Any], timeout_s: float = USUAL_S
    ) -> Self:
        """Return what was said after the verb, or else before it."""
        found = {name: said.get(name) or before.get(name) or None for name in WHERE}
        config = found.pop("config")
        return cls(**found, config=Path(config) if config else None, timeout_s=timeout_s)

    def said(self) -> dict[str, Any]:
        """Return the options, by name."""
        return {name: getattr(self, name) for name in WHERE}

    def settings(self, url: str | None = None) -> BrokerSettings:
        """Return where the fleet is, by the options, the environment or the file."""
        from broker.system.settings import BrokerSettings

        said = {"url": url or self.broker, "topic_root": self.root, "identity": self.identity}
        return BrokerSettings.load(self.config, said | {"plain": self.plain})

    def connect(self, *kinds: Kind, timeout_s: float | None = None) -> OperatorClient:
        """Return a verb's client, which hears the messages of these kinds.

        A fleet that nobody has named is named when it is there.
        """
        from broker.protocol.topics import Topics
        from coordinator.client.client import OperatorClient

        settings = self.settings()
        watch = [topic for topic, _ in Topics(settings.topic_root).filters(kinds)]
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        return OperatorClient(settings, wait_s, watch=watch, unnamed=_unnamed)


def where(*names: str, **own: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds these options of `WHERE`, some with words of their `own`, as `at`.

    They may precede the verb as well.
    """

    def add(function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, timeout: float = USUAL_S, **kwargs: Any) -> Any:
            said = {name: kwargs.pop(name) for name in (*names, *own)}
            at = Where.of(said, click.get_current_context().obj or {}, timeout)
            return function(*args, at=at, **kwargs)

        for name, one in (WHERE | own).items():
            wrapped = one(wrapped) if name in names or name in own else wrapped
        return wrapped  # type: ignore[return-value] # the same call, with options

    return add


where_options = where(*WHERE)


def asking(function: F) -> F:
    """Add `--json`, `--timeout` and where the fleet is, to a verb that connects by itself."""
    return timeout_option(json_option(where_options(function)))


def client_options(function: F) -> F:
    """Add what `asking` does to a verb, and hand it a connected client in place of `at`.

    For a verb that has `--watch` and is told to, the client hears of what changes.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, at: Where, **kwargs: Any) -> Any:
        from broker.protocol.topic_table import Kind

        changes = (Kind.JOB, Kind.STATUS, Kind.SUMMARY) if kwargs.get("watch") else ()
        with at.connect(*changes) as client:
            return function(client, *args, **kwargs)

    return asking(wrapped)  # type: ignore[return-value] # likewise


timeout_option = option(
    "--timeout", "SECONDS",
    "How long to wait for an answer; unless raised, less for a coordinator that is offline.",
    type=click.FloatRange(0.1, 3600), default=USUAL_S, show_default=True,
)  # fmt: skip


def _note_json(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[JSON] = value


# Not handed to the verb: what prints asks `words.is_json`.
json_option = flag("--json", "Print JSON.", expose_value=False, callback=_note_json)


def _unnamed(address: Address, is_change: bool) -> None:
    """Say which fleet it is that nobody has named; have it confirmed before it is changed, once.

    A verb's own question does as well. Raises `ConfigError` where nobody can be asked,
    `click.exceptions.Exit` for a no.
    """
    from coordinator.ui.words import say

    context = click.get_current_context()
    if not is_change:
        if not context.meta.get(_TOLD):
            say(f"this is the fleet at {address}; --broker or FLEET_BROKER names another", err=True)
        context.meta[_TOLD] = True
    elif not (context.meta.get(_CONFIRMED) or context.params.get("yes")):
        if not sys.stdin.isatty():
            raise ConfigError(
                f"the fleet at {address} would be changed, and nobody has named it: say --broker "
                f"{address}, or set FLEET_BROKER"
            )
        question = f"Let `{context.command_path}` change the fleet at {address}?"
        if not is_confirmed(question):
            context.exit(EXIT_REFUSED)


def is_confirmed(question: str) -> bool:
    """Ask whoever sits at the terminal; unless it is confirmed, say that nothing was changed.

    Raises `click.Abort` at Ctrl-C.
    """
    try:
        if click.confirm(question, err=True):
            click.get_current_context().meta[_CONFIRMED] = True
            return True
    except click.Abort:
        click.echo(err=True)  # what comes next is to have a line of its own
        _say_unchanged()
        raise
    _say_unchanged()
    return False


def _say_unchanged() -> None:
    from coordinator.ui.words import is_json, print_json, say

    said = "nothing was changed"
    say(said, err=True)
    if is_json():
        print_json({"ok": False, "message": said, "errors": []})
