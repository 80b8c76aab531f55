"""Which slot an assignment may have now, and why it may have none."""

from __future__ import annotations

from typing import Final

from agent.core.state import State
from broker.protocol.messages import Assign, Objection, lacking

GIB: Final = 1024**3


def objections(state: State, assign: Assign) -> tuple[Objection, ...]:
    """Return every reason, with figures, why this host cannot start the assignment now."""
    capability, vitals, needs = state.capability, state.vitals, assign.needs
    if capability is None or vitals is None:
        return (Objection(code="probing"),)
    found: list[Objection] = []
    if state.leaving:
        found.append(Objection(code="leaving"))
    if state.refuses:
        found.append(Objection(code="refuses", said=state.refuses))
    if assign.job_id in state.runs:
        found.append(Objection(code="stopping"))
    if assign.job_id in state.interrupted:
        found.append(Objection(code="bundling"))
    if assign.model not in capability.trainers:
        found.append(Objection(code="no-trainer", said=assign.model))
    if capability.data_id is None:
        found.append(Objection(code="no-data"))
    if (cores := needs.min_cores) and cores > capability.physical_cores:
        available = capability.physical_cores
        found.append(Objection(code="cores", needed=cores, available=available))
    ram_gib = vitals.ram_available_bytes / GIB
    if needs.min_ram_gib and needs.min_ram_gib > ram_gib:
        found.append(Objection(code="ram-now", needed=needs.min_ram_gib, available=ram_gib))
    found += lacking(needs, vitals)
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


def _vram_objection(state: State, slot: int, assign: Assign) -> Objection | None:
    gpu = state.slots[slot]
    if gpu is None:
        return Objection(code="no-cuda")
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
            code = "vram" if free_bytes is None else "vram-now"
            return Objection(code=code, needed=need_gib, available=known_gib)
    return Objection(code="vram-unknown", needed=need_gib)


def _slot_objection(state: State, assign: Assign) -> Objection:
    if len(state.runs) >= len(state.slots):
        return Objection(code="busy", available=len(state.slots))
    found = [_vram_objection(state, slot, assign) for slot in range(len(state.slots))]
    return next((one for one in found if one), Objection(code="no-slot"))
