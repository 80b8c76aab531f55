"""How long something takes: in three cases, and by what right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

QUANTILES: Final = (0.1, 0.5, 0.9)
NEWEST: Final = 40  # measurements of one kind: what was long ago counts less
FAR: Final = 4.0  # times as many epochs, or as few: a prediction that rests on that says so
HISTORY_HERE: Final = frozenset({"here", "model-here"})
HISTORY_ELSEWHERE: Final = frozenset({"elsewhere", "model-elsewhere"})


class Span(NamedTuple):
    """A quick case, the median, a slow case, in seconds: the 10th, 50th and 90th percentile."""

    quick_s: float
    median_s: float
    slow_s: float


NO_TIME: Final = Span(0.0, 0.0, 0.0)


class Factors(NamedTuple):
    """What a duration is multiplied by in the quick case, the median, the slow case."""

    quick: float
    median: float
    slow: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of numbers in ascending order, by linear interpolation."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


AS_IT_WAS: Final = Factors(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long something takes, and by what right that is said.

    `runs` is how many measured durations it is made of. `basis` is `here` (this model and mode on
    this host), `model-here`, `elsewhere` (on other hosts), `model-elsewhere`, `eta` (the trainer's
    own), `progress` (what is done so far), `overdue` (it has run for longer than any before it) or
    `none` (nothing like it was ever completed). Of the last two the span means nothing. `epochs`
    are the job's, 0 where nobody knows how many; `scaled_from` those of the runs, 0 where they had
    as many.
    """

    span: Span
    runs: int
    basis: str
    model: str = ""
    mode: str = ""
    epochs: float = 0
    scaled_from: float = 0

    @property
    def is_known(self) -> bool:
        """Whether anything speaks for it."""
        return self.basis not in {"none", "overdue"}

    @property
    def is_history(self) -> bool:
        """Whether it rests on runs of other jobs alone."""
        return self.basis in HISTORY_HERE | HISTORY_ELSEWHERE

    @property
    def is_far(self) -> bool:
        """Whether it rests on runs of many times its epochs, or a small part of them."""
        if not (self.is_history and self.scaled_from and self.epochs):
            return False
        return not 1 / FAR <= self.epochs / self.scaled_from <= FAR

    def at_least(self, least_s: float) -> Estimate:
        """Return it with no figure below that."""
        if least_s <= self.span.quick_s:
            return self
        return replace(self, span=Span(*(max(least_s, figure_s) for figure_s in self.span)))
