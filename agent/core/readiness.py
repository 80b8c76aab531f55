"""Which parts an attempt needs on this host, one after the other, and the start of its trainer."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core import effects as fx
from agent.core.effects import Part
from agent.core.state import Phase, Run, State
from broker.clock import Now
from broker.protocol.messages import Assign


def begin(state: State, run: Run, now: Now) -> None:
    """Look for all that the attempt needs; then start its trainer."""
    run.parts, run.since_s = [*_parts(run.assign)], now.mono_s
    find(state, run, now)


def find(state: State, run: Run, now: Now) -> None:
    """Look for the first of the parts that are left; without one, the trainer may start."""
    if not run.parts:
        run.go_on(Phase.READY, now)
        start_if_leased(state, run)
        return
    if run.parts[0] is Part.ENVIRONMENT:
        run.go_on(Phase.PREPARING, now)
        state.beat_soon(now)
    state.do(fx.FindPart(run.job_id, run.attempt, run.assign, run.parts[0]))


def start_if_leased(state: State, run: Run) -> None:
    """Start the trainer once all is here, a slot too, and the coordinator has granted a lease."""
    if run.phase is Phase.READY and run.lease_s and run.slot is not None:
        run.move(Phase.STARTING)
        state.do(fx.StartTrainer(run.assign, run.slot, run.gpu))


def _parts(assign: Assign) -> Iterator[Part]:
    """Yield what an attempt needs, in order: first whether its program may run here at all."""
    if assign.program is not None:
        yield Part.PROGRAM
        if assign.program.environment != "none":
            yield Part.ENVIRONMENT
    if assign.data:
        yield Part.DATA
    if assign.inputs:
        yield Part.INPUTS
    if assign.checkpoint is not None:
        yield Part.CHECKPOINT
