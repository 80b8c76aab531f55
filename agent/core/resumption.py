"""How an attempt goes on where an earlier one left off, on this host or on another.

A trainer that is asked to end leaves a checkpoint. With the job the agent gives that back as well,
as an artifact, and whoever is given the job next fetches it, unless what it has itself is newer. A
checkpoint saves time and nothing else: whatever goes wrong with one, the job starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.core import effects as fx
from agent.core import output
from agent.core.state import Phase, Run, State
from broker.clock import Now
from broker.protocol.messages import Grant, Stored
from broker.stream.ranges import RangeSet
from broker.stream.stream import Complete, Receiver, ReceiverEffect, WriteChunk

FETCH_IDLE_S: Final = 60.0


def begin(state: State, run: Run) -> None:
    """Start the run's trainer, once the checkpoint that it goes on from is here."""
    checkpoint = run.assign.checkpoint
    if checkpoint is None:
        _start(state, run)
    else:
        state.do(fx.FindCheckpoint(run.job_id, run.attempt, checkpoint.attempt))


def on_found(state: State, run: Run, event: fx.CheckpointFound, now: Now) -> None:
    """Start from a checkpoint that is here, or fetch it."""
    checkpoint = run.assign.checkpoint
    if run.phase is not Phase.FETCHING or checkpoint is None:
        return
    if event.here:
        _start(state, run)
        return
    run.fetch = Receiver(checkpoint.size_bytes, checkpoint.chunk_bytes, RangeSet())
    _perform(state, run, run.fetch.ask(now.mono_s), b"")


def on_chunk(state: State, artifact_id: str, index: int, data: bytes, now: Now) -> None:
    """Take a chunk of a checkpoint. Raises `BadStream` when it does not fit."""
    for run in state.runs.values():
        checkpoint = run.assign.checkpoint
        if run.fetch is not None and checkpoint and checkpoint.artifact_id == artifact_id:
            _perform(state, run, run.fetch.on_chunk(index, len(data), now.mono_s), data)
            if run.fetch is not None:
                _perform(state, run, run.fetch.on_written(len(data), now.mono_s), b"")


def on_timer(state: State, run: Run, now: Now) -> None:
    """Ask again for missing chunks; after `FETCH_IDLE_S` start without the checkpoint."""
    if run.fetch is None:
        return
    if now.mono_s - run.fetch.idle_since < FETCH_IDLE_S:
        _perform(state, run, run.fetch.on_timer(now.mono_s), b"")
        return
    _go_without(state, run, f"nothing came for {FETCH_IDLE_S:.0f} s", now)


def on_installed(state: State, run: Run, event: fx.CheckpointInstalled, now: Now) -> None:
    """Start the trainer, with the installed checkpoint or without one."""
    if run.phase is not Phase.FETCHING:
        return
    if event.error:
        _go_without(state, run, event.error, now)
    else:
        _start(state, run)


def start_if_leased(state: State, run: Run) -> None:
    """Start the trainer once all is here and the coordinator has granted a lease."""
    if run.phase is Phase.READY and run.lease_s:
        run.move(Phase.STARTING)
        state.do(fx.StartTrainer(run.assign, run.slot, run.gpu))


def end(state: State, run: Run) -> None:
    """Give up the fetch of a run that is over before its trainer was started."""
    if run.fetch is not None:
        run.fetch = None
        state.timers.cancel(("fetch", run.job_id))
        state.do(fx.GiveUpFetch(run.job_id, run.attempt))


def _start(state: State, run: Run) -> None:
    run.fetch = None
    run.move(Phase.READY)
    state.timers.cancel(("fetch", run.job_id))
    start_if_leased(state, run)


def _go_without(state: State, run: Run, why: str, now: Now) -> None:
    state.do(fx.GiveUpFetch(run.job_id, run.attempt))
    text = f"the checkpoint could not be fetched ({why}); the job starts anew"
    output.say(state, run, text, now)
    _start(state, run)


def _perform(state: State, run: Run, effects: Sequence[ReceiverEffect], data: bytes) -> None:
    checkpoint = run.assign.checkpoint
    if checkpoint is None or run.fetch is None:
        return
    host, artifact_id = state.settings.host, checkpoint.artifact_id
    for effect in effects:
        match effect:
            case Grant():
                state.publish(state.topics.checkpoint_grant(host, artifact_id), effect)
            case WriteChunk(_, offset, begin, end):
                piece = data[begin:end]
                state.do(fx.WriteFetched(run.job_id, run.attempt, offset, piece))
            case Complete():
                run.fetch = None
                state.timers.cancel(("fetch", run.job_id))
                made_by = checkpoint.attempt
                state.publish(state.topics.checkpoint_grant(host, artifact_id), Stored())
                state.do(fx.InstallCheckpoint(run.job_id, run.attempt, artifact_id, made_by))
                return
    deadline_s, patience_s = run.fetch.next_deadline(), run.fetch.idle_since + FETCH_IDLE_S
    due_s = patience_s if deadline_s is None else min(deadline_s, patience_s)
    state.timers.set(("fetch", run.job_id), due_s)
