"""From an assignment to the end of its trainer: slots, refusals, progress, stopping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent.core import output, reports, resuming, unbundled
from agent.core.effects import (
    BundleCheckpoint,
    BundleFailed,
    BundleMade,
    CheckpointBundled,
    DropCheckpoint,
    MakeBundle,
    Measure,
    SignalTrainer,
    TrainerExited,
    TrainerLine,
    TrainerStarted,
    Vitals,
)
from agent.core.output import understand
from agent.core.state import Run, State
from broker.clock import Now, backoff_s
from broker.protocol.events import Outgoing
from broker.protocol.messages import (
    Accepted,
    Assign,
    Cancel,
    Failed,
    Progress,
    Refused,
    Release,
    Released,
    Started,
    Stopped,
)

GIB: Final = 1024**3
MAX_WAITING: Final = 32
MAX_REFUSED: Final = 256
TAIL_LINES: Final = 30
BUNDLE_BASE_S: Final = 5.0
BUNDLE_CAP_S: Final = 300.0
SIGKILL: Final = -9  # the exit code of who was ended by it; Windows has no such signal
EXIT_USAGE: Final = 2  # of a trainer: bad hyperparameters or data; another attempt is no better
INTERRUPTED: Final = "the agent was killed while it ran"
MAX_BUNDLINGS: Final = 300  # about a day of a full disk


def on_assign(state: State, assign: Assign, now: Now) -> None:
    """An assignment: answer what is known at once, else judge it by fresh figures."""
    run = state.runs.get(assign.job_id)
    if run is not None and run.attempt == assign.attempt:
        _accept(state, assign, now)
        if run.pid:
            _say_started(state, run)
        return
    held = state.owed.get(assign.job_id)
    if held is not None and held.report.attempt == assign.attempt:
        reports.send(state, assign.job_id, now)
        return
    if assign.attempt <= state.ended.get(assign.job_id, 0):
        attempt, reasons = state.refused.get(assign.job_id, (0, ()))
        over = (f"attempt {assign.attempt} is over on this host",)
        _say_refused(state, assign, reasons if attempt == assign.attempt else over)
    elif any(one.job_id == assign.job_id for one in state.waiting):
        pass  # it is being judged
    elif len(state.waiting) >= MAX_WAITING:
        _refuse(state, assign, ("too many assignments at once",))
    else:
        state.waiting.append(assign)
        state.do(Measure())


def on_vitals(state: State, vitals: Vitals, now: Now) -> None:
    """Fresh figures: judge the assignments that wait for them."""
    state.vitals = vitals
    waiting, state.waiting = state.waiting, []
    for assign in waiting:
        against = objections(state, assign)
        if against:
            _refuse(state, assign, against)
        else:
            _start(state, assign, now)


def objections(state: State, assign: Assign) -> tuple[str, ...]:
    """Return every reason, with figures, why this host cannot start the assignment now."""
    capability, vitals = state.capability, state.vitals
    if capability is None or vitals is None:
        return ("this host is still being probed",)
    found: list[str] = []
    if state.leaving:
        found.append("this agent is shutting down")
    if state.refuses:
        found.append(state.refuses)
    if assign.job_id in state.runs:
        found.append(f"attempt {state.runs[assign.job_id].attempt} of it is still stopping here")
    if assign.job_id in state.interrupted:
        found.append("the checkpoint of an earlier attempt of it is being bundled here")
    if assign.model not in capability.trainers:
        found.append(f"has no trainer for {assign.model!r}")
    if capability.data_id is None:
        found.append("has no prepared data")
    if (cores := assign.needs.min_cores) and cores > capability.physical_cores:
        found.append(f"needs {cores} cores; this host has {capability.physical_cores}")
    ram_gib = vitals.ram_available_bytes / GIB
    if (need_gib := assign.needs.min_ram_gib) and need_gib > ram_gib:
        found.append(f"needs {need_gib:g} GiB of RAM; {ram_gib:.1f} GiB is available")
    if _free_slot(state, assign) is None:
        found.append(_slot_objection(state, assign))
    return tuple(found)


def on_started(state: State, event: TrainerStarted, now: Now) -> None:
    """The trainer's process runs."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        return
    run.pid, run.resumes, run.began_s = event.pid, event.resumes, now.mono_s
    if run.stopping:
        state.do(SignalTrainer(run.job_id, run.attempt, kill=False))
        return
    run.phase = "running"
    run.heard_s = now.mono_s
    if run.assign.timeout_s is not None:
        state.timers.set(("timeout", run.job_id), now.mono_s + run.assign.timeout_s)
    if run.assign.stall_timeout_s is not None:
        state.timers.set(("stall", run.job_id), now.mono_s + run.assign.stall_timeout_s)
    _say_started(state, run)
    state.beat_soon(now)


