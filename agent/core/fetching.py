"""How an attempt fetches what the coordinator has for it, one artifact at a time.

It is the chunk stream with the roles turned round: the agent grants, the coordinator sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.core import effects as fx
from agent.core.effects import Part
from agent.core.state import Fetch, Run, State
from broker.clock import Now
from broker.protocol.messages import Grant, Stored
from broker.stream.ranges import RangeSet
from broker.stream.stream import Complete, Receiver, ReceiverEffect, WriteChunk

FETCH_IDLE_S: Final = 60.0


def begin(state: State, run: Run, part: Part, missing: fx.Missing, now: Now) -> None:
    """Ask for what a part lacks."""
    receiver = Receiver(missing.size_bytes, missing.chunk_bytes, RangeSet())
    run.fetch = Fetch(part, missing.artifact_id, receiver)
    _perform(state, run, run.fetch, run.fetch.receiver.ask(now.mono_s), b"")


def on_chunk(state: State, artifact_id: str, index: int, data: bytes, now: Now) -> None:
    """Take a chunk for each attempt that fetches this artifact. Raises `BadStream`.

    An empty one says that the coordinator has no place for this host yet.
    """
    for run in state.runs.values():
        fetch = run.fetch
        if fetch is not None and fetch.artifact_id == artifact_id:
            if not data:
                fetch.receiver.idle_since = now.mono_s
                continue
            receiver, size_bytes = fetch.receiver, len(data)
            _perform(state, run, fetch, receiver.on_chunk(index, size_bytes, now.mono_s), data)
            if run.fetch is not None:
                _perform(state, run, fetch, receiver.on_written(size_bytes, now.mono_s), b"")


def is_given_up(state: State, run: Run, now: Now) -> bool:
    """Ask again for missing chunks; return whether nothing has come for `FETCH_IDLE_S`."""
    fetch = run.fetch
    if fetch is None:
        return False
    if now.mono_s - fetch.receiver.idle_since >= FETCH_IDLE_S:
        return True
    _perform(state, run, fetch, fetch.receiver.on_timer(now.mono_s), b"")
    return False


def end(state: State, run: Run) -> None:
    """Fetch no more, and delete what has come."""
    if run.fetch is not None:
        run.fetch = None
        state.timers.cancel(("fetch", run.job_id))
        state.do(fx.GiveUpFetch(run.job_id, run.attempt))


def _perform(
    state: State, run: Run, fetch: Fetch, effects: Sequence[ReceiverEffect], data: bytes
) -> None:
    topic = state.topics.checkpoint_grant(state.settings.host, fetch.artifact_id)
    for effect in effects:
        match effect:
            case Grant():
                state.publish(topic, effect)
            case WriteChunk(_, offset, begin, end):
                piece = data[begin:end]
                state.do(fx.WriteFetched(run.job_id, run.attempt, fetch.part, offset, piece))
            case Complete():
                run.fetch = None
                state.timers.cancel(("fetch", run.job_id))
                state.publish(topic, Stored())
                what = (run.assign, fetch.part, fetch.artifact_id)
                state.do(fx.InstallPart(run.job_id, run.attempt, *what))
                return
    due_s, patience_s = fetch.receiver.next_deadline(), fetch.receiver.idle_since + FETCH_IDLE_S
    at_s = patience_s if due_s is None else min(due_s, patience_s)
    state.timers.set(("fetch", run.job_id), at_s)
