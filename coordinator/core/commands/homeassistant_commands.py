"""What Home Assistant has done: its switches and buttons, as the commands of an operator.

Whoever may publish on these topics is Home Assistant by the broker's rights, since nothing in the
message says who it is from. Where the coordinator has an operator key the broker knows nobody, and
Home Assistant signs nothing: then it is refused, unless the settings say that it is taken unsigned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.errors import BadMessage
from broker.protocol import signing
from broker.protocol.messages import (
    AskCancel,
    AskDrain,
    AskReload,
    AskRequeue,
    AskResume,
    Command,
    HomeCommand,
    OperatorResponse,
)
from coordinator.core import authorization
from coordinator.core.commands import requests
from coordinator.core.state import World
from coordinator.jobs.causes import Cause, cause
from coordinator.jobs.records import HostRecord
from coordinator.jobs.states import JobState

CLIENT: Final = "homeassistant/set"
COORDINATOR: Final = "coordinator"
COMMANDS_A_MINUTE: Final = 1000  # an automation may throw every switch of a large fleet at once
_OF_COORDINATOR: Final = frozenset({"requeue", "reload"})


def on_command(world: World, node: str, command: HomeCommand, now: Now) -> None:
    """Carry out a switch or a button of `node`. Raises `BadMessage` if it has no such command."""
    if (node == COORDINATOR) != (command.type in _OF_COORDINATOR):
        raise BadMessage(f"{command.type} is no command of this node")
    if not world.settings.home_commands:
        refusal = signing.Unsigned("unsigned")
        authorization.turn_away(world, CLIENT, _ask(world, node, command), refusal, now)
        return
    match command.type:
        case "drain":
            _drain(world, node, now)
        case "resume":
            _resume(world, node, now)
        case "release":
            _drain(world, node, now, at_once=True)
        case "cancel":
            _cancel(world, node, now)
        case "requeue":
            _requeue(world, now)
        case "reload":
            _carry_out(world, AskReload(id=world.new_id()), now)


def _drain(world: World, node: str, now: Now, *, at_once: bool = False) -> None:
    record = world.record(node)
    if not record.drained or (at_once and not record.drained_now):
        _carry_out(world, AskDrain(id=world.new_id(), host=node, now=at_once), now)


def _resume(world: World, node: str, now: Now) -> None:
    """Lift a drain. A quarantine or a snooze stays: an automation does not look at its reason."""
    record = world.record(node)
    if not record.drained:
        return
    if not (record.quarantine or record.snoozed_until):
        _carry_out(world, AskResume(id=world.new_id(), host=node), now)
    elif _is_admitted(world, now):
        world.remember(replace(record, drained=False, drained_now=False))
        ask = AskResume(id=world.new_id(), host=node)
        response = OperatorResponse(id=ask.id, ok=True, data={"host": node, "drained": False})
        what = cause("still", was=_rest(record))
        authorization.settle(world, CLIENT, ask, response, now, what)


def _rest(record: HostRecord) -> list[JsonValue]:
    return [one.to_dict() for one in record.restraints() if one.code != "drained"]


def _cancel(world: World, node: str, now: Now) -> None:
    held = world.held_at(node)
    if not held:
        why = cause("holds_nothing", host=node)
        _refuse(world, AskCancel(id=world.new_id(), job=""), why, now)
    for job in held:
        _carry_out(world, AskCancel(id=world.new_id(), job=job.job_id), now)


def _requeue(world: World, now: Now) -> None:
    failed = [job for job in world.book.in_claim_order(JobState.FAILED) if job.in_plan]
    if not failed:
        _refuse(world, AskRequeue(id=world.new_id(), job=""), cause("none_failed"), now)
    for job in failed:
        _carry_out(world, AskRequeue(id=world.new_id(), job=job.job_id), now)


def _carry_out(world: World, ask: Command, now: Now) -> None:
    if _is_admitted(world, now):
        requests.carry_out(world, CLIENT, ask, now)


def _refuse(world: World, ask: Command, why: Cause, now: Now) -> None:
    if _is_admitted(world, now):
        response = authorization.RequestRefused(why).response(ask.id)
        authorization.settle(world, CLIENT, ask, response, now)


def _is_admitted(world: World, now: Now) -> bool:
    """Whether one more is carried out: a run-away automation fills neither ledger nor answers."""
    times = world.home_commands_s
    while times and now.mono_s - times[0] >= 60.0:
        times.popleft()
    if len(times) >= COMMANDS_A_MINUTE:
        world.refused["too_many"] += 1
        return False
    times.append(now.mono_s)
    return True


def _ask(world: World, node: str, command: HomeCommand) -> Command:
    """Return the command of an operator that is meant, for the record of its refusal."""
    match command.type:
        case "drain" | "release":
            return AskDrain(id=world.new_id(), host=node)
        case "resume":
            return AskResume(id=world.new_id(), host=node)
        case "cancel":
            return AskCancel(id=world.new_id(), job="")
        case "requeue":
            return AskRequeue(id=world.new_id(), job="")
        case _:
            return AskReload(id=world.new_id())
