"""Jobs that are tried again: after a failure (backoff, `retries`), after a loss (`max_attempts`).

A failed job waits, longer each time (`RETRY_BASE_S`), and goes to another host if there is one: its
own is held back. A lost job is pending at once.
"""

from __future__ import annotations

from typing import Any, Final

from broker.clock import Now, backoff_s, rfc3339, until
from broker.protocol.messages import Failed
from broker.protocol.reasons import Reason, reason
from coordinator.core import host_rules, run_times
from coordinator.core.state import World
from coordinator.jobs.causes import Cause, cause, in_words
from coordinator.jobs.hosts import Holdback, Host
from coordinator.jobs.jobs import Job
from coordinator.jobs.states import FINAL, Event, JobState

HOLDBACK_BASE_S: Final = 30.0
HOLDBACK_CAP_S: Final = 600.0
PROGRAM_BASE_S: Final = 900.0
PROGRAM_CAP_S: Final = 21_600.0
RETRY_BASE_S: Final = 30.0
RETRY_CAP_S: Final = 1800.0


def on_failed(world: World, host: str, report: Failed, now: Now) -> None:
    """A trainer failed."""
    job = world.book.get(report.job_id)
    if job is None or job.state in FINAL or not job.is_at(host, report.attempt):
        world.note(host, report, "superseded")
        return
    error = report.error.strip() or f"exit code {report.exit_code}"
    text = error.splitlines()[0][:500]
    if report.transient:
        host_rules.note_failure(world, host, job.job_id)
    if report.transient and job.failures < job.spec.retries:
        _retry(world, job, host, report, text, now)
    else:
        world.move(
            job, Event.FAILED, now, f"host:{host}", cause("error", text=text, kind=report.kind),
            error=error, error_kind=report.kind, host=host, attempt=report.attempt,
            ran_s=run_times.ran_s(world, report, now),
        )  # fmt: skip
    world.note(host, report, "recorded")


def _retry(world: World, job: Job, host: str, report: Failed, text: str, now: Now) -> None:
    """Let a job that failed try again after a while, on another host if there is one."""
    wait_s = backoff_s(job.failures, RETRY_BASE_S, RETRY_CAP_S, world.rng)
    failures = job.failures + 1
    tried = {"retry": failures, "retries": job.spec.retries}
    why = cause("error", text=text, kind=report.kind, **tried)
    world.move(
        job, Event.RETRIED, now, f"host:{host}", why, host=None, attempt=report.attempt,
        failures=failures, not_before=rfc3339(now.wall_s + wait_s),
        ran_s=run_times.ran_s(world, report, now),
    )  # fmt: skip
    world.pending_since_s.setdefault(job.job_id, now.mono_s)
    world.timers.set(("retry", job.job_id), now.mono_s + wait_s)
    hold_back(world, job, host, (reason("failed", quoted=text),), now)


def lose(world: World, job: Job, now: Now, who: str, why: Cause, **changes: Any) -> None:
    """An attempt is lost; after too many the job fails. Its host may still come back to it."""
    losses = job.losses + 1
    if losses >= world.settings.max_attempts:
        error = f"lost {losses} times, the last time on {job.host}: {in_words(why)}"
        changes |= {"error": error, "error_kind": "lost", "losses": losses, "checkpoint": None}
        world.move(job, Event.EXHAUSTED, now, who, why, **changes)
    else:
        world.move(job, Event.LOST, now, who, why, losses=losses, **changes)


def put_back(world: World, job: Job, now: Now, why: Cause) -> None:
    """The agent dropped an attempt without a report: it is lost, unless a rival stopped it."""
    who = f"host:{job.host}"
    if world.has_rival:
        world.move(job, Event.RELEASED, now, who, {**why, "rival": True})
    else:
        lose(world, job, now, who, why)


def hold_back(world: World, job: Job, host: str, why: tuple[Reason, ...], now: Now) -> None:
    """Give a job to this host no more for a while, longer each time."""
    held_back = world.holdbacks.setdefault(job.job_id, {})
    times = held_back[host].times + 1 if host in held_back else 0
    until_s = now.mono_s + backoff_s(times, HOLDBACK_BASE_S, HOLDBACK_CAP_S, world.rng)
    held_back[host] = Holdback(until_s, times, why)
    world.timers.set(("holdback", job.job_id, host), until_s)


def hold_back_program(world: World, host: Host, digest: str, why: Reason, now: Now) -> None:
    """Give no job of a program to a host that cannot use it, longer each time."""
    times = host.unusable[digest].times + 1 if digest in host.unusable else 0
    until_s = now.mono_s + backoff_s(times, PROGRAM_BASE_S, PROGRAM_CAP_S, world.rng)
    host.unusable[digest] = Holdback(until_s, times, (why,))
    world.timers.set(("holdback", digest, host.name), until_s)
    world.look_at(host.name)


def on_loaded(world: World, now: Now) -> None:
    """After a restart: the waits of the ledger go on."""
    for job in world.book.in_state(JobState.PENDING):
        wait_s = until(job.not_before, now)
        if wait_s > 0:
            world.timers.set(("retry", job.job_id), now.mono_s + min(wait_s, RETRY_CAP_S))
