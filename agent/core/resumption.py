"""How an attempt goes on where an earlier one left off, on this host or on another.

A trainer that is asked to end leaves a checkpoint. With the job the agent gives that back as well,
as an artifact, and whoever is given the job next fetches it, unless what it has itself is newer. A
checkpoint saves time and nothing else: whatever goes wrong with one, the job starts anew.
"""

from __future__ import annotations

from agent.core import effects as fx
from agent.core import fetching, output
from agent.core.state import Phase, Run, State
from broker.clock import Now


def begin(state: State, run: Run) -> None:
    """Start the run's trainer, once its program and its checkpoint are here."""
    if run.assign.program is not None:
        state.do(fx.FindProgram(run.job_id, run.attempt, run.assign))
    else:
        find_checkpoint(state, run)


def find_checkpoint(state: State, run: Run) -> None:
    """Look for the checkpoint that it goes on from, if there is one."""
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
    size = checkpoint.size_bytes, checkpoint.chunk_bytes
    fetching.begin(state, run, checkpoint.artifact_id, size, now, is_program=False)


def on_installed(state: State, run: Run, event: fx.CheckpointInstalled, now: Now) -> None:
    """Start the trainer, with the installed checkpoint or without one."""
    if run.phase is not Phase.FETCHING:
        return
    if event.error:
        go_without(state, run, event.error, now)
    else:
        _start(state, run)


def start_if_leased(state: State, run: Run) -> None:
    """Start the trainer once all is here, a slot too, and the coordinator has granted a lease."""
    if run.phase is Phase.READY and run.lease_s and run.slot is not None:
        run.move(Phase.STARTING)
        state.do(fx.StartTrainer(run.assign, run.slot, run.gpu))


def go_without(state: State, run: Run, why: str, now: Now) -> None:
    """Start the trainer anew: the checkpoint could not be fetched."""
    fetching.end(state, run)
    text = f"the checkpoint could not be fetched ({why}); the job starts anew"
    output.say(state, run, text, now)
    _start(state, run)


def _start(state: State, run: Run) -> None:
    run.move(Phase.READY)
    start_if_leased(state, run)
