"""`fleet doctor`: become the program that checks this machine; a person's is checked here."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from broker.client.access import PEOPLE, person_here
from broker.doctor.checks import check_apart, check_clock, check_python
from broker.doctor.findings import (
    INDENT,
    Finding,
    at_fault,
    complete,
    document,
    fail,
    ok,
    tell,
    warn,
)
from broker.doctor.reach import check_broker
from broker.errors import ConfigError, FleetError
from broker.protocol.messages import AskStatus
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.cli.serve import arguments_of, become_module
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone, Unreachable
from coordinator.ui.live import View, watch_option, watching
from coordinator.ui.options import Where, json_option, option, where_options
from coordinator.ui.processes import answer_of
from coordinator.ui.words import is_json

EVERY_S: Final = 10.0  # trainers are started each time
_OF_ROLES: Final = {
    "data": ("agent",),
    "host": ("agent",),
    "manifest": ("coordinator",),
    "ca": ("coordinator",),
    "state": ("agent", "coordinator"),
}
_PROGRAMS: Final = {"agent": "agent.doctor", "coordinator": "coordinator.admin.checkup"}
TIMEOUT_S: Final = 12.0


@click.command("doctor")
@click.option(
    "--role",
    type=click.Choice(["agent", "coordinator", "operator"]),
    help="What this machine is to be.  [default: operator where a person's identity is and no "
    "host's, else agent]",
)
@option("--state", "DIR", "State folder.")
@option("--data", "DIR", "Folder of the prepared data (agent).")
@option("--host", "NAME", "This host's name in the fleet (agent).")
@option("--manifest", "FILE", "The plan (coordinator).")
@option("--ca", "DIR", "Folder of the CA (coordinator).")
@watch_option
@json_option
@where_options
def doctor_command(at: Where, role: str | None, *, watch: bool, **options: Any) -> int:
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
    person = None if role else _person(at, options)
    role = role or ("operator" if person else "agent")
    for name, roles in _OF_ROLES.items():
        if role not in roles and options.pop(name) is not None:
            raise ConfigError(f"--{name}: only with --role {' or '.join(roles)}")
    if role == "operator":
        return _of_person(at, person, watch=watch)
    module, options = _PROGRAMS[role], options | at.said()
    if not watch:
        return become_module(module, options, ["--json"] if is_json() else [])
    return _watch(lambda: answer_of(module, ["--json", *arguments_of(options)]))


def _person(at: Where, options: dict[str, Any]) -> str | None:
    """Return whose machine this is, where nothing that was said is for another role."""
    if any(options[name] is not None for name in _OF_ROLES):
        return None
    try:
        return person_here(at.settings(), system_clock().wall_s)
    except ConfigError:
        return None  # an agent is told of what is wrong in the file


def _of_person(at: Where, found: str | None, *, watch: bool) -> int:
    """Check the machine of somebody who looks at the fleet, or commands it."""

    def all_findings() -> Iterator[Finding]:
        return complete("operator", findings(at, found))

    if watch:
        return _watch(lambda: document("operator", [*all_findings()]))
    return tell("operator", all_findings(), sys.stdout, as_json=is_json())


def _watch(read: Callable[[], Any]) -> int:
    return watching(View(read, _draw), lambda: time.sleep(EVERY_S))


def _draw(found: dict[str, Any]) -> Iterator[Any]:
    from coordinator.ui.terminal import Line

    for check in found["checks"]:
        yield Line(Finding(**check).line(), indent=INDENT)
    yield Line(found["summary"])


def findings(at: Where, person: str | None) -> Iterator[Finding]:
    """Check one thing after the other; `at` are the options that say where the fleet is."""
    if person is not None:
        text = f"operator, since {person} is here and no host; --role says another"
        yield ok("role", text)
    yield check_python()
    yield check_clock(system_clock())
    try:
        settings = at.settings()
    except ConfigError as error:
        yield from at_fault(error.faults)
        return
    yield from check_broker(settings, PEOPLE, lambda _: check_fleet(settings))


def check_fleet(settings: BrokerSettings) -> Iterator[Finding]:
    """Tell whether the broker lets this person in, and whether a coordinator answers."""
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(OperatorClient(settings, TIMEOUT_S))
        except (Unreachable, ConfigError) as error:
            yield _failed("session", error)
            return
        yield ok("session", f"the broker lets {client.name.partition('/')[0]} in")
        asked = system_clock()
        try:
            data = client.ask(AskStatus(id=new_id()))
        except Unreachable as error:
            yield warn("coordinator", error.wrong, error.remedy)
            return
        except (NotDone, ConfigError) as error:
            yield _failed("coordinator", error)
            return
        answered = system_clock()
        took_ms = (answered.mono_s - asked.mono_s) * 1000
        who = data["coordinator"]
        yield ok("coordinator", f"that of {who['host']} answered in {took_ms:.0f} ms")
        whose = f"the coordinator, on {who['host']}"
        yield from check_apart(str(who.get("now")), whose, asked.wall_s, answered.wall_s)


def _failed(check: str, error: FleetError) -> Finding:
    return fail(check, error.wrong, error.remedy or "docs/how-to/identity.md tells who may do what")
