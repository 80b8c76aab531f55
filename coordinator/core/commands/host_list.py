"""What operators are told of the hosts: page by page, whatever the size of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from broker.clock import Now
from broker.protocol.messages import AskWorkers, TrainerInfo, Wire
from coordinator.core.commands import host_commands
from coordinator.core.state import World
from coordinator.jobs import job_progress
from coordinator.jobs.hosts import Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import policy_to_dict
from coordinator.jobs.states import FINAL, JobState

PAGE_BYTES: Final = 150_000
MOST_BYTES: Final = 255_000  # of one row, with the trainers that it alone has


def on_workers(world: World, _client: str, ask: AskWorkers, now: Now) -> dict[str, JsonValue]:
    """Return a page of hosts by name; rows refer to shared sets of `trainers` by number."""
    known = world.known_hosts() if ask.absent else frozenset(world.hosts)
    planned = world.plan.hosts if ask.absent else {}
    names = sorted({*world.hosts, *known, *planned})
    rows: list[JsonValue] = []
    sets: list[Mapping[str, TrainerInfo]] = []
    others: list[JsonValue] = []
    told: list[JsonValue] = []
    size_bytes = 0
    for name in names[ask.offset : ask.offset + ask.limit]:
        host = world.hosts.get(name)
        if host is None:
            row = _other(world, name, is_known=name in known)
        else:
            row = _row(world, host, now) | ({} if ask.brief else _whole(host, sets))
        more = [_trainers(one) for one in sets[len(told) :]]
        row_bytes = len(to_json(row)) + len(to_json(more))
        if row_bytes > MOST_BYTES:
            # Nobody could hear it, nor of who comes after: told as if it had yet to say what it is.
            del sets[len(told) :]
            row, more = {**row, "capability": None}, []
            row_bytes = len(to_json(row))
        size_bytes += row_bytes
        if (rows or others) and size_bytes > PAGE_BYTES:
            break
        (others if host is None else rows).append(row)
        told += more
    end = ask.offset + len(rows) + len(others)
    following = end if end < len(names) else None
    found: dict[str, JsonValue] = {"workers": rows, "total": len(names), "next": following}
    found |= {"others": others} if ask.absent else {}
    return found if ask.brief else found | {"trainers": told}


def _other(world: World, name: str, *, is_known: bool) -> dict[str, JsonValue]:
    return {"host": name, "known": is_known, "policy": policy_to_dict(world.policy(name))}


def _row(world: World, host: Host, now: Now) -> dict[str, JsonValue]:
    unusable: dict[str, JsonValue] = {
        digest: one.to_dict() for digest, one in host.cannot_use(now).items()
    }
    return {
        "host": host.name,
        "status": "online" if host.online else "offline",
        "presence": world.presence(host, now),
        "condition": host_commands.condition(world, host, now),
        "alone_in_s": round(host.alone_in_s(now)),
        "why": host.offline_why,
        "barred": host_commands.told_restraints(world, host),
        "policy": policy_to_dict(world.policy(host.name)),
        **({"unusable": unusable} if unusable else {}),
        "jobs": _jobs(world, host),
        "last_seen": host.heard.text() if host.heard else None,
    }


def _jobs(world: World, host: Host) -> list[JsonValue]:
    """Return what a host holds by the ledger, then what else its heartbeat lists: it is to stop."""
    listed = host.heartbeat.jobs if host.heartbeat else ()
    beat = {(held.job_id, held.attempt): held for held in listed}
    rows: list[JsonValue] = []
    for job in world.book.held_by(host.name):
        held = beat.pop((job.job_id, job.attempt), None)
        begun = "starting" if job.state is JobState.CLAIMED else "running"
        share = job_progress.share(host.progress.get(job.job_id), held)
        row = _job(job.job_id, job, job.attempt, held.phase if held else begun, share)
        rows.append({**row, "resumable": _is_resumable(host, job)})
    for held in beat.values():
        known = world.book.get(held.job_id)
        if known is None or known.state not in FINAL:  # what is over it will not list again
            rows.append(_job(held.job_id, known, held.attempt, "stopping", None))
    return rows


def _is_resumable(host: Host, job: Job) -> bool:
    """Whether its trainer there keeps checkpoints, so that to give it back costs no work."""
    if job.spec.program is not None:
        return job.spec.program.resumable
    trainer = host.capability.trainers.get(job.spec.model) if host.capability else None
    return trainer is None or trainer.resumable


def _job(
    job_id: str, job: Job | None, attempt: int, phase: str, progress: float | None
) -> dict[str, JsonValue]:
    return {
        "job_id": job_id,
        "name": job.spec.name if job else None,
        "attempt": attempt,
        "phase": phase,
        "progress": progress,
    }


def _whole(host: Host, sets: list[Mapping[str, TrainerInfo]]) -> dict[str, JsonValue]:
    """Return what a host said of itself; its trainers are added to `sets` if they are new."""
    capability = host.capability
    found: dict[str, JsonValue] = {"capability": None, "heartbeat": _dump(host.heartbeat)}
    if capability is not None:
        numbers = (n for n, known in enumerate(sets) if known is capability.trainers)
        number = next(numbers, len(sets))
        if number == len(sets):
            sets.append(capability.trainers)
        told = capability.model_dump(mode="json", exclude={"trainers"})
        found["capability"] = {**told, "trainers": number}
    return found


def _trainers(found: Mapping[str, TrainerInfo]) -> JsonValue:
    return {name: _dump(trainer) for name, trainer in found.items()}


def _dump(message: Wire | TrainerInfo | None) -> JsonValue:
    return None if message is None else message.model_dump(mode="json")
