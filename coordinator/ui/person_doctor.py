"""`fleet doctor` of a person: will `fleet` reach the fleet from this machine, and as whom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from broker.client.access import PEOPLE, open_access
from broker.doctor.checks import check_apart, check_clock, check_python
from broker.doctor.findings import Finding, fail, ok, skipped, warn
from broker.doctor.reach import (
    NO_BROKER,
    NO_IDENTITY,
    NO_SESSION,
    NO_SETTINGS,
    check_addresses,
    check_identity,
)
from broker.errors import ConfigError
from broker.pki.identity import HOW_TO_GET
from broker.protocol.messages import AskStatus
from broker.system.machine import new_id, system_clock
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone, Unreachable
from coordinator.ui.options import where

TIMEOUT_S: Final = 12.0
_REST: Final = ("broker", "session", "coordinator")  # after the identity, each resting on the last


def findings(at: dict[str, Any]) -> Iterator[Finding]:
    """Check one thing after the other; `at` are the options that say where the fleet is."""
    now = system_clock()
    yield check_python()
    yield check_clock(now)
    try:
        settings = where(**at)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield fail("config", line, "etc/fleet.toml.example explains every key")
        yield from skipped(("identity", *_REST), *NO_SETTINGS)
        return
    try:
        access = open_access(settings, PEOPLE, now.wall_s)
    except ConfigError as error:
        yield fail("identity", str(error).removesuffix(f"; {HOW_TO_GET}"), HOW_TO_GET)
        yield from skipped(_REST, *NO_IDENTITY)
        return
    yield check_identity(access, now.wall_s)
    reached = yield from check_addresses(access)
    if reached:
        yield from check_fleet(settings)
    else:
        yield from skipped(_REST[1:], *NO_BROKER)


def check_fleet(settings: BrokerSettings) -> Iterator[Finding]:
    """Tell whether the broker lets this person in, and whether a coordinator answers."""
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(OperatorClient(settings, TIMEOUT_S))
        except (Unreachable, ConfigError) as error:
            yield _failed("session", error)
            yield from skipped(_REST[2:], *NO_SESSION)
            return
        yield ok("session", f"the broker lets {client.name.partition('/')[0]} in")
        asked = system_clock()
        try:
            data = client.ask(AskStatus(id=new_id()))
        except Unreachable as error:
            text, _, remedy = str(error).partition("\n")
            yield warn("coordinator", text, remedy)
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


def _failed(check: str, error: Exception) -> Finding:
    text, _, remedy = str(error).partition("\n")
    return fail(check, text, remedy or "docs/identity.md tells who may do what")
