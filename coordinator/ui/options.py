"""What the verbs share: options, the connection, names of jobs and hosts."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from broker.errors import ConfigError
from coordinator.client.contact import USUAL_S
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.candidates import complete_host, complete_job

if TYPE_CHECKING:
    from broker.system.address import Address
    from broker.system.settings import BrokerSettings
    from coordinator.client.client import OperatorClient

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
WHERE: Final = (
    click.option("--config", metavar="FILE", help="Configuration file."),
    click.option("--plain", is_flag=True, help="No TLS beyond this machine, on a trusted network."),
    click.option("--identity", metavar="DIR", help="Folder of the certificate, for mqtts."),
    click.option("--root", metavar="ROOT", help="Topic root."),
    click.option("--broker", metavar="URL", help="Address of the broker, mqtts://HOST:PORT."),
)


def where_options(function: F) -> F:
    """Add the options that say where the fleet is; they may stand before the verb as well."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = click.get_current_context().obj or {}
        for name in ("broker", "root", "identity", "plain", "config"):
            kwargs[name] = kwargs[name] or given.get(name)
        kwargs["plain"] = kwargs["plain"] or None
        kwargs["config"] = Path(kwargs["config"]) if kwargs["config"] else None
        return function(*args, **kwargs)

    for option in WHERE:
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value] # the same call, with options


def client_options(function: F) -> F:
    """Add the options of a verb that talks to the coordinator, and hand it a connected client.

    For a verb that has `--watch` and is told to, the client hears of what changes.
    """

    @functools.wraps(function)
    def wrapped(
        *args: Any, broker: str | None, root: str | None, identity: str | None,
        plain: bool | None, config: Path | None, timeout: float, **kwargs: Any,
    ) -> Any:  # fmt: skip
        settings = where(broker, root, identity, plain, config)
        watch = changes(settings) if kwargs.get("watch") else []
        with connect(settings, timeout, watch=watch) as client:
            return function(client, *args, **kwargs)

    return where_options(timeout_option(wrapped))  # type: ignore[return-value] # likewise


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=USUAL_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer; unless raised, less for a coordinator that is offline.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
host_argument = click.argument("host", metavar="HOST", shell_complete=complete_host)


def where(
    broker: str | None,
    root: str | None,
    identity: str | None,
    plain: bool | None,
    config: Path | None,
) -> BrokerSettings:
    """Return where the fleet is, by the options, the environment or the file."""
    from broker.system.settings import BrokerSettings

    said = {"url": broker, "topic_root": root, "identity": identity, "plain": plain}
    return BrokerSettings.load(config, said)


def changes(settings: BrokerSettings) -> list[str]:
    """Return the topics on which one hears of jobs and hosts that change."""
    from broker.protocol.topics import Topics

    topics = Topics(settings.topic_root)
    return [topics.job("+"), topics.status("+"), topics.summary()]


def connect(
    settings: BrokerSettings, timeout_s: float, *, watch: Sequence[str] = ()
) -> OperatorClient:
    """Return a verb's client for the fleet; one that nobody has named is named when it is there."""
    from coordinator.client.client import OperatorClient

    return OperatorClient(settings, timeout_s, watch=watch, unnamed=_unnamed)


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
        if not is_confirmed(question, as_json=bool(context.params.get("as_json"))):
            context.exit(EXIT_REFUSED)


def is_confirmed(question: str, *, as_json: bool) -> bool:
    """Ask whoever sits at the terminal; unless it is confirmed, say that nothing was changed.

    Raises `click.Abort` at Ctrl-C.
    """
    try:
        if click.confirm(question, err=True):
            click.get_current_context().meta[_CONFIRMED] = True
            return True
    except click.Abort:
        click.echo(err=True)  # what comes next is to have a line of its own
        _say_unchanged(as_json=as_json)
        raise
    _say_unchanged(as_json=as_json)
    return False


def _say_unchanged(*, as_json: bool) -> None:
    from coordinator.ui.words import print_json, say

    said = "nothing was changed"
    say(said, err=True)
    if as_json:
        print_json({"ok": False, "message": said, "errors": []})