def on_line(state: State, event: TrainerLine, now: Now) -> None:
    """The trainer says something."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        return
    run.heard_s = now.mono_s
    line = understand(event.line)
    run.tail = [*run.tail[-(TAIL_LINES - 1) :], line.text]
    run.error = line.error or run.error
    run.result = line.result if line.result is not None else run.result
    if line.progress is not None or line.phase is not None:
        # How long it would take was said of the phase before.
        run.progress |= line.progress or {"phase": line.phase, "eta_s": None}
        if run.progress.get("first_epoch") is None:
            run.progress["first_epoch"] = run.progress.get("epoch")
        _say_progress(state, run)
    output.say(state, run, line.text, now)


def on_exited(state: State, event: TrainerExited, now: Now) -> None:
    """The trainer's process has ended."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        return
    state.timers.cancel(("kill", run.job_id))
    if run.began_s is not None:
        run.ran_s = round(now.mono_s - run.began_s, 3)  # bundling and handing over are no training
    if run.progress or run.attempt > 1:  # an earlier agent may have died before it had done so
        state.out.append(Outgoing(_progress_topic(state, run), b"", 0, retain=True))
    if run.stopping == "cancelled":
        _cancelled(state, run, now)
    elif event.code == 0:
        run.phase, run.is_done = "bundling", True
        if state.leaving:
            unbundled.keep(state, run)
        state.do(MakeBundle(run.job_id, run.attempt))
        state.beat_soon(now)
    elif run.stopping == "released" or event.data_gone:
        if run.stopping != "released":  # whatever it failed of, another host or time may do better
            said = (run.why or _error(run, event)).splitlines()[0][:500]
            run.stopping, run.why = "released", f"its prepared data is not there ({said})"
        run.phase = "bundling"
        state.do(BundleCheckpoint(run.job_id, run.attempt))
    elif run.stopping == "over-limit":
        _fail(state, run, run.why, event.code, now, transient=True)
    else:
        transient = event.transient and event.code != EXIT_USAGE
        _fail(state, run, _error(run, event), event.code, now, transient=transient)


def on_bundle_made(state: State, event: BundleMade, now: Now) -> None:
    """The result is safe on this disk: hand it over."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        return
    if run.stopping == "cancelled":
        _cancelled(state, run, now, event.artifact_id)
        return
    _over(state, run, now)
    reports.finished(state, run, event, now)


def on_checkpoint_bundled(state: State, event: CheckpointBundled, now: Now) -> None:
    """The job is given back, with what its trainer left off at."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        _interrupted(state, event, now)
        return
    if run.stopping == "cancelled":
        _cancelled(state, run, now, event.artifact_id)
        return
    _release(state, run, now, event.artifact_id, event.size_bytes)
    if event.artifact_id is not None and state.leaving:
        state.timers.set(("leave",), now.mono_s + state.settings.handover_grace_s)


def reload(state: State, interrupted: Iterable[tuple[str, int]]) -> None:
    """Hand over where the trainers were that an earlier process ran when it was killed."""
    for job_id, attempt in interrupted:
        state.interrupted[job_id] = attempt
        state.end(job_id, attempt)
        state.do(BundleCheckpoint(job_id, attempt))


