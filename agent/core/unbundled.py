"""Results that are not bundled when their agent has to end: its next process bundles them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.core.effects import KeepUnbundled, MakeBundle, Unbundled
from agent.core.state import Run, State


def keep(state: State, run: Run) -> None:
    """Have a result outlive this process."""
    if run.is_done and run.stopping != "cancelled" and not run.is_kept:
        run.is_kept = True
        state.do(KeepUnbundled(Unbundled(run.assign, run.result, run.ran_s)))


def kept(state: State) -> Iterator[Run]:
    """Yield those whose result the next process will find."""
    return (run for run in state.runs.values() if run.is_kept and run.stopping != "cancelled")


def reload(state: State, unbundled: Iterable[Unbundled]) -> None:
    """Bundle what an earlier process of this agent could not; it takes a slot as it did there."""
    for slot, left in enumerate(unbundled):
        run = Run(left.assign, slot, None, phase="bundling", is_done=True, is_kept=True)
        run.result, run.ran_s = left.result, left.ran_s
        state.runs[run.job_id] = run
        state.do(MakeBundle(run.job_id, run.attempt))
