"""A host's own alarm threshold, from its own past scores and without labels.

Hosts differ: a threshold that is right on average is wrong on most. A host's past says where its
own scores lie, whatever is normal there. It is followed online: a window's threshold depends on the
host's earlier windows alone, so the same rule holds in a file, in a stream and in the report.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, log
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.evaluation.report_schema import HostThreshold

# Chosen on simulated telemetry and on half of the hosts of real servers.
_NEEDED: Final = 50  # windows of a host before its own threshold
_MEMORY: Final = 200  # newest windows: hosts drift
_EXCEEDING: Final = 10  # of the memory, at the least
_FACTORS: Final = tuple(2.0 ** (step / 4) for step in range(-8, 15))  # of the target: the rate
_MOST_RATE: Final = 0.7
_NONE: Final = 1e-6  # in place of a rate of zero


@dataclass(frozen=True)
class Track:
    """A host's windows of the test part in order, labelled or not: arrays (n,).

    `own` is the host's own threshold at each window, NaN where its past is too short. `alarm` and
    `decision` are the thresholds of the model that gave the scores (NaN: it has none).
    """

    host: str
    windows: Ints
    label: Ints
    score: Floats
    own: Floats
    alarm: float = np.nan
    decision: float = np.nan


class Past:
    """The newest scores of one host."""

    def __init__(self, procedure: HostThreshold) -> None:
        self._procedure = procedure
        self._newest: deque[float] = deque()
        self._ranked: list[float] = []

    def add(self, score: float) -> None:
        """Take the host's next score; the oldest is forgotten where they are too many."""
        if len(self._newest) == self._procedure.memory:
            del self._ranked[bisect_left(self._ranked, self._newest.popleft())]
        self._newest.append(score)
        insort(self._ranked, score)

    def threshold(self) -> float | None:
        """Return what the next score exceeds with probability `rate`; None while they are too few.

        That holds exactly if the next one is like those before (exchangeable): a conformal
        quantile (Vovk et al., "Algorithmic Learning in a Random World", 2005).
        """
        count = len(self._ranked)
        exceeding = int(self._procedure.rate * (count + 1))
        if count < self._procedure.needed or not exceeding:
            return None
        return self._ranked[count - exceeding]

    def follow(self, scores: Iterable[float]) -> Floats:
        """Take the host's next scores (n,); return the threshold at each, NaN: too few before."""
        found = []
        for score in scores:
            threshold = self.threshold()
            found.append(np.nan if threshold is None else threshold)
            self.add(float(score))
        return np.array(found)


def choose_procedure(tracks: Sequence[Track], target_fpr: float) -> HostThreshold:
    """Return the procedure whose false-positive rate on validation hosts is nearest the target.

    Anomalies are in a host's past, too: if a tenth of all windows are such, and noticed, a tenth
    must exceed the threshold before a normal one does. How many do is learnt where labels are.
    """

    @cache
    def realised(rate: float) -> float | None:
        return _realised(tracks, _procedure(rate))

    def excess(rate: float) -> float:
        return log((realised(rate) or _NONE) / target_fpr)

    if realised(target_fpr) is None:
        return _procedure(target_fpr)
    rates = [target_fpr * factor for factor in _FACTORS if target_fpr * factor <= _MOST_RATE]
    rates = rates or [target_fpr]
    # The false-positive rate grows with the rate.
    above = min(bisect_left(rates, 0.0, key=excess), len(rates) - 1)
    best = min(rates[max(0, above - 1) : above + 1], key=lambda rate: abs(excess(rate)))
    return _procedure(best)


def _procedure(rate: float) -> HostThreshold:
    needed = max(_NEEDED, ceil(1 / rate))
    return HostThreshold(rate=rate, needed=needed, memory=max(_MEMORY, ceil(_EXCEEDING / rate)))


def _realised(tracks: Sequence[Track], procedure: HostThreshold) -> float | None:
    """Return the false-positive rate on all tracks, None where no normal window has a threshold."""
    alarms = []
    for track in tracks:
        own = Past(procedure).follow(track.score)
        alarms.append((track.score > own)[(track.label == 0) & ~np.isnan(own)])
    every = np.concatenate(alarms) if alarms else np.empty(0)
    return float(every.mean()) if len(every) else None
