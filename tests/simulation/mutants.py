"""Deliberate bugs: the simulation is worth something if it finds each of them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core import endings, leases, owner, reports, runs
from agent.core.state import Run, State
from agent.programs import cached_folders
from agent.programs.programs import Programs
from agent.service import part_work
from agent.service.disk import DiskWork
from agent.spool.checkpoints import Checkpoints
from agent.spool.fetched import Fetched
from agent.spool.spool import Spool
from broker.clock import Now
from coordinator.core import (
    filing,
    give_back,
    presence,
    run_times,
    stopping,
    stored_artifacts,
    successors,
    uploads,
)
from coordinator.core import leases as coordinator_leases
from coordinator.core.state import World
from coordinator.jobs.jobs import Job, JobBook
from coordinator.jobs.records import BundlesFiled
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.ledger.ledger import Ledger
from coordinator.service.shell import Shell
from coordinator.store.partfile import Part
from coordinator.store.store import Store

from .disk import SimDisk
from .scenario import draw

Patch = Callable[[Any, str, Any], None]

# By what a patch is betrayed that does not fit the code any more: it tests nothing.
_MISFITS: Final = tuple(f"no exception escapes ({name}" for name in ("TypeError", "AttributeError"))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate bug, and within how many seeds it has to be found."""

    name: str
    within: int
    apply: Callable[[Patch], None]