def _interrupted(state: State, event: CheckpointBundled, now: Now) -> None:
    """The checkpoint of an interrupted attempt is in the spool: give the job back with it."""
    if state.interrupted.get(event.job_id) != event.attempt:
        reports.clear(state, event.job_id, event.attempt, event.artifact_id)  # it was cancelled
        return
    del state.interrupted[event.job_id]
    report = Released(
        **state.about(event.job_id, event.attempt), reason=INTERRUPTED, interrupted=True,
        artifact_id=event.artifact_id, size_bytes=event.size_bytes,
    )  # fmt: skip
    reports.owe(state, report, now)


def _release(
    state: State, run: Run, now: Now, artifact_id: str | None = None, size_bytes: int = 0
) -> None:
    _over(state, run, now)
    report = Released(
        **state.about(run.job_id, run.attempt, run.assign.receipt), reason=run.why,
        artifact_id=artifact_id, size_bytes=size_bytes, ran_s=run.ran_s,
    )  # fmt: skip
    reports.owe(state, report, now)


def on_bundle_failed(state: State, event: BundleFailed, now: Now) -> None:
    """The result could not be bundled: wait for room on the disk, or own up."""
    run = _run(state, event.job_id, event.attempt)
    if run is None:
        return
    if run.stopping == "cancelled":
        _cancelled(state, run, now)
    elif event.passing and run.bundlings < MAX_BUNDLINGS:
        wait_s = backoff_s(run.bundlings, BUNDLE_BASE_S, BUNDLE_CAP_S, state.rng)
        run.bundlings += 1
        state.timers.set(("bundle", run.job_id), now.mono_s + wait_s)
    else:
        why = f"the result could not be bundled: {event.reason}"
        _fail(state, run, why, 0, now, transient=event.passing)


def on_bundle_timer(state: State, job_id: str) -> None:
    """Try again to bundle: there may be room on the disk now."""
    run = state.runs.get(job_id)
    if run is not None:
        state.do(MakeBundle(run.job_id, run.attempt))


def on_cancel(state: State, cancel: Cancel, now: Now) -> None:
    """Stop an attempt, and any earlier one; answer when it does not run here any more."""
    state.waiting = [
        one for one in state.waiting
        if one.job_id != cancel.job_id or one.attempt > cancel.attempt
    ]  # fmt: skip
    state.end(cancel.job_id, cancel.attempt)
    held = state.owed.get(cancel.job_id)
    if held is not None and held.report.attempt <= cancel.attempt and not cancel.keep_finished:
        reports.forget(state, cancel.job_id, cancel.why or "it was called off")
    if state.interrupted.get(cancel.job_id, cancel.attempt + 1) <= cancel.attempt:
        del state.interrupted[cancel.job_id]
    run = state.runs.get(cancel.job_id)
    done = run is not None and run.phase == "bundling" and cancel.keep_finished
    if run is None or run.attempt > cancel.attempt or done:
        _say_stopped(state, cancel.job_id, cancel.attempt, cancel.id)
        return
    if len(run.stop_requests) < 4:
        run.stop_requests.append(cancel.id)
    run.why = cancel.why
    if ("bundle", run.job_id) in state.timers:
        _cancelled(state, run, now)
    elif run.phase == "bundling":
        run.stopping = "cancelled"
    else:
        stop(state, run, "cancelled", cancel.why, now)


def on_release(state: State, release: Release, now: Now) -> None:
    """Give an attempt back; what is over here already is said again."""
    job_id, attempt = release.job_id, release.attempt
    state.waiting = [one for one in state.waiting if (one.job_id, one.attempt) != (job_id, attempt)]
    run, held = state.runs.get(job_id), state.owed.get(job_id)
    if run is not None and run.attempt == attempt:
        if not run.stopping and run.phase != "bundling":
            stop(state, run, "released", release.why, now)
    elif held is not None and held.report.attempt == attempt:
        reports.send(state, job_id, now)
    elif state.interrupted.get(job_id) == attempt:
        pass  # it is given back anyway
    else:
        state.end(job_id, attempt)  # should its assignment still be on the way
        state.report(Released(**state.about(job_id, attempt), reason=release.why))


