"""The end of a run: its result or its checkpoint is bundled, and what became of it reported."""

from __future__ import annotations

from typing import Final

from agent.core import effects as fx
from agent.core import output, reports
from agent.core.slots import seat
from agent.core.state import Phase, Run, State, Stop
from broker.clock import Now, backoff_s
from broker.figures import how_ended
from broker.protocol.link_events import Outgoing
from broker.protocol.messages import Assign, Failed, Released, Stopped, Why

BUNDLE_BASE_S: Final = 5.0
BUNDLE_CAP_S: Final = 300.0
MAX_BUNDLINGS: Final = 300  # about a day of a full disk
SIGKILL: Final = -9  # the exit code of who was ended by it; Windows has no such signal
EXIT_USAGE: Final = 2  # of a trainer: bad hyperparameters or data; another attempt is no better
INTERRUPTED: Final = Why(code="interrupted")  # the agent was killed while it ran
UNTOLD: Final = Why(code="untold")


def on_exited(state: State, run: Run, event: fx.TrainerExited, now: Now) -> None:
    """The trainer's process has ended."""
    state.timers.cancel(("kill", run.job_id))
    output.release_held(state, run)
    output.tell(state)  # an attempt's output comes before its end
    run.has_news = False  # told after the end, it would stay on the broker
    if run.began_s is not None:
        run.ran_s = round(now.mono_s - run.began_s, 3)  # bundling and handing over are no training
    if run.progress or run.attempt > 1:  # an earlier agent may have died before it had done so
        topic = state.topics.progress(state.settings.host, run.job_id)
        state.out.append(Outgoing(topic, b"", 0, retain=True))
    if run.stopping is Stop.CANCELLED:
        cancelled(state, run, now)
    elif event.code == 0:
        run.move(Phase.BUNDLING)
        if state.leaving:
            keep(state, run)
        state.do(fx.MakeBundle(run.job_id, run.attempt))
        state.beat_soon(now)
    elif run.stopping is Stop.OVER_LIMIT and run.why is not None:
        _fail(state, run, run.why.code, run.why.text, event.code, now, transient=True)
    elif run.stopping is Stop.RELEASED or event.data_gone:
        # Without its data another host or time may do better.
        said = _error(run, event)[1].splitlines()[0][:500]
        run.end(Stop.RELEASED, Why(code="data", text=said))
        run.move(Phase.GIVING_BACK)
        state.do(fx.BundleCheckpoint(run.job_id, run.attempt))
    else:
        transient = event.transient and event.code != EXIT_USAGE
        _fail(state, run, *_error(run, event), event.code, now, transient=transient)
    seat(state)


def on_bundle_made(state: State, run: Run, event: fx.BundleMade, now: Now) -> None:
    """Report the finished job; its bundle is in the spool."""
    if run.stopping is Stop.CANCELLED:
        cancelled(state, run, now, event.artifact_id)
        return
    _over(state, run, now)
    reports.finished(state, run, event, now)


def on_checkpoint_bundled(state: State, run: Run, event: fx.CheckpointBundled, now: Now) -> None:
    """Give the job back, with the checkpoint that was bundled."""
    if run.stopping is Stop.CANCELLED:
        cancelled(state, run, now, event.artifact_id)
        return
    release(state, run, now, event.artifact_id, event.size_bytes)
    if event.artifact_id is not None and state.leaving:
        state.timers.set(("leave",), now.mono_s + state.settings.handover_grace_s)


def keep(state: State, run: Run) -> None:
    """Keep a result that is not bundled yet for the agent's next process."""
    if run.phase is Phase.BUNDLING and run.stopping is not Stop.CANCELLED and not run.is_kept:
        run.is_kept = True
        state.do(fx.KeepUnbundled(fx.Unbundled(run.assign, run.result, run.ran_s)))


