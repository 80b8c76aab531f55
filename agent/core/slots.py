"""Which slot an assignment may have now, and why it may have none.

If all slots are taken it may wait for the next one, as many as there are slots: what is ready to
start leaves no slot idle for a round trip. After `AHEAD_S` it is given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.core import readiness
from agent.core.state import ENDING, UNSTARTED, Run, State
from broker.protocol.messages import Assign
from broker.protocol.reasons import Reason, figures, of_needs, of_trainer, reason

AHEAD_S: Final = 5.0


def place(state: State, assign: Assign) -> int | tuple[Reason, ...] | None:
    """Return the slot that an assignment gets, none if it waits for one, or every reason against.

    What it needs is judged by the coordinator's own rules, and by fresh figures.
    """
    free = _free(state)
    busy = not free and len(_ahead(state)) >= len(state.slots)
    best, lacks = _best(state, assign, free or [0])
    return (*_of_agent(state, assign, busy=busy), *lacks) or (best if free else None)


def seat(state: State) -> None:
    """Give the free slots to the runs that wait for one, the oldest first."""
    free = _free(state)
    for run in _ahead(state):
        if not free or state.why_refuses():
            return
        slot, lacks = _best(state, run.assign, free)
        if not lacks:
            free.remove(slot)
            state.timers.cancel(("ahead", run.job_id))
            run.slot, run.gpu = slot, gpu_of(state, run.assign, slot)
            readiness.start_if_leased(state, run)


def gpu_of(state: State, assign: Assign, slot: int) -> int | None:
    """Return the CUDA device that goes with a slot, if the job is to use it."""
    return state.slots[slot] if assign.use_cuda else None


def _ahead(state: State) -> list[Run]:
    return [run for run in state.runs.values() if run.slot is None and run.phase in UNSTARTED]


def _free(state: State) -> list[int]:
    taken = {run.slot for run in state.runs.values() if run.phase not in ENDING}
    return [slot for slot in range(len(state.slots)) if slot not in taken]


def _best(state: State, assign: Assign, slots: list[int]) -> tuple[int, tuple[Reason, ...]]:
    """Return the slot that lacks the least of what a job needs, and what it lacks."""
    lacks = {slot: tuple(_of_slot(state, assign, slot)) for slot in slots}
    return min(lacks.items(), key=lambda item: len(item[1]))


def _of_agent(state: State, assign: Assign, *, busy: bool) -> Iterator[Reason]:
    """Yield what the coordinator may not know yet."""
    if busy:
        yield reason("busy", available=len(state.slots))
    if holds := state.why_refuses():
        yield reason("refuses", holds=[one.told() for one in holds])
    if assign.job_id in state.runs:
        yield reason("stopping")


def _of_slot(state: State, assign: Assign, slot: int) -> Iterator[Reason]:
    """Yield what a job lacks that would have this slot, and its CUDA device if it is to use it."""
    if state.capability is None or state.vitals is None:
        return
    gpu = gpu_of(state, assign, slot)
    has = figures(state.capability, state.vitals, () if gpu is None else (gpu,))
    yield from of_needs(
        assign.model, assign.program, assign.needs, has, brings_data=bool(assign.data)
    )
    if assign.program is None:
        yield from of_trainer(assign.model, assign.version, assign.hyper, has.trainers)
