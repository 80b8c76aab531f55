"""`fleet dashboard`."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.errors import LocalError
from broker.system.settings import BrokerSettings
from coordinator.ui.options import PATH, Where, flag, option, where_options

if TYPE_CHECKING:
    from coordinator.web.artifacts import Fetch
    from coordinator.web.hub import Hub

_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike
ANSWER_S: Final = 15.0


@click.command("dashboard")
@option("--listen", "HOST:PORT",
        "Where to serve it; port 0 takes a free one.  [default: 127.0.0.1:8086]")  # fmt: skip
@option("--certificate", "FILE",
        "Certificate in PEM, for HTTPS; needed beyond this machine.", type=PATH)  # fmt: skip
@option("--key", "FILE", "Its key.", type=PATH)
@option("--name names", "HOST",
        "A further name that browsers may use for this machine.", multiple=True)  # fmt: skip
@option("--public-url", "URL",
        "Its address behind a proxy that does HTTPS: https://NAME.")  # fmt: skip
@option("--password-file", "FILE",
        "What one logs in with.  [default: a new one each time]", type=PATH)  # fmt: skip
@flag("--private", "Nobody even looks without the password.")
@flag("--read-only", "Nobody may change anything.")
@where_options
def dashboard_command(at: Where, **options: Any) -> None:
    """Show the fleet in a browser.

    Everybody who can reach the page can look. Whoever logs in may cancel and requeue jobs, drain
    and snooze hosts, and pause the fleet, in the name that this process has on the broker; as an
    observer nobody may.

    \b
    Example:
      fleet dashboard --listen 0.0.0.0:8086 --certificate pi.crt --key pi.key
    """  # noqa: D301 - \b is click's
    if importlib.util.find_spec("nicegui") is None:
        raise LocalError(
            "the web page is not installed here; `pip install 'training-fleet[dashboard]'`, or "
            "in a clone `pip install '.[dashboard]'`"
        )
    from broker.system.machine import system_clock
    from coordinator.client.watcher import Watcher
    from coordinator.web.settings import WebSettings, read_password

    settings = WebSettings(plain=bool(at.plain), **{k: v for k, v in options.items() if v})
    settings.check()
    broker, file = at.settings(), settings.password_file
    password = read_password(file) if file else _new_password()

    from coordinator.web.server import serve

    def tell(port: int, hub: Hub) -> None:
        """Say where the page is and how one logs in."""
        click.echo(f"dashboard    {settings.url(port)}")
        if settings.public_url:
            click.echo(f"by proxy     {settings.public_origin}/")
        click.echo(f"broker       {hub.watcher.address}, as {hub.watcher.user}")
        if settings.read_only or not hub.is_operator():
            click.echo("log in       nobody can: the page is read only")
        elif file is not None:
            click.echo("log in       with the password in --password-file")
        else:
            click.echo(f"log in       with the password  {password}")
            click.echo("             it holds until this process ends")
        click.echo("Ctrl-C ends it.")

    serve(
        settings, lambda on_change: Watcher(broker, on_change), _fetch(broker),
        None if settings.read_only else password, system_clock, tell,
    )  # fmt: skip


def _new_password() -> str:
    """Return 16 letters and digits (79 bits), in groups that one can type."""
    word = "".join(secrets.choice(_LETTERS) for _ in range(16))
    return "-".join(word[start : start + 4] for start in range(0, 16, 4))


def _fetch(settings: BrokerSettings) -> Fetch:
    """Return what fetches an artifact, on a connection of its own: a large one delays no news."""

    def fetch(
        job_id: str, attempt: int | None, target: Path, on_bytes: Callable[[int, int], None]
    ) -> str:
        from coordinator.cli.results import ask
        from coordinator.client.client import OperatorClient
        from coordinator.client.receiving import receive, verify

        with OperatorClient(settings, ANSWER_S) as client, target.open("w+b") as file:
            offer = ask(client, job_id, attempt)
            got_bytes = 0

            def advance(count: int) -> None:
                nonlocal got_bytes
                got_bytes += count
                on_bytes(got_bytes, offer.size_bytes)

            receive(client, offer, lambda: ask(client, job_id, attempt), file, advance)
            verify(file, offer.artifact_id)
            return offer.artifact_id

    return fetch
