"""What an attempt needs is found on this host, or fetched, before its trainer starts.

One loop serves each part: the shell looks for what the part lacks; that is fetched and installed,
and the shell looks again. `broker.protocol.reasons.of_program` has judged whether the owner lets
the program in; the shell checks its signature, and the hash of all that comes.

A part that cannot be had gives the job back, and costs it nothing. A checkpoint saves time and
nothing else: without it the job starts anew.
"""

from __future__ import annotations

from typing import Final

from agent.core import effects as fx
from agent.core import fetching, output, readiness, runs
from agent.core.effects import Part
from agent.core.state import Phase, Run, State, Stop
from broker.clock import Now
from broker.protocol.messages import Fault, Why

_CODES: Final = {
    Part.PROGRAM: "program",
    Part.ENVIRONMENT: "program",
    Part.DATA: "dataset",
    Part.INPUTS: "input",
}


def on_found(state: State, run: Run, event: fx.PartFound, now: Now) -> None:
    """Go on with a part that is here; fetch what it lacks; or go on without it."""
    if run.parts[:1] != [event.part]:
        return  # it was given up meanwhile
    if event.fault is not None:
        _go_without(state, run, event.part, event.fault, now)
    elif event.missing is not None:
        fetching.begin(state, run, event.part, event.missing, now)
    else:
        _go_on(state, run, now)


def on_fetch_timer(state: State, run: Run, now: Now) -> None:
    """Ask again for what is missing; give up what does not come."""
    if run.fetch is not None and fetching.is_given_up(state, run, now):
        fault = Fault(code="not-sent", limit_s=fetching.FETCH_IDLE_S)
        _go_without(state, run, run.fetch.part, fault, now)


def _go_on(state: State, run: Run, now: Now) -> None:
    del run.parts[0]
    if run.phase is Phase.PREPARING:
        run.move(Phase.FETCHING)
    readiness.find(state, run, now)


def _go_without(state: State, run: Run, part: Part, fault: Fault, now: Now) -> None:
    if part is not Part.CHECKPOINT:
        runs.stop(state, run, Stop.RELEASED, Why(code=_CODES[part], fault=fault), now)
        return
    fetching.end(state, run)
    text = f"the checkpoint could not be fetched ({fault.code}); the job starts anew"
    output.say(state, run, text, now)
    _go_on(state, run, now)
