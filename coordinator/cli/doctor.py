"""`fleet doctor`: become the program that checks this machine; a person's is checked here."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from broker.doctor.findings import INDENT, Finding, ok, tell
from broker.errors import ConfigError
from coordinator.cli.serve import arguments_of, become_module, check_installed
from coordinator.ui.live import View, watch_option, watching
from coordinator.ui.options import json_option, where, where_options
from coordinator.ui.processes import answer_of

EVERY_S: Final = 10.0  # trainers are started each time
_OF_ROLES: Final = {
    "data": ("agent",),
    "host": ("agent",),
    "manifest": ("coordinator",),
    "ca": ("coordinator",),
    "state": ("agent", "coordinator"),
}
_WHERE: Final = ("broker", "root", "identity", "plain", "config")


_PROGRAMS: Final = {"agent": "agent.doctor", "coordinator": "coordinator.admin.checkup"}


@click.command("doctor")
@click.option(
    "--role",
    type=click.Choice(["agent", "coordinator", "operator"]),
    help="What this machine is to be.  [default: operator where a person's identity is and no "
    "host's, else agent]",
)
@click.option("--state", metavar="DIR", help="State folder.")
@click.option("--data", metavar="DIR", help="Folder of the prepared data (agent).")
@click.option("--host", metavar="NAME", help="This host's name in the fleet (agent).")
@click.option("--manifest", metavar="FILE", help="The plan (coordinator).")
@click.option("--ca", metavar="DIR", help="Folder of the CA (coordinator).")
@watch_option
@json_option
@where_options
def doctor_command(role: str | None, *, watch: bool, as_json: bool, **options: Any) -> int:
    """Check whether this machine will work, and say what to do where it will not.

    A line a check: `ok`, `warn` (it works, at a price), `fail` or `skip` (not looked at); the last
    line sums them up. Nothing is changed. Exit code 0: nothing fails, 1: something does. Of an
    agent that runs here the data is checked that it was started with, and its own word tells how it
    is connected. With --watch it checks again ten seconds after it was done, while you mend what it
    told.

    \b
    Examples:
      fleet doctor --data /srv/telemetry
      fleet doctor --role coordinator --manifest plan.toml --ca ~/.config/fleet/ca
      fleet doctor --role operator
    """  # noqa: D301 - \b is click's
    at = {name: options[name] for name in _WHERE}
    person = None if role else _person(at, options)
    role = role or ("operator" if person else "agent")
    for name, roles in _OF_ROLES.items():
        if role not in roles and options.pop(name) is not None:
            raise ConfigError(f"--{name}: only with --role {' or '.join(roles)}")
    if role == "operator":
        return _of_person(at, person, watch=watch, as_json=as_json)
    module = _PROGRAMS[role]
    if not watch:
        return become_module(module, options, ["--json"] if as_json else [])
    check_installed(module)
    return _watch(lambda: answer_of(module, ["--json", *arguments_of(options)]), as_json=as_json)


def _person(at: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Return whose machine this is, where nothing that was said is for another role."""
    from broker.client.access import person_here
    from broker.system.machine import system_clock

    if any(options[name] is not None for name in _OF_ROLES):
        return None
    try:
        return person_here(where(**at), system_clock().wall_s)
    except ConfigError:
        return None  # an agent is told of what is wrong in the file


def _of_person(at: dict[str, Any], found: str | None, *, watch: bool, as_json: bool) -> int:
    """Check the machine of somebody who looks at the fleet, or commands it."""
    from coordinator.ui.person_doctor import findings

    def all_findings() -> Iterator[Finding]:
        if found is not None:
            text = f"operator, since {found} is here and no host; --role says another"
            yield ok("role", text)
        yield from findings(at)

    def read() -> Any:
        out = io.StringIO()
        tell("operator", all_findings(), out, as_json=True)
        return json.loads(out.getvalue())

    if watch:
        return _watch(read, as_json=as_json)
    return tell("operator", all_findings(), sys.stdout, as_json=as_json)


def _watch(read: Callable[[], Any], *, as_json: bool) -> int:
    return watching(View(read, _draw), lambda: time.sleep(EVERY_S), as_json=as_json)


def _draw(found: dict[str, Any]) -> Iterator[Any]:
    from coordinator.ui.terminal import Line

    for check in found["checks"]:
        yield Line(Finding(**check).line(), indent=INDENT)
    yield Line(found["summary"])
