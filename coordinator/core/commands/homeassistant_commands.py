"""What Home Assistant has done: its switches and buttons, as the commands of an operator.

Whoever may publish on these topics is Home Assistant by the broker's rights, since nothing in the
message says who it is from. Where the coordinator has an operator key the broker knows nobody, and
Home Assistant signs nothing: then it is refused, unless the settings say that it is taken unsigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from broker.clock import Now
from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol import signing
from coordinator.core import authorization
from coordinator.core.commands import requests
from coordinator.core.state import World
from coordinator.jobs.causes import Cause, cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.records import HostRecord
from coordinator.jobs.states import JobState

CLIENT: Final = "homeassistant/set"
COORDINATOR: Final = "coordinator"
COMMANDS_A_MINUTE: Final = 1000  # an automation may throw every switch of a large fleet at once
_OF_COORDINATOR: Final = frozenset({"requeue", "reload"})


def on_command(world: World, node: str, command: m.HomeCommand, now: Now) -> None:
    """Carry out a switch or a button of `node`. Raises `BadMessage` if it has no such command."""
    if (node == COORDINATOR) != (command.type in _OF_COORDINATOR):
        raise BadMessage(f"{command.type} is no command of this node")
    ask, record = _meant(world, node, command), world.record(node)
    if not world.settings.home_commands:
        authorization.turn_away(world, CLIENT, ask, signing.Unsigned("unsigned"), now)
        return
    match ask:
        case m.AskDrain() if not record.drained or (ask.now and not record.drained_now):
            _carry_out(world, ask, now)
        case m.AskResume() if record.drained:
            _resume(world, record, ask, now)
        case m.AskCancel():
            _each(world, ask, world.book.held_by(node), cause("holds_nothing", host=node), now)
        case m.AskRequeue():
            failed = [job for job in world.book.in_claim_order(JobState.FAILED) if job.in_plan]
            _each(world, ask, failed, cause("none_failed"), now)
        case m.AskReload():
            _carry_out(world, ask, now)


def _meant(world: World, node: str, command: m.HomeCommand) -> m.Command:
    """Return the command of an operator that is meant; of jobs, without the job."""
    match command.type:
        case "drain" | "release":
            return m.AskDrain(id=world.new_id(), host=node, now=command.type == "release")
        case "resume":
            return m.AskResume(id=world.new_id(), host=node)
        case "cancel":
            return m.AskCancel(id=world.new_id(), job="")
        case "requeue":
            return m.AskRequeue(id=world.new_id(), job="")
        case _:
            return m.AskReload(id=world.new_id())


def _resume(world: World, record: HostRecord, ask: m.AskResume, now: Now) -> None:
    """Lift a drain. A quarantine or a snooze stays: an automation does not look at its reason."""
    if not (record.quarantine or record.snoozed_until):
        _carry_out(world, ask, now)
    elif _is_admitted(world, now):
        world.remember(replace(record, drained=False, drained_now=False))
        response = m.OperatorResponse(id=ask.id, ok=True, data={"host": ask.host, "drained": False})
        what = cause("still", was=_rest(record))
        authorization.settle(world, CLIENT, ask, response, now, what)


def _rest(record: HostRecord) -> list[JsonValue]:
    return [one.to_dict() for one in record.restraints() if one.code != "drained"]


def _each(
    world: World, ask: m.AskCancel | m.AskRequeue, jobs: Sequence[Job], none: Cause, now: Now
) -> None:
    """Carry a command out on each of the jobs; where there are none it is refused, and why."""
    if not jobs and _is_admitted(world, now):
        response = authorization.RequestRefused(none).response(ask.id)
        authorization.settle(world, CLIENT, ask, response, now)
    for job in jobs:
        of_job = {"id": world.new_id(), "job": job.job_id}
        _carry_out(world, ask.model_copy(update=of_job), now)


def _carry_out(world: World, ask: m.Command, now: Now) -> None:
    if _is_admitted(world, now):
        requests.carry_out(world, CLIENT, ask, now)


def _is_admitted(world: World, now: Now) -> bool:
    """Whether one more is carried out: a run-away automation fills neither ledger nor answers."""
    is_one = authorization.is_one_more(world.home_commands_s, COMMANDS_A_MINUTE, now)
    if not is_one:
        world.refused["too_many"] += 1
    return is_one