def reload(state: State, left: fx.Left) -> None:
    """Bundle what an earlier process of this agent could not: results, and checkpoints."""
    for one in left.unbundled:
        run = Run(one.assign, None, None, phase=Phase.BUNDLING, is_kept=True)
        run.result, run.ran_s = one.result, one.ran_s
        state.runs[run.job_id] = run
        state.do(fx.MakeBundle(run.job_id, run.attempt))
    for job_id, attempt in left.interrupted:
        # Of its assignment no more is known, nor needed.
        known = Assign(
            name="", job_id=job_id, attempt=attempt, id="-", instance="-", model="unknown"
        )  # fmt: skip
        run = Run(known, None, None, phase=Phase.GIVING_BACK)
        run.end(Stop.RELEASED, INTERRUPTED)
        state.runs[job_id] = run
        state.do(fx.BundleCheckpoint(job_id, attempt))


def release(
    state: State, run: Run, now: Now, artifact_id: str | None = None, size_bytes: int = 0
) -> None:
    """Give the job back, with the checkpoint `artifact_id` if there is one."""
    _over(state, run, now)
    report = Released(
        **state.about_run(run), why=run.why or UNTOLD,
        artifact_id=artifact_id, size_bytes=size_bytes, ran_s=run.ran_s,
        interrupted=run.why is INTERRUPTED,
    )  # fmt: skip
    reports.owe(state, report, now)


def on_bundle_failed(state: State, run: Run, event: fx.BundleFailed, now: Now) -> None:
    """Try again later if the disk may have room then, else fail the job."""
    if run.stopping is Stop.CANCELLED:
        cancelled(state, run, now)
    elif event.passing and run.bundlings < MAX_BUNDLINGS:
        wait_s = backoff_s(run.bundlings, BUNDLE_BASE_S, BUNDLE_CAP_S, state.rng)
        run.bundlings += 1
        run.fault = event.fault
        state.beat_soon(now)
        state.timers.set(("bundle", run.job_id), now.mono_s + wait_s)
    else:
        why = f"the result could not be bundled: {event.reason}"
        _fail(state, run, "unbundled", why, 0, now, transient=event.passing)


def on_bundle_timer(state: State, run: Run, _: Now) -> None:
    """Try again to bundle."""
    state.do(fx.MakeBundle(run.job_id, run.attempt))


def cancelled(state: State, run: Run, now: Now, artifact_id: str | None = None) -> None:
    """Delete everything of a cancelled run; `artifact_id` is a bundle that was made of it."""
    _over(state, run, now)
    for request_id in run.stop_requests:
        say_stopped(state, run.job_id, run.attempt, request_id, run.ran_s)
    state.do(fx.DropCheckpoint(run.job_id))
    reports.clear(state, run.job_id, run.attempt, artifact_id)


def say_stopped(
    state: State, job_id: str, attempt: int, request_id: str, ran_s: float | None = None
) -> None:
    """Answer a cancellation: the attempt does not run here any more."""
    state.report(Stopped(**state.about(job_id, attempt), request_id=request_id, ran_s=ran_s))


def _over(state: State, run: Run, now: Now) -> None:
    del state.runs[run.job_id]
    state.end(run.job_id, run.attempt)
    for timer in ("ahead", "kill", "bundle", "timeout", "stall", "lease"):
        state.timers.cancel((timer, run.job_id))
    seat(state)
    state.beat_soon(now)


def _fail(
    state: State,
    run: Run,
    kind: str | None,
    error: str,
    code: int | None,
    now: Now,
    *,
    transient: bool,
) -> None:
    _over(state, run, now)
    report = Failed(
        **state.about_run(run), error=error[-16_000:], kind=kind,
        exit_code=code, transient=transient, ran_s=run.ran_s,
    )  # fmt: skip
    reports.owe(state, report, now)


def _error(run: Run, event: fx.TrainerExited) -> tuple[str | None, str]:
    """Return the kind of a failure, and its text."""
    if event.error:
        return "not_started", event.error
    if run.error:
        return run.error_kind, run.error
    code = event.code if event.code is not None else 0
    kind = "killed" if code == SIGKILL else "signal" if code < 0 else "silent"
    perhaps = ", perhaps for want of memory," if code == SIGKILL else ""
    why = f"the trainer {how_ended(code)}{perhaps} and reported no error"
    said = [line for line in run.tail[-10:] if line.strip()]
    if not said:
        return kind, why
    why += f"; its last line: {said[-1].strip()}"  # of a retry the first line alone is kept
    return kind, "\n".join([why, "what came before:", *said[:-1]]) if said[:-1] else why
