"""From an assignment to the end of its trainer: refusals, progress, stopping."""

from __future__ import annotations

from typing import Final

from agent.core import endings, fetching, output, readiness, reports
from agent.core.effects import Measure, SignalTrainer, TrainerLine, TrainerStarted, Vitals
from agent.core.output import understand
from agent.core.slots import AHEAD_S, gpu_of, place
from agent.core.state import ENDING, UNSTARTED, Phase, Run, State, Stop
from broker.clock import Now
from broker.protocol import messages as m

MAX_WAITING: Final = 32
MAX_REFUSED: Final = 256
FRESH_S: Final = 0.5  # for so long what was measured may speak for an assignment
TAIL_LINES: Final = 30


def on_assign(state: State, assign: m.Assign, now: Now) -> None:
    """Answer an assignment that is known already; judge a new one by fresh figures."""
    run = state.runs.get(assign.job_id)
    if run is not None and run.attempt == assign.attempt:
        _accept(state, assign, now)
        if run.pid:
            _say_started(state, run, now)
        return
    held = state.owed.get(assign.job_id)
    if held is not None and held.report.attempt == assign.attempt:
        reports.send(state, assign.job_id, now)
        return
    if assign.attempt <= state.ended.get(assign.job_id, 0):
        attempt, reasons = state.refused.get(assign.job_id, (0, ()))
        over = (m.Objection(code="over"),)
        _say_refused(state, assign, reasons if attempt == assign.attempt else over)
    elif any(one.job_id == assign.job_id for one in state.waiting):
        pass  # it is being judged
    elif len(state.waiting) >= MAX_WAITING:
        _refuse(state, assign, (m.Objection(code="many"),))
    elif now.mono_s < state.fresh_until_s and not isinstance(
        found := place(state, assign), tuple
    ):  # fmt: skip
        _start(state, assign, found, now)
    else:
        state.waiting.append(assign)
        state.do(Measure())


def on_vitals(state: State, vitals: Vitals, now: Now) -> None:
    """Judge the assignments that wait for fresh figures."""
    state.vitals, state.fresh_until_s = vitals, now.mono_s + FRESH_S
    waiting, state.waiting = state.waiting, []
    for assign in waiting:
        found = place(state, assign)
        if isinstance(found, tuple):
            told = (m.Objection(code=one.code, **one.figures) for one in found)
            _refuse(state, assign, tuple(told))
        else:
            _start(state, assign, found, now)


def on_started(state: State, run: Run, event: TrainerStarted, now: Now) -> None:
    """Report that the trainer's process runs, and set its limits."""
    run.pid, run.resumes, run.began_s = event.pid, event.resumes, now.mono_s
    if run.stopping:
        state.do(SignalTrainer(run.job_id, run.attempt, kill=False))
        return
    if run.phase is Phase.STARTING:  # else it has ended before we heard that it had begun
        run.move(Phase.RUNNING)
        run.heard_s = now.mono_s
        if run.assign.timeout_s is not None:
            state.timers.set(("timeout", run.job_id), now.mono_s + run.assign.timeout_s)
        if run.assign.stall_timeout_s is not None:
            state.timers.set(("stall", run.job_id), now.mono_s + run.assign.stall_timeout_s)
    _say_started(state, run, now)
    state.beat_soon(now)


def on_line(state: State, run: Run, event: TrainerLine, now: Now) -> None:
    """Take a line of the trainer's output."""
    run.heard_s = now.mono_s
    line = understand(event.line)
    run.tail = [*run.tail[-(TAIL_LINES - 1) :], line.text]
    if line.error:
        run.error, run.error_kind = line.error, line.kind
    run.result = line.result if line.result is not None else run.result
    if line.unread:  # what it printed before counts
        run.result = output.marked(run.result or {}, "metrics_unread")
    if line.progress is not None or line.phase is not None:
        # How long it would take was said of the phase before.
        run.progress |= line.progress or {"phase": line.phase, "eta_s": None}
        if run.progress.get("first_epoch") is None:
            run.progress["first_epoch"] = run.progress.get("epoch")
        run.has_news = True
    output.say(state, run, line.text, now)


def on_cancel(state: State, cancel: m.Cancel, now: Now) -> None:
    """Stop an attempt, and any earlier one; answer when it does not run here any more."""
    state.waiting = [
        one for one in state.waiting
        if one.job_id != cancel.job_id or one.attempt > cancel.attempt
    ]  # fmt: skip
    state.end(cancel.job_id, cancel.attempt)
    held = state.owed.get(cancel.job_id)
    if held is not None and held.report.attempt <= cancel.attempt and not cancel.keep_finished:
        reports.forget(state, cancel.job_id, f"the job is {cancel.why}")
    run = state.runs.get(cancel.job_id)
    over = run is not None and run.phase in ENDING and cancel.keep_finished
    if run is None or run.attempt > cancel.attempt or over:
        endings.say_stopped(state, cancel.job_id, cancel.attempt, cancel.id)
        return
    if len(run.stop_requests) < 4:
        run.stop_requests.append(cancel.id)
    if ("bundle", run.job_id) in state.timers:
        endings.cancelled(state, run, now)
    else:
        stop(state, run, Stop.CANCELLED, m.Why(code=cancel.why), now)