def stop(state: State, run: Run, how: str, why: str, now: Now) -> None:
    """Ask a trainer to end, and end it after the grace."""
    already, run.stopping, run.why = run.stopping, how, why
    if run.phase == "fetching" or run.is_ready:
        resuming.end(state, run)
        if how == "cancelled":
            _cancelled(state, run, now)
        else:
            _release(state, run, now)
        return
    if already or run.phase == "bundling":
        return
    run.phase = "stopping"
    state.timers.set(("kill", run.job_id), now.mono_s + state.settings.stop_grace_s)
    if run.pid:
        state.do(SignalTrainer(run.job_id, run.attempt, kill=False))
    state.beat_soon(now)


def on_timeout(state: State, job_id: str, now: Now) -> None:
    """The trainer has had its time."""
    run = state.runs.get(job_id)
    if run is not None and not run.stopping:
        why = f"timeout: it ran for longer than {run.assign.timeout_s:g} s (timeout_s)"
        stop(state, run, "over-limit", why, now)


def on_stall(state: State, job_id: str, now: Now) -> None:
    """The trainer may have said nothing for too long."""
    run = state.runs.get(job_id)
    if run is None or run.stopping or run.assign.stall_timeout_s is None:
        return
    due_s = run.heard_s + run.assign.stall_timeout_s
    if now.mono_s < due_s:
        state.timers.set(("stall", job_id), due_s)
        return
    limit_s = run.assign.stall_timeout_s
    why = f"stalled: no output and no progress for {limit_s:g} s (stall_timeout_s)"
    stop(state, run, "over-limit", why, now)


def on_kill_timer(state: State, job_id: str) -> None:
    """The grace is over."""
    run = state.runs.get(job_id)
    if run is not None and run.stopping:
        state.do(SignalTrainer(run.job_id, run.attempt, kill=True))


def _start(state: State, assign: Assign, now: Now) -> None:
    older = state.owed.get(assign.job_id)
    if older is not None:
        reports.forget(state, assign.job_id, reports.ANOTHERS)
    slot = _free_slot(state, assign)
    if slot is None:
        raise AssertionError("the objections have looked for a slot")
    gpu = state.slots[slot] if assign.use_cuda else None
    run = state.runs[assign.job_id] = Run(assign, slot, gpu)
    _accept(state, assign, now)
    resuming.begin(state, run)
    state.beat_soon(now)


def _free_slot(state: State, assign: Assign) -> int | None:
    """Return the free slot that fits best: a CUDA one only for those who use it, if it can be."""
    taken = {run.slot for run in state.runs.values()}
    free = [slot for slot in range(len(state.slots)) if slot not in taken]
    if assign.needs.require_cuda:
        free = [slot for slot in free if _vram_objection(state, slot, assign) is None]
    elif assign.use_cuda:
        free = [
            slot for slot in free
            if state.slots[slot] is None or _vram_objection(state, slot, assign) is None
        ]  # fmt: skip
    wants_gpu = assign.use_cuda
    return min(
        free, key=lambda slot: ((state.slots[slot] is None) == wants_gpu, slot), default=None
    )


def _vram_objection(state: State, slot: int, assign: Assign) -> str | None:
    gpu = state.slots[slot]
    if gpu is None:
        return "needs CUDA; this host has none"
    need_gib = assign.needs.min_vram_gib
    if not need_gib or state.vitals is None:
        return None
    for measured in state.vitals.gpus:
        # Some drivers tell the total only; then that has to do, as it does in the coordinator.
        free_bytes = measured.vram_free_bytes
        known_bytes = measured.vram_total_bytes if free_bytes is None else free_bytes
        if measured.index == gpu and known_bytes is not None:
            known_gib = known_bytes / GIB
            if known_gib >= need_gib:
                return None
            what = "in all" if free_bytes is None else "free"
            return f"needs {need_gib:g} GiB of VRAM; {known_gib:.1f} GiB is {what} on GPU {gpu}"
    return f"needs {need_gib:g} GiB of VRAM; what is free on GPU {gpu} is unknown"


