"""A month of a fleet that is never idle: nothing in it grows with the time that it has run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from agent.core.state import MAX_ENDED
from coordinator.core.state import MAX_ANSWERS
from tests.simulation.network import Quirks, Weather
from tests.simulation.run import Run
from tests.simulation.scenario import Fault, HostSpec, Scenario, draw

DAY_S = 86_400.0
HOUR_S = 3600.0
# Caches that are full only after longer than a month; and what lies on a disk until it is
# collected, every six hours. A leak of one artifact an hour would come to two million bytes.
BOUNDS = {"answers": MAX_ANSWERS, "ended": MAX_ENDED, "disk": 60_000}


def _scenario(days: int) -> Scenario:
    """Jobs that are requeued at all hours, other bytes each time, and a crash a day."""
    hosts = tuple(HostSpec(f"h{n}", False, 64.0, 1, True) for n in range(2))
    jobs = tuple(
        job for job in draw(6).jobs if job.behaviour == "ok" and not job.spec.needs.require_cuda
    )[:4]
    faults = []
    for hour in range(days * 24):
        name = jobs[hour % len(jobs)].spec.name
        what = {"verb": "requeue", "job": name, "host": "h0", "held": False}
        faults.append(Fault(hour * HOUR_S + 600.0, "operator", (), 0.0, what))
        if hour % 24 == 7:
            who = ("coordinator", "h0", "h1")[hour // 24 % 3]
            faults.append(Fault(hour * HOUR_S, "crash", (who,), 5.0, {"after": 1}))
    return Scenario(1, hosts, jobs, Weather(latency_s=0.01), Quirks(), tuple(faults))


def _sizes(run: Run) -> dict[str, int]:
    """Everything that could grow: disks in bytes, the ledger in rows, memory in entries."""
    assert run.coordinator.shell is not None
    world: Any = run.coordinator.shell.core.world
    sizes = {"coordinator's disk": run.coordinator.machine.disk.total_bytes()}
    events = run.coordinator.ledger
    sizes["events"] = sum(len(events.events(job_id, 10**6)) for job_id in run.checker.rows)
    for name in world.__slots__:
        sizes[f"coordinator's {name}"] = _entries(getattr(world, name))
    for agent in run.agents:
        assert agent.shell is not None
        sizes[f"{agent.host.name}'s disk"] = agent.machine.disk.total_bytes()
        state: Any = agent.shell.core.state
        for name in state.__slots__:
            sizes[f"{agent.host.name}'s {name}"] = _entries(getattr(state, name))
    return sizes


def _entries(thing: Any) -> int:
    if isinstance(thing, str | bytes) or not isinstance(thing, Iterable | dict):
        return 0
    return len(list(thing))


@pytest.mark.slow
def test_a_month_leaves_nothing_behind() -> None:
    run = Run(_scenario(30))
    early: dict[str, int] = {}
    run.timeline.after(10.2 * DAY_S, lambda: early.update(_sizes(run)))
    outcome = run.go()
    assert outcome.violation is None
    assert outcome.virtual_s > 29 * DAY_S
    assert run.checker.completions > 600
    grown = {
        name: (early[name], size)
        for name, size in _sizes(run).items()
        if size > max(1.25 * early[name] + 20, BOUNDS.get(name.rpartition(" ")[2], 0))
    }
    assert not grown
    run.close()
