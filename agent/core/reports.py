"""What the agent owes the coordinator: reports until they are noted, bundles until stored.

A report announces the bundle that goes with it. The coordinator's first grant says that it is
wanted, and `noted` that it is stored.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from agent.core import effects as fx
from agent.core.state import Owed, Run, State, Stop
from broker.clock import Now, backoff_s
from broker.protocol import messages as m
from broker.stream.stream import SendChunk, Sender, chunk_size

RESEND_BASE_S: Final = 2.0
RESEND_CAP_S: Final = 30.0
REFUSED_CAP_S: Final = 120.0
SILENCE_S: Final = 5.0  # after the last grant; then the artifact is announced again
MAX_WITH_BUNDLE: Final = 256
CUTS: Final = 2
ANOTHERS: Final = "the job is another attempt's by now"
_UNFINISHED: Final = frozenset({"pending", "claimed", "running"})


def finished(state: State, run: Run, made: fx.BundleMade, now: Now) -> None:
    """Report a finished job, whose bundle is in the spool."""
    report = m.Finished(
        **state.about_run(run),
        artifact_id=made.artifact_id,
        size_bytes=made.size_bytes,
        metrics=run.result or {},
        ran_s=run.ran_s,
    )
    owe(state, report, now, made.data)


def owe(
    state: State, report: m.Finished | m.Failed | m.Released, now: Now, data: bytes = b""
) -> None:  # fmt: skip
    """Send a report, again and again until it is noted; keep it on disk if work would be lost.

    `data` is the bundle, if it is small.
    """
    state.owed[report.job_id] = Owed(report, _in_report(state, data))
    if not isinstance(report, m.Released):
        state.do(fx.SpoolReport(report, data))
    send(state, report.job_id, now)


def _in_report(state: State, data: bytes) -> str:
    """Return a small bundle in base64, to travel with its report; empty if it is too large."""
    bundle = base64.b64encode(data).decode()
    others = sum(bool(owed.bundle) for owed in state.owed.values())
    fits = len(bundle) <= state.settings.chunk_bytes and others < MAX_WITH_BUNDLE
    return bundle if fits else ""


def reload(state: State, left: fx.Left) -> None:
    """Take over the reports that an earlier process of this agent has left in the spool."""
    for report in left.reports:
        state.owed[report.job_id] = Owed(report)
        state.end(report.job_id, report.attempt)


def results(state: State) -> tuple[m.OwedResult, ...]:
    """Return the results that wait here, as many as fit into a goodbye."""
    found = [
        (report.job_id, report.attempt)
        for report in (owed.report for owed in state.owed.values())
        if isinstance(report, m.Finished)
    ]
    found += [
        (run.job_id, run.attempt)
        for run in state.runs.values()
        if run.is_kept and run.stopping is not Stop.CANCELLED
    ]
    return tuple(
        m.OwedResult(job_id=job, attempt=attempt) for job, attempt in found[: m.MAX_LISTED]
    )


def send(state: State, job_id: str, now: Now) -> None:
    """Send one report, and set the time to send it again; an upload begins anew with its answer."""
    owed = state.owed.get(job_id)
    if owed is None:
        return
    _end_upload(state, job_id, owed)
    if state.connected:
        update: dict[str, object] = {
            "session": state.session,
            "instance": state.settings.instance,
        }
        if not isinstance(owed.report, m.Failed):
            update["chunk_bytes"] = _chunk_bytes(state, owed.report)
        if owed.bundle:
            update["bundle"] = owed.bundle
        state.report(owed.report.model_copy(update=update))
    wait_s = backoff_s(owed.sent, RESEND_BASE_S, RESEND_CAP_S, state.rng)
    owed.sent += 1
    state.timers.set(("report", job_id), now.mono_s + wait_s)


def start_over(state: State, now: Now) -> None:
    """Report everything again: the connection or the coordinator is new."""
    for job_id, owed in state.owed.items():
        owed.sent = 0
        send(state, job_id, now)


def on_disconnected(state: State) -> None:
    """The connection is gone: maybe a broker that takes no packets of the size just tried.

    Once may be chance. After the second time at the same size it is not tried again.
    """
    for owed in state.owed.values():
        got_through = None if owed.sender is None else owed.sender.reaching()
        if got_through is not None:
            state.cut_at_bytes[got_through] += 1
            if state.cut_at_bytes[got_through] >= CUTS:
                state.message_bytes = min(state.message_bytes, got_through)


def on_noted(state: State, noted: m.Noted, now: Now) -> None:
    """Forget a report that the coordinator has taken, or does not want."""
    owed = state.owed.get(noted.job_id)
    if owed is None or owed.report.id != noted.report_id:
        return
    if not isinstance(owed.report, m.Released) and noted.state not in _UNFINISHED:
        state.do(fx.DropCheckpoint(noted.job_id))
    forget(state, noted.job_id, _why_not_taken(noted))
    state.beat_soon(now)
    _announce_next(state, now)


def on_grant(state: State, artifact_id: str, grant: m.GrantMessage, now: Now) -> None:
    """Send what the receiver lacks, or look into why it does not take the bundle.

    A grant names an artifact, which several jobs may have made: it is sent for the first of them.
    Only `noted` lets a bundle be put away.
    """
    found = [job_id for job_id, owed in state.owed.items() if owed.artifact_id == artifact_id]
    if not found or state.owed[found[0]].checking:
        return
    job_id, owed = found[0], state.owed[found[0]]
    if isinstance(grant, m.Rejected):
        _check(state, job_id, owed, now)
    elif isinstance(grant, m.Grant) and not isinstance(owed.report, m.Failed):
        chunk_bytes = _chunk_bytes(state, owed.report)
        sender = owed.sender or Sender(owed.report.size_bytes, chunk_bytes, state.message_bytes)
        chunks = sender.on_grant(grant, now.mono_s)  # a senseless grant changes nothing
        if owed.sender is None:
            state.beat_soon(now)
        owed.sender, owed.bundle, owed.sent = sender, "", 0
        state.timers.set(("report", job_id), now.mono_s + SILENCE_S)
        _send_chunks(state, job_id, sender, chunks)


def _announce_next(state: State, now: Now) -> None:
    """An upload has ended: the coordinator takes few at once of a host, and has room for one."""
    for job_id, owed in state.owed.items():
        is_idle = owed.sender is None and not owed.checking and not owed.refusals
        if is_idle and owed.artifact_id is not None and not owed.bundle:
            send(state, job_id, now)
            return


def on_upload_timer(state: State, job_id: str, now: Now) -> None:
    """Send again what may be lost."""
    owed = state.owed.get(job_id)
    if owed is not None and owed.sender is not None:
        _send_chunks(state, job_id, owed.sender, owed.sender.on_timer(now.mono_s))


def on_checked(state: State, event: fx.BundleChecked, now: Now) -> None:
    """Report a refused bundle again if it is whole; fail the job if it is damaged."""
    owed = state.owed.get(event.job_id)
    if owed is None or owed.report.attempt != event.attempt:
        return
    owed.checking = False
    if event.whole:
        # The other side could not take it: its disk may be full for long.
        wait_s = backoff_s(owed.refusals, RESEND_BASE_S, REFUSED_CAP_S, state.rng)
        owed.refusals += 1
        state.timers.set(("report", event.job_id), now.mono_s + wait_s)
        return
    forget(state, event.job_id)
    about = state.about(event.job_id, event.attempt, owed.report.receipt)
    about["ran_s"] = owed.report.ran_s
    if isinstance(owed.report, m.Released):
        owe(state, m.Released(**about, why=owed.report.why), now)
        return
    error = "the finished bundle was damaged on this host's disk before it was handed over"
    owe(state, m.Failed(**about, error=error, kind="damaged"), now)


def on_unread(state: State, event: fx.BundleUnread, now: Now) -> None:
    """Check a bundle of which the disk could not read a piece."""
    for job_id, owed in list(state.owed.items()):
        if owed.artifact_id == event.artifact_id and owed.sender is not None:
            _check(state, job_id, owed, now)


def forget(state: State, job_id: str, not_taken: str = "") -> None:
    """Forget what was owed for a job, on disk as well; `not_taken` is why it was refused."""
    owed = state.owed.pop(job_id)
    state.timers.cancel(("report", job_id))
    state.timers.cancel(("upload", job_id))
    state.end(job_id, owed.report.attempt)
    what = "result" if isinstance(owed.report, m.Finished) else "report"
    in_vain = f"its {what} was not taken: {not_taken}" if not_taken else ""
    clear(state, job_id, owed.report.attempt, owed.artifact_id, in_vain)


def clear(
    state: State, job_id: str, attempt: int, artifact_id: str | None, in_vain: str = ""
) -> None:
    """Delete what there is of an attempt; a bundle that another job owes as well stays.

    `in_vain` says so of what was finished, and why.
    """
    if any(other.artifact_id == artifact_id for other in state.owed.values()):
        artifact_id = None
    state.do(fx.ClearJob(job_id, attempt, artifact_id, in_vain))


def _why_not_taken(noted: m.Noted) -> str:
    """Return why a report was not taken; empty if it was."""
    if noted.verdict != "superseded":
        return ""
    if noted.state is None:
        return "the coordinator does not know the job"
    if noted.state in _UNFINISHED:
        return ANOTHERS
    return f"the job is {noted.state} already"


def _chunk_bytes(state: State, report: m.Finished | m.Released) -> int:
    return chunk_size(report.size_bytes, state.settings.chunk_bytes)


def _send_chunks(state: State, job_id: str, sender: Sender, chunks: Sequence[SendChunk]) -> None:
    artifact_id = state.owed[job_id].artifact_id
    if artifact_id is None:
        raise AssertionError("nothing is uploaded without an artifact")
    for chunk in chunks:
        state.do(fx.SendChunk(artifact_id, chunk.index, chunk.offset, chunk.length))
    deadline_s = sender.next_deadline()
    if deadline_s is not None:
        state.timers.set(("upload", job_id), deadline_s)


def _end_upload(state: State, job_id: str, owed: Owed) -> None:
    owed.sender = None
    state.timers.cancel(("upload", job_id))


def _check(state: State, job_id: str, owed: Owed, now: Now) -> None:
    """Have a bundle hashed that the coordinator refuses, or that the disk does not read."""
    if owed.checking or owed.artifact_id is None:
        return
    _end_upload(state, job_id, owed)
    state.timers.cancel(("report", job_id))
    owed.checking = True
    state.do(fx.CheckBundle(job_id, owed.report.attempt, owed.artifact_id))
    _announce_next(state, now)