def _slot_objection(state: State, assign: Assign) -> str:
    if len(state.runs) >= len(state.slots):
        return f"all {len(state.slots)} slots are busy"
    found = [_vram_objection(state, slot, assign) for slot in range(len(state.slots))]
    return next((text for text in found if text), "no slot fits")


def _run(state: State, job_id: str, attempt: int) -> Run | None:
    run = state.runs.get(job_id)
    return run if run is not None and run.attempt == attempt else None


def _cancelled(state: State, run: Run, now: Now, artifact_id: str | None = None) -> None:
    _over(state, run, now)
    for request_id in run.stop_requests:
        _say_stopped(state, run.job_id, run.attempt, request_id, run.ran_s)
    state.do(DropCheckpoint(run.job_id))
    reports.clear(state, run.job_id, run.attempt, artifact_id)


def _over(state: State, run: Run, now: Now) -> None:
    del state.runs[run.job_id]
    state.end(run.job_id, run.attempt)
    for timer in ("kill", "bundle", "timeout", "stall", "lease"):
        state.timers.cancel((timer, run.job_id))
    state.beat_soon(now)


def _fail(
    state: State, run: Run, error: str, code: int | None, now: Now, *, transient: bool
) -> None:
    _over(state, run, now)
    report = Failed(
        **state.about(run.job_id, run.attempt, run.assign.receipt), error=error[-16_000:],
        exit_code=code, transient=transient, ran_s=run.ran_s,
    )  # fmt: skip
    reports.owe(state, report, now)


def _error(run: Run, event: TrainerExited) -> str:
    if event.error:
        return event.error
    if run.error:
        return run.error
    code = event.code if event.code is not None else 0
    what = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    if code == SIGKILL:
        what = "killed by signal 9, perhaps for want of memory"
    why = f"the trainer ended without a word of its own ({what})"
    said = [line for line in run.tail[-10:] if line.strip()]
    if not said:
        return why
    why += f"; its last line: {said[-1].strip()}"  # of a retry the first line alone is kept
    return "\n".join([why, "what came before:", *said[:-1]]) if said[:-1] else why


def _accept(state: State, assign: Assign, now: Now) -> None:
    accepted = Accepted(
        **state.about(assign.job_id, assign.attempt, assign.receipt), request_id=assign.id
    )
    state.sent(accepted.id, now)
    state.report(accepted)


def _refuse(state: State, assign: Assign, reasons: tuple[str, ...]) -> None:
    """Refuse an attempt for good: a repeated assignment must not be taken where one was refused."""
    state.end(assign.job_id, assign.attempt)
    state.refused[assign.job_id] = (assign.attempt, reasons)
    while len(state.refused) > MAX_REFUSED:
        del state.refused[next(iter(state.refused))]
    _say_refused(state, assign, reasons)


def _say_refused(state: State, assign: Assign, reasons: tuple[str, ...]) -> None:
    about = state.about(assign.job_id, assign.attempt, assign.receipt)
    state.report(Refused(**about, request_id=assign.id, reasons=reasons))


def _say_started(state: State, run: Run) -> None:
    about = state.about(run.job_id, run.attempt, run.assign.receipt)
    state.report(Started(**about, slot=run.slot, pid=run.pid, resumes=run.resumes))


def _say_stopped(
    state: State, job_id: str, attempt: int, request_id: str, ran_s: float | None = None
) -> None:
    state.report(Stopped(**state.about(job_id, attempt), request_id=request_id, ran_s=ran_s))


def _say_progress(state: State, run: Run) -> None:
    fields = {key: value for key, value in run.progress.items() if value is not None}
    progress = Progress(attempt=run.attempt, **fields)
    state.publish(_progress_topic(state, run), progress, qos=0, retain=True)


def _progress_topic(state: State, run: Run) -> str:
    return state.topics.progress(state.settings.host, run.job_id)
