"""Events: runs of positive windows; whether and when a detector notices them.

An event counts as noticed if any of its windows raises the alarm. That alone is no merit: alarms at
random times notice most long events. So the same alarms, shifted in time, are measured beside them
(point-adjusted scores hide this; Kim et al., "Towards a rigorous evaluation of time-series anomaly
detection", AAAI 2022).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.report_schema import Delay, Events

_SHIFTS: Final = 100
_DAY_S: Final = 86_400


def runs(index: WindowIndex, windows: Ints, chosen: Bools) -> Ints:
    """Return the run (n,) of each of `windows` (n,) that is `chosen` (n,), from 0; -1 elsewhere.

    A run is consecutive in time: another episode, a gap or a window between that is not chosen
    ends it. `windows` ascend.
    """
    episode, start = index.episode[windows], index.start[windows]
    follows = (np.diff(episode) == 0) & (np.diff(start) == index.stride) & chosen[:-1]
    begins = chosen & np.concatenate([[True], ~follows])
    return np.where(chosen, np.cumsum(begins) - 1, -1)


def measure_events(
    index: WindowIndex,
    windows: Ints,
    positive: Bools,
    alarm: Bools,
) -> Events | None:
    """Return how the events of `windows` (n,) were noticed; None where there is none.

    The delay counts from the first window that touches the event; so it is exact to one stride.
    """
    event = runs(index, windows, positive)
    count = int(event.max(initial=-1)) + 1
    if not count:
        return None
    start = index.start[windows]
    begins = _least(event, start, positive, count)
    noticed = _least(event, start, positive & alarm, count)
    found = np.isfinite(noticed)
    delays_s = (noticed - begins)[found] * index.period_s
    false = runs(index, windows, alarm)
    true = np.unique(false[alarm & positive])
    days = len(windows) * index.stride * index.period_s / _DAY_S
    return Events(
        events=count,
        noticed=int(found.sum()),
        recall=float(found.mean()),
        recall_by_chance=_by_chance(event, alarm, count),
        delay_s=_delay(delays_s) if len(delays_s) else None,
        false_alarms_per_day=(int(false.max(initial=-1)) + 1 - len(true)) / days,
    )


def _least(event: Ints, start: Ints, chosen: Bools, count: int) -> Floats:
    """Return the least `start` (count,) of each event's `chosen` windows, infinite without one."""
    least = np.full(count, np.inf)
    np.minimum.at(least, event[chosen], start[chosen])
    return least


def _by_chance(event: Ints, alarm: Bools, count: int) -> float:
    """Return the mean recall of the same alarms, shifted around by evenly spread steps."""
    steps = np.unique(np.linspace(0, len(alarm), _SHIFTS + 2).astype(np.int64)[1:-1])
    shares = [
        len(np.unique(event[np.roll(alarm, int(step)) & (event >= 0)])) / count for step in steps
    ]
    return float(np.mean(shares))


def _delay(delays_s: Floats) -> Delay:
    median, late = np.quantile(delays_s, (0.5, 0.9))
    return Delay(median=float(median), p90=float(late), mean=float(delays_s.mean()))
