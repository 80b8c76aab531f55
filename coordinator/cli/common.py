"""What the verbs share: options, the connection, names of jobs and hosts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from coordinator.cli.complete import complete_host, complete_job
from coordinator.cli.patience import USUAL_S

if TYPE_CHECKING:
    from broker.settings import BrokerSettings
    from coordinator.cli.client import OperatorClient

F = TypeVar("F", bound=Callable[..., Any])


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
        with connect(settings, timeout, watch=bool(kwargs.get("watch"))) as client:
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
    from broker.settings import BrokerSettings

    said = {"url": broker, "topic_root": root, "identity": identity, "plain": plain}
    return BrokerSettings.load(config, said)


def connect(settings: BrokerSettings, timeout_s: float, *, watch: bool = False) -> OperatorClient:
    """Return a client for the fleet; to `watch` is to hear of jobs and hosts that change."""
    from broker.topics import Topics
    from coordinator.cli.client import OperatorClient

    topics = Topics(settings.topic_root)
    changes = [topics.job("+"), topics.status("+"), topics.summary()] if watch else []
    return OperatorClient(settings, timeout_s, watch=changes)


def is_confirmed(question: str, *, as_json: bool) -> bool:
    """Ask whoever sits at the terminal; unless it is confirmed, say that nothing was changed.

    Raises `click.Abort` at Ctrl-C.
    """
    try:
        if click.confirm(question, err=True):
            return True
    except click.Abort:
        click.echo(err=True)  # what comes next is to have a line of its own
        _say_unchanged(as_json=as_json)
        raise
    _say_unchanged(as_json=as_json)
    return False


def _say_unchanged(*, as_json: bool) -> None:
    from coordinator.cli.words import print_json, say

    said = "nothing was changed"
    say(said, err=True)
    if as_json:
        print_json({"ok": False, "message": said, "errors": []})
