"""Which slot an assignment may have now, and why it may have none."""

from __future__ import annotations

from typing import Final

from agent.core.state import State
from broker.protocol.messages import Assign

GIB: Final = 1024**3


def objections(state: State, assign: Assign) -> tuple[str, ...]:
    """Return every reason, with figures, why this host cannot start the assignment now."""
    capability, vitals = state.capability, state.vitals
    if capability is None or vitals is None:
        return ("this host is still being probed",)
    found: list[str] = []
    if state.leaving:
        found.append("this agent is shutting down")
    if state.refuses:
        found.append(state.refuses)
    if assign.job_id in state.runs:
        found.append(f"attempt {state.runs[assign.job_id].attempt} of it is still stopping here")
    if assign.job_id in state.interrupted:
        found.append("the checkpoint of an earlier attempt of it is being bundled here")
    if assign.model not in capability.trainers:
        found.append(f"has no trainer for {assign.model!r}")
    if capability.data_id is None:
        found.append("has no prepared data")
    if (cores := assign.needs.min_cores) and cores > capability.physical_cores:
        found.append(f"needs {cores} cores; this host has {capability.physical_cores}")
    ram_gib = vitals.ram_available_bytes / GIB
    if (need_gib := assign.needs.min_ram_gib) and need_gib > ram_gib:
        found.append(f"needs {need_gib:g} GiB of RAM; {ram_gib:.1f} GiB is available")
    if free_slot(state, assign) is None:
        found.append(_slot_objection(state, assign))
    return tuple(found)


def free_slot(state: State, assign: Assign) -> int | None:
    """Return the free slot that fits best: a CUDA one only for those who use it, if it can be."""
    taken = {run.slot for run in state.runs.values()}
    free = [slot for slot in range(len(state.slots)) if slot not in taken]
    if assign.needs.require_cuda:
        free = [slot for slot in free if _vram_objection(state, slot, assign) is None]
    elif assign.use_cuda:
        free = [
            slot for slot in free
            if state.slots[slot] is None or _vram_objection(state, slot, assign) is None
        ]  # fmt: skip
    wants_gpu = assign.use_cuda
    return min(
        free, key=lambda slot: ((state.slots[slot] is None) == wants_gpu, slot), default=None
    )


def _vram_objection(state: State, slot: int, assign: Assign) -> str | None:
    gpu = state.slots[slot]
    if gpu is None:
        return "needs CUDA; this host has none"
    need_gib = assign.needs.min_vram_gib
    if not need_gib or state.vitals is None:
        return None
    for measured in state.vitals.gpus:
        # Some drivers tell the total only; then that has to do, as it does in the coordinator.
        free_bytes = measured.vram_free_bytes
        known_bytes = measured.vram_total_bytes if free_bytes is None else free_bytes
        if measured.index == gpu and known_bytes is not None:
            known_gib = known_bytes / GIB
            if known_gib >= need_gib:
                return None
            what = "in all" if free_bytes is None else "free"
            return f"needs {need_gib:g} GiB of VRAM; {known_gib:.1f} GiB is {what} on GPU {gpu}"
    return f"needs {need_gib:g} GiB of VRAM; what is free on GPU {gpu} is unknown"


def _slot_objection(state: State, assign: Assign) -> str:
    if len(state.runs) >= len(state.slots):
        return f"all {len(state.slots)} slots are busy"
    found = [_vram_objection(state, slot, assign) for slot in range(len(state.slots))]
    return next((text for text in found if text), "no slot fits")
