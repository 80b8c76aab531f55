"""What a message means: it is decoded, and handed to whom it concerns.

All of it is untrusted. What does not fit raises `BadMessage` or `BadStream`, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.loglines import decode_lines
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic
from coordinator.core import (
    assignment,
    downloads,
    presence,
    pushes,
    retries,
    stopping,
    uploads,
)
from coordinator.core.commands import homeassistant_commands, requests
from coordinator.core.effects import AppendLog
from coordinator.core.state import World


def on_message(world: World, topic: Topic, message: Incoming, now: Now) -> None:
    """Take a message of a host, an operator, the broker or Home Assistant."""
    payload = message.payload
    if not payload:
        return  # a cleared retained message
    if topic.host in world.revoked and topic.kind is not Kind.STATUS:
        world.refuse("revoked", f"what {topic.host} says: its certificate was revoked")
        return
    match topic.kind:
        case Kind.STATUS:
            status = m.decode(m.STATUS, payload)
            presence.on_status(world, topic.host, status, now, retained=message.retained)
        case Kind.CAPABILITY:
            presence.on_capability(world, topic.host, payload)
        case Kind.HEARTBEAT:
            presence.on_heartbeat(world, topic.host, m.decode(m.HEARTBEAT, payload), now)
        case Kind.RESPONSE:
            for report in m.decode_reports(payload):
                _on_report(world, topic.host, report, message, now)
        case Kind.PROGRESS:
            presence.on_progress(
                world, topic.host, topic.job_id, m.decode(m.PROGRESS, payload), now
            )
        case Kind.LOG:
            _on_log(world, topic, payload, now)
        case Kind.BROKER_REFUSED:
            world.broker_refused = m.decode(m.BROKER_REFUSED, payload).refused
        case _:
            _on_stream(world, topic, message, now)


def _on_stream(world: World, topic: Topic, message: Incoming, now: Now) -> None:
    """Take what is of an artifact, or asked for; retained commands would be replays."""
    payload = message.payload
    match topic.kind:
        case Kind.CHECKPOINT_GRANT if not message.retained:
            grant = m.decode(m.GRANT, payload)
            downloads.on_checkpoint_grant(world, topic.host, topic.artifact_id, grant, now)
        case Kind.IDENTITY_REQUEST:
            m.decode(m.CERTIFICATE_REQUEST, payload)  # answered beside the core: it needs the CA
        case Kind.CHUNK:
            uploads.on_chunk(world, topic.host, topic.artifact_id, topic.index, payload, now)
        case Kind.OPERATOR_REQUEST if not message.retained:
            ask = m.decode(m.OPERATOR_REQUEST, payload)
            requests.on_request(world, topic.host, ask, payload, now)
        case Kind.HOME_COMMAND if not message.retained:
            command = m.decode(m.HOME_COMMAND, payload)
            homeassistant_commands.on_command(world, topic.host, command, now)
        case Kind.DOWNLOAD_GRANT if not message.retained:
            downloads.on_grant(world, topic.host, m.decode(m.GRANT, payload), now)
        case Kind.PUSH_CHUNK:
            pushes.on_chunk(world, topic.host, topic.index, payload, now)
        case _:
            pass  # the rest is our own


def _on_report(
    world: World, host: str, report: m.AgentResponse, message: Incoming, now: Now
) -> None:  # fmt: skip
    if message.retained:
        return
    assignment.catch_up(world, host, report.job_id, report.attempt, report.receipt, now)
    job = world.book.get(report.job_id)
    speaks = job is not None and (
        job.is_at(host, report.attempt) or uploads.has_come(job, report)
    )  # fmt: skip
    if not speaks and not isinstance(report, m.Stopped):
        # Of an attempt that is over, or of somebody else's job: J1 has it change nothing.
        world.refuse("report", f"a report of {host} about a job that is not its own")
    known = world.hosts.get(host)
    if known and job and isinstance(report, m.Finished | m.Failed | m.Released):
        known.has_run(job.spec.model, report.ran_s)
        world.look_at(host)
    handlers: dict[type, Callable[[World, str, Any, Now], None]] = {
        m.Accepted: assignment.on_accepted,
        m.Refused: assignment.on_refused,
        m.Started: assignment.on_started,
        m.Failed: retries.on_failed,
        m.Released: uploads.on_released,
        m.Stopped: stopping.on_stopped,
        m.Finished: uploads.on_finished,
    }
    handlers[type(report)](world, host, report, now)


def _on_log(world: World, topic: Topic, payload: bytes, now: Now) -> None:
    job = world.book.get(topic.job_id)
    said = decode_lines(payload)
    # Also of an attempt that is over: its last lines may come after its report.
    if job is not None and job.is_at(topic.host, said.attempt):
        world.do(AppendLog(job.job_id, said, now.wall_s))
