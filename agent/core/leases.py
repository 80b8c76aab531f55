"""The agent's side of a lease: for how long an attempt may run by this machine's own clock.

A lease counts from the moment at which the agent sent what the coordinator answers. The coordinator
counts from the moment at which that came, so the agent's lease ends first. A trainer that may be
stopped is stopped so early that it has ended when the coordinator may give the job to another host.
The end of a connection changes no lease. The coordinator's side is coordinator/core/leases.py. See
docs/reference/protocol.md, "Leases".
"""

from __future__ import annotations

from typing import Final

from agent.core import readiness, runs
from agent.core.state import Run, State, Stop
from broker.clock import Now
from broker.protocol.messages import Lease, Why

LEAST_SLEEP_S: Final = 1.0  # less is how far apart two clocks were read
WHY: Final = Why(code="lease")  # the coordinator has not renewed it in time


def on_lease(state: State, lease: Lease, now: Now) -> None:
    """Extend the leases of the attempts that the coordinator names."""
    sent_s = state.sent_s.get(lease.heard)
    if sent_s is None:
        return  # too old to know when it was sent
    for one in lease.jobs:
        run = state.runs.get(one.job_id)
        if run is not None and run.attempt == one.attempt:
            run.lease_s = lease.lease_s
            run.lease_until_s = max(run.lease_until_s, sent_s + lease.lease_s)
            _watch(state, run)
            readiness.start_if_leased(state, run)
            if run.lease_until_s <= now.mono_s:
                on_timer(state, run, now)


def on_timer(state: State, run: Run, now: Now) -> None:
    """Stop the trainer shortly before its lease ends, and kill it at the end."""
    if not run.lease_s or not _stops(state, run):
        return
    if now.mono_s < _stop_at_s(state, run):
        _watch(state, run)
        return
    runs.stop(state, run, Stop.RELEASED, WHY, now)
    end_s = max(now.mono_s, run.lease_until_s)
    kill_s = state.timers.when_s(("kill", run.job_id))
    if kill_s is not None:
        state.timers.set(("kill", run.job_id), min(kill_s, end_s))


def on_suspended(state: State, suspended_s: float | None, now: Now) -> None:
    """Shorten all leases by the time that the machine slept: its monotonic clock stood still."""
    slept_s = (suspended_s or 0.0) - state.suspended_s
    if slept_s < LEAST_SLEEP_S:
        return
    state.suspended_s += slept_s
    state.sent_s.clear()
    for run in list(state.runs.values()):
        run.lease_until_s -= slept_s
        on_timer(state, run, now)


def _watch(state: State, run: Run) -> None:
    state.timers.set(("lease", run.job_id), _stop_at_s(state, run))


def _stop_at_s(state: State, run: Run) -> float:
    """Return when its trainer is asked to end, so that it has time to leave a checkpoint."""
    return run.lease_until_s - min(2.0 * state.settings.stop_grace_s, run.lease_s / 2.0)


def _stops(state: State, run: Run) -> bool:
    """Whether a trainer is stopped when its lease ends; by default one that can resume is."""
    if run.assign.on_lost is not None:
        return run.assign.on_lost == "stop"
    if run.assign.program is not None:
        return run.assign.program.resumable
    known = state.capability.trainers.get(run.assign.model) if state.capability else None
    return known is not None and known.resumable
