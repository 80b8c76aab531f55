"""`fleet doctor`: become the program that checks this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from broker.errors import ConfigError
from broker.findings import INDENT, Finding
from coordinator.cli.common import json_option, where_options
from coordinator.cli.processes import answer_of
from coordinator.cli.serve import arguments_of, become_module, check_installed
from coordinator.cli.views import View, watch_option, watching

EVERY_S: Final = 10.0  # trainers are started each time
_OF_ROLE: Final = {
    "data": "agent",
    "host": "agent",
    "manifest": "coordinator",
    "ca": "coordinator",
}


@click.command("doctor")
@click.option(
    "--role",
    type=click.Choice(["agent", "coordinator"]),
    default="agent",
    show_default=True,
    help="What this machine is to be.",
)
@click.option("--state", metavar="DIR", help="State folder.")
@click.option("--data", metavar="DIR", help="Folder of the prepared data (agent).")
@click.option("--host", metavar="NAME", help="This host's name in the fleet (agent).")
@click.option("--manifest", metavar="FILE", help="The plan (coordinator).")
@click.option("--ca", metavar="DIR", help="Folder of the CA (coordinator).")
@watch_option
@json_option
@where_options
def doctor_command(role: str, *, watch: bool, as_json: bool, **options: Any) -> int:
    """Check whether this machine will work, and say what to do where it will not.

    A line a check: `ok`, `warn` (it works, at a price) or `fail`. Nothing is changed. Exit code 0:
    nothing fails, 1: something does. With --watch it checks again ten seconds after it was
    done, while you mend what it told.

    \b
    Examples:
      fleet doctor --data /srv/telemetry
      fleet doctor --role coordinator --manifest plan.toml --ca ~/.config/fleet/ca
    """  # noqa: D301 - \b is click's
    for name, of in _OF_ROLE.items():
        if role != of and options.pop(name) is not None:
            raise ConfigError(f"--{name}: only with --role {of}")
    module = f"{role}.doctor"
    if not watch:
        return become_module(module, options, ["--json"] if as_json else [])
    check_installed(module)
    view = View(lambda: answer_of(module, ["--json", *arguments_of(options)]), _draw)
    return watching(view, lambda: time.sleep(EVERY_S), as_json=as_json)


def _draw(found: dict[str, Any]) -> Iterator[Any]:
    from coordinator.cli.render import Line

    for check in found["checks"]:
        yield Line(Finding(**check).line(), indent=INDENT)