def on_release(state: State, release: m.Release, now: Now) -> None:
    """Give an attempt back, or repeat the report of one that is over."""
    job_id, attempt = release.job_id, release.attempt
    state.waiting = [one for one in state.waiting if (one.job_id, one.attempt) != (job_id, attempt)]
    run, held = state.runs.get(job_id), state.owed.get(job_id)
    if run is not None and run.attempt == attempt:
        give_back(state, run, release.why, now)
    elif held is not None and held.report.attempt == attempt:
        reports.send(state, job_id, now)
    else:
        state.end(job_id, attempt)  # should its assignment still be on the way
        state.report(m.Released(**state.about(job_id, attempt), why=release.why))


def give_back(state: State, run: Run, why: m.Why, now: Now) -> None:
    """Stop a run that may go on elsewhere, unless it is ending anyway."""
    if run.stopping is None and run.phase not in ENDING:
        stop(state, run, Stop.RELEASED, why, now)


def stop(state: State, run: Run, how: Stop, why: m.Why, now: Now) -> None:
    """Ask a trainer to end, and end it after the grace; one that has not been started is over."""
    run.end(how, why)
    if run.phase in UNSTARTED:
        fetching.end(state, run)
        if run.stopping is Stop.CANCELLED:
            endings.cancelled(state, run, now)
        else:
            endings.release(state, run, now)
    elif run.phase in {Phase.STARTING, Phase.RUNNING}:
        run.move(Phase.STOPPING)
        state.timers.set(("kill", run.job_id), now.mono_s + state.settings.stop_grace_s)
        if run.pid:
            state.do(SignalTrainer(run.job_id, run.attempt, kill=False))
        state.beat_soon(now)


def on_timeout(state: State, run: Run, now: Now) -> None:
    """Stop a trainer that has reached its time limit."""
    if run.stopping is None:
        text = f"timeout: it ran for longer than {run.assign.timeout_s:g} s (timeout_s)"
        stop(state, run, Stop.OVER_LIMIT, m.Why(code="timeout", text=text), now)


def on_stall(state: State, run: Run, now: Now) -> None:
    """Stop a trainer that has printed nothing for too long."""
    limit_s = run.assign.stall_timeout_s
    if run.stopping or limit_s is None:
        return
    if now.mono_s < run.heard_s + limit_s:
        state.timers.set(("stall", run.job_id), run.heard_s + limit_s)
        return
    text = f"stalled: no output and no progress for {limit_s:g} s (stall_timeout_s)"
    stop(state, run, Stop.OVER_LIMIT, m.Why(code="stalled", text=text), now)


def on_ahead_timer(state: State, run: Run, now: Now) -> None:
    """Give a run back that has waited for a slot for too long: another host may have one."""
    stop(state, run, Stop.RELEASED, m.Why(code="busy"), now)


def on_kill_timer(state: State, run: Run, _: Now) -> None:
    """Kill a trainer whose grace is over."""
    if run.stopping:
        state.do(SignalTrainer(run.job_id, run.attempt, kill=True))


def _start(state: State, assign: m.Assign, slot: int | None, now: Now) -> None:
    older = state.owed.get(assign.job_id)
    if older is not None:
        reports.forget(state, assign.job_id, reports.ANOTHERS)
    gpu = None if slot is None else gpu_of(state, assign, slot)
    run = state.runs[assign.job_id] = Run(assign, slot, gpu)
    if slot is None:
        state.timers.set(("ahead", run.job_id), now.mono_s + AHEAD_S)
    _accept(state, assign, now)
    readiness.begin(state, run, now)
    state.beat_soon(now)


def _accept(state: State, assign: m.Assign, now: Now) -> None:
    accepted = m.Accepted(
        **state.about(assign.job_id, assign.attempt, assign.receipt), request_id=assign.id
    )
    state.sent(accepted.id, now)
    run = state.runs.get(assign.job_id)
    if run is not None and run.slot is None:
        state.report_soon(accepted, now)
    else:
        state.report(accepted)


def _refuse(state: State, assign: m.Assign, reasons: tuple[m.Objection, ...]) -> None:
    """Refuse an attempt for good: a repeated assignment must not be taken where one was refused."""
    state.end(assign.job_id, assign.attempt)
    state.refused[assign.job_id] = (assign.attempt, reasons)
    while len(state.refused) > MAX_REFUSED:
        del state.refused[next(iter(state.refused))]
    _say_refused(state, assign, reasons)


def _say_refused(state: State, assign: m.Assign, reasons: tuple[m.Objection, ...]) -> None:
    about = state.about(assign.job_id, assign.attempt, assign.receipt)
    state.report(m.Refused(**about, request_id=assign.id, reasons=reasons))


def _say_started(state: State, run: Run, now: Now) -> None:
    took_s = run.took_s
    state.report_soon(
        m.Started(
            **state.about_run(run), slot=run.slot, pid=run.pid, resumes=run.resumes,
            fetched_bytes=run.fetched_bytes, fetch_s=round(took_s[Phase.FETCHING], 3),
            prepare_s=round(took_s[Phase.PREPARING], 3),
        ),
        now,
    )  # fmt: skip
