"""The program of an attempt: found on this host, or fetched, before its trainer starts.

`broker.protocol.reasons.of_program` has judged whether the owner lets it in; the shell checks its
signature and its hash. What cannot be used here is given back, and costs the job nothing.
"""

from __future__ import annotations

from agent.core import effects as fx
from agent.core import fetching, resumption, runs
from agent.core.state import Phase, Run, State, Stop
from broker.clock import Now
from broker.protocol.messages import Why
from broker.stream.stream import chunk_size


def on_found(state: State, run: Run, event: fx.ProgramFound, now: Now) -> None:
    """Go on with a program that is here and may be used; fetch it, or give the job back."""
    program = run.assign.program
    if run.phase is not Phase.FETCHING or program is None:
        return
    if event.error:
        _give_back(state, run, event.error, now)
    elif event.here and program.environment == "none":
        resumption.find_checkpoint(state, run)
    elif event.here:
        run.move(Phase.PREPARING)
        state.do(fx.PrepareEnvironment(run.job_id, run.attempt, program.digest))
        state.beat_soon(now)
    else:
        size = program.size_bytes, chunk_size(program.size_bytes)
        fetching.begin(state, run, program.digest, size, now, is_program=True)


def on_environment(state: State, run: Run, event: fx.EnvironmentReady, now: Now) -> None:
    """Go on once its packages are installed; give the job back where they cannot be."""
    if run.phase is not Phase.PREPARING:
        return
    if event.error:
        _give_back(state, run, event.error, now)
        return
    run.move(Phase.FETCHING)
    resumption.find_checkpoint(state, run)


def on_fetch_timer(state: State, run: Run, now: Now) -> None:
    """Ask again for what is missing; go without a checkpoint that does not come."""
    if run.fetch is None or not fetching.is_given_up(state, run, now):
        return
    why = f"nothing came for {fetching.FETCH_IDLE_S:.0f} s"
    if run.fetch.is_program:
        _give_back(state, run, why, now)
    else:
        resumption.go_without(state, run, why, now)


def _give_back(state: State, run: Run, why: str, now: Now) -> None:
    runs.stop(state, run, Stop.RELEASED, Why(code="program", text=why[:500]), now)