def _put(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    """Return what puts something in the place of a part of the fleet."""
    return lambda patch: patch(owner, name, value)


def _attempt_does_not_grow(patch: Patch) -> None:
    real = World.move

    def move(world: World, job: Job, event: Event, *args: Any, **changes: Any) -> Job:
        if event is Event.ASSIGNED:
            changes["attempt"] = max(1, job.attempt)
        return real(world, job, event, *args, **changes)

    patch(World, "move", move)


def _publish_before_commit(patch: Patch) -> None:
    def flush(shell: Any, now: Now) -> None:
        changes, effects = shell.core.take()
        shell._performer.perform(effects, now)
        shell._ledger.commit(changes)

    patch(Shell, "_flush", flush)


def _not_hashed(folder: str) -> Callable[[Patch], None]:
    """Take whatever has come into a folder for what was meant."""

    def apply(patch: Patch) -> None:
        real = Fetched.whole

        def whole(fetched: Any, job_id: str, attempt: int, digest: str) -> Any:
            coming = fetched._files.get((job_id, attempt))
            if fetched._root.name == folder and coming is not None:
                coming.file.seek(0)
                digest = hashlib.sha256(coming.file.read()).hexdigest()
            return real(fetched, job_id, attempt, digest)

        patch(Fetched, "whole", whole)

    return apply


def _requeue_goes_on(patch: Patch) -> None:
    real = Checkpoints.begin
    patch(Checkpoints, "begin", lambda kept, job_id, attempt, _void: real(kept, job_id, attempt))


def _hash_not_checked(patch: Patch) -> None:
    real = Part.seal

    def seal(part: Part) -> str:
        real(part)
        return part.artifact_id

    patch(Part, "seal", seal)


def _stop_on_lost_ignored(patch: Patch) -> None:
    real = leases._stops
    patch(leases, "_stops", lambda state, run: run.assign.on_lost is None and real(state, run))


def _completed_when_finished(patch: Patch) -> None:
    real = uploads.on_finished

    def on_finished(world: World, host: str, report: Any, now: Now) -> None:
        job = world.book.get(report.job_id)
        if job is not None and job.is_held and job.is_at(host, report.attempt):
            world.move(job, Event.COMPLETED, now, f"host:{host}", artifact_id=report.artifact_id)
        real(world, host, report, now)

    patch(uploads, "on_finished", on_finished)


def _ledger_lets_go_at_once(patch: Patch) -> None:
    real = filing.keep

    def keep(world: World, job: Job, artifact_id: str, data: bytes, now: Now) -> None:
        real(world, job, artifact_id, data, now)
        world.remember(BundlesFiled((artifact_id,)))

    patch(filing, "keep", keep)


def _assignments_not_deduplicated(patch: Patch) -> None:
    real = runs.on_assign

    def on_assign(state: State, assign: Any, now: Now) -> None:
        state.runs.pop(assign.job_id, None)
        state.ended.pop(assign.job_id, None)
        real(state, assign, now)

    patch(runs, "on_assign", on_assign)


def _lease_by_wall_clock(patch: Patch) -> None:
    def renew(world: World, job: Job, now: Now) -> None:
        world.timers.set(("lease", job.job_id), now.wall_s - 1.8e9 + world.settings.stale_after_s)

    patch(coordinator_leases, "renew", renew)


def _lease_ends_with_connection(patch: Patch) -> None:
    real = presence.on_status

    def on_status(world: World, name: str, status: Any, now: Now, **more: Any) -> None:
        real(world, name, status, now, **more)
        if status.state == "offline":
            for job in world.book.held_by(name):
                world.timers.set(("lease", job.job_id), now.mono_s + 60.0)

    patch(presence, "on_status", on_status)


def _interrupted_not_offered(patch: Patch) -> None:
    real = Spool.take_over
    patch(Spool, "take_over", lambda spool, _: real(spool, lambda *_: False))


def _reports_sent_once(patch: Patch) -> None:
    real = reports.send

    def send(state: State, job_id: str, now: Now) -> None:
        real(state, job_id, now)
        if state.connected and job_id in state.owed and state.owed[job_id].sent:
            reports.forget(state, job_id)

    patch(reports, "send", send)


def _late_results_dropped(patch: Patch) -> None:
    for module in (stored_artifacts, uploads, presence, stopping):
        patch(module, "is_late", lambda *_: False)


def _final_states_move(patch: Patch) -> None:
    from coordinator.jobs import states

    sources = states.TRANSITIONS[Event.COMPLETED][0]
    table = {**states.TRANSITIONS, Event.COMPLETED: (sources | FINAL, JobState.COMPLETED)}
    patch(states, "TRANSITIONS", table)
    for module in (uploads, stored_artifacts):
        patch(module, "FINAL", frozenset({JobState.COMPLETED}))


def _unchanged_is_repeated(patch: Patch) -> None:
    def has_come(job: Job, report: Any) -> bool:
        kept = job.checkpoint
        told = report.artifact_id if report.type == "released" else None
        return kept is not None and kept.artifact_id == told

    patch(uploads, "has_come", has_come)


def _given_back_and_still_there(patch: Patch) -> None:
    real = World.move

    def move(world: World, job: Job, event: Event, *args: Any, **changes: Any) -> Job:
        if event is Event.RELEASED:
            changes["host"] = job.host
        return real(world, job, event, *args, **changes)

    patch(World, "move", move)


def _clears_unasked(patch: Patch) -> None:
    real = DiskWork._keep

    def keep(disk: Any, effect: Any) -> None:
        real(disk, effect)
        report = effect.report
        if report.type == "finished" and report.attempt > 1:
            disk._spool.clear(report.job_id, report.attempt, report.artifact_id)

    patch(DiskWork, "_keep", keep)


def _waiting_is_training(patch: Patch) -> None:
    def ran_s(world: World, report: Any, now: Now) -> float:
        return now.mono_s - world.given.get(report.job_id, (0, now))[1].mono_s

    patch(run_times, "ran_s", ran_s)


def _running_is_stored(patch: Patch) -> None:
    real = successors.before

    def before(world: World, job_id: str) -> Any:
        found = real(world, job_id)
        runs = found is not None and found.state in {"running", "uploading"}
        return found._replace(state="completed", has_result=True) if found and runs else found

    patch(successors, "before", before)


def _given_back_and_run(patch: Patch) -> None:
    real = endings.release

    def release(state: State, run: Run, now: Now, *checkpoint: Any) -> None:
        real(state, run, now, *checkpoint)
        if run.why is not None and run.why.code == "busy":
            run.stopping = run.why = None
            state.runs[run.job_id] = run

    patch(endings, "release", release)


def _deleted_while_in_use(patch: Patch) -> None:
    patch(part_work, "in_use", lambda runs: frozenset())
    patch(cached_folders, "KEPT_S", 0.0)


MUTANTS = (
    Mutant("no fencing at all", 100, _put(Job, "is_at", lambda job, host, attempt: True)),
    Mutant(
        "the attempt is not compared",
        600,
        _put(Job, "is_at", lambda job, host, attempt: job.host == host),
    ),
    Mutant("the attempt does not grow", 50, _attempt_does_not_grow),
    Mutant("published before committed", 300, _publish_before_commit),
    Mutant("stored before fsync", 300, _put(SimDisk, "sync", lambda disk, file: None)),
    Mutant("names not synced", 600, _put(Store, "_sync_names", lambda store, target: None)),
    Mutant("hash not checked", 100, _hash_not_checked),
    Mutant("completed when finished", 50, _completed_when_finished),
    Mutant("the ledger lets go at once", 50, _ledger_lets_go_at_once),
    Mutant("kept bundles not filed", 600, _put(filing, "on_loaded", lambda world, kept, now: None)),
    Mutant("assignments not deduplicated", 50, _assignments_not_deduplicated),
    Mutant("lease by the wall clock", 1000, _lease_by_wall_clock),
    Mutant("lease for ever", 100, _put(coordinator_leases, "on_expired", lambda *_: None)),
    Mutant("lease ends with the connection", 1000, _lease_ends_with_connection),
    Mutant("lease not kept by the agent", 1000, _put(leases, "on_timer", lambda *_: None)),
    Mutant("on_lost = stop ignored", 1000, _stop_on_lost_ignored),
    Mutant("interrupted is not offered", 1000, _interrupted_not_offered),
    Mutant("reports sent once", 50, _reports_sent_once),
    Mutant("reports not kept on disk", 300, _put(Spool, "keep", lambda spool, report, data: None)),
    Mutant("uploads not announced again", 300, _put(reports, "SILENCE_S", 1e9)),
    Mutant("trainers never killed", 300, _put(runs, "on_kill_timer", lambda *_: None)),
    Mutant("late results dropped", 1000, _late_results_dropped),
    Mutant("final states move", 1000, _final_states_move),
    Mutant("bundle cleared too early", 100, _clears_unasked),
    Mutant("checkpoints not hashed", 2000, _not_hashed("checkpoints")),
    Mutant(
        "checkpoints of others taken",
        300,
        _put(Checkpoints, "files", lambda kept, job_id: kept._root / job_id[:1] / "files"),
    ),
    Mutant("inputs not hashed", 1000, _not_hashed("inputs")),
    Mutant("parcels not hashed", 1000, _not_hashed("programs")),
    Mutant("packs not hashed", 600, _not_hashed("data")),
    Mutant("datasets deleted while in use", 300, _deleted_while_in_use),
    Mutant("signers not checked", 600, _put(Programs, "_check_signature", lambda *_: None)),
    Mutant("a requeue takes old checkpoints", 3000, _requeue_goes_on),
    Mutant("unchanged is not given back", 3000, _unchanged_is_repeated),
    Mutant("given back and still there", 300, _given_back_and_still_there),
    Mutant("owner not heard", 300, _put(owner, "give_back", lambda *_: None)),
    Mutant("releases not asked for", 1000, _put(give_back, "send", lambda *_: None)),
    Mutant(
        "pause lost by a restart",
        600,
        _put(
            Ledger,
            "load_fleet",
            lambda ledger, load=Ledger.load_fleet: replace(load(ledger), paused=False),
        ),
    ),
    Mutant("given ahead, given back and run", 300, _given_back_and_run),
    Mutant("successors wait for no artifact", 50, _running_is_stored),
    Mutant("successors are not looked at", 50, _put(JobBook, "followers", lambda *_: [])),
    Mutant("waiting is training", 50, _waiting_is_training),
)


@contextlib.contextmanager
def switched_on(mutant: Mutant) -> Iterator[None]:
    """Have the bug for a while."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        mutant.apply(patch)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def seeds_until_found(mutant: Mutant) -> tuple[int, str] | None:
    """Return after how many seeds it is found, and by which rule; none if not in time.

    Raises `AssertionError` when what is found is that the bug itself does not fit the code.
    """
    from .__main__ import run_one

    with switched_on(mutant):
        for number in range(mutant.within):
            violation = run_one(draw(number)).violation
            if violation is not None:
                assert not violation.rule.startswith(_MISFITS), f"{mutant.name}: {violation}"
                return number + 1, violation.rule
    return None


def hunt(only: str | None) -> int:
    """Look for each; print the table; return 1 if one was not found."""
    missed = 0
    sys.stdout.write(f"{'deliberate bug':32} {'found after':>12} {'within':>7}  by the rule\n")
    for mutant in MUTANTS:
        if only is not None and only not in mutant.name:
            continue
        begun_s = time.monotonic()
        found = seeds_until_found(mutant)
        missed += found is None
        seeds, rule = found or ("-", "NOT FOUND")
        took_s = time.monotonic() - begun_s
        sys.stdout.write(
            f"{mutant.name:32} {seeds!s:>12} {mutant.within:>7}  {rule} ({took_s:.0f} s)\n"
        )
        sys.stdout.flush()
    return 1 if missed else 0
