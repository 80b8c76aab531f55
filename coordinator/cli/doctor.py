"""`fleet doctor`: become the program that checks this machine."""

from __future__ import annotations

from typing import Any, Final

import click

from broker.errors import ConfigError
from coordinator.cli.common import json_option, where_options
from coordinator.cli.serve import become_module

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
@json_option
@where_options
def doctor_command(role: str, *, as_json: bool, **options: Any) -> int:
    """Check whether this machine will work, and say what to do where it will not.

    A line a check: `ok`, `warn` (it works, at a price) or `fail`. Nothing is changed. Exit code 0:
    nothing fails, 1: something does.

    \b
    Examples:
      fleet doctor --data /srv/telemetry
      fleet doctor --role coordinator --manifest plan.toml --ca ~/.config/fleet/ca
    """  # noqa: D301 - \b is click's
    for name, of in _OF_ROLE.items():
        if role != of and options.pop(name) is not None:
            raise ConfigError(f"--{name}: only with --role {of}")
    return become_module(f"{role}.doctor", options, ["--json"] if as_json else [])
