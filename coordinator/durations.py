"""How long jobs take, by what has been measured: pure values, no assumptions about hardware.

The nearest history that there is counts: this model and mode on this host; this model on this host;
the same on other hosts, as they were, scaled by nothing. Hyperparameters are left aside: that a run
of ten times the epochs takes longer is known to its trainer's ETA alone, once it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from coordinator.plan import JobSpec

NEWEST: Final = 40  # of one model, mode and host: what was long ago counts for less
QUANTILES: Final = (0.1, 0.5, 0.9)
STAND_IN_S: Final = 3600.0
HISTORY_HERE: Final = frozenset({"here", "model-here"})
HISTORY_ELSEWHERE: Final = frozenset({"elsewhere", "model-elsewhere"})


class Span(NamedTuple):
    """A quick case, the median, a slow case, in seconds: the 10th, 50th and 90th percentile."""

    quick_s: float
    median_s: float
    slow_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long something takes, and by what right that is said.

    `runs` is how many measured durations it is made of. `basis` is `here` (this model and mode on
    this host), `model-here`, `elsewhere` (on other hosts), `model-elsewhere`, `eta` (the trainer's
    own), `progress` (what is done so far), `overdue` (it has run for longer than any before it) or
    `none` (nothing like it was ever completed). Of the last two the span means nothing.
    """

    span: Span
    runs: int
    basis: str
    model: str = ""
    mode: str = ""

    @property
    def is_known(self) -> bool:
        """Whether anything speaks for it."""
        return self.basis not in {"none", "overdue"}

    @property
    def is_history(self) -> bool:
        """Whether it rests on runs of other jobs alone, whatever their hyperparameters were."""
        return self.basis in HISTORY_HERE | HISTORY_ELSEWHERE

    def at_least(self, least_s: float) -> Estimate:
        """Return it with no figure below that."""
        return replace(self, span=Span(*(max(least_s, figure_s) for figure_s in self.span)))

    def words(self) -> str:
        """Return the basis as people say it."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return {
            "here": f"{runs} of {self.model}-{self.mode} here",
            "model-here": f"{runs} of {self.model} in another mode here",
            "elsewhere": f"{runs} of {self.model}-{self.mode} on other hosts",
            "model-elsewhere": f"{runs} of {self.model} in another mode on other hosts",
            "eta": "its trainer's own ETA",
            "progress": "its progress so far",
            "overdue": f"longer already than {runs} of its like",
        }.get(self.basis, "no basis: never completed yet")


class History:
    """Durations of completed attempts."""

    def __init__(self, attempts: Iterable[Mapping[str, Any]] = ()) -> None:
        """Take in attempts as `attempts.page` returns them, newest first.

        What went on from a checkpoint says nothing of the whole, and does not count.
        """
        self._by: dict[tuple[str, str, str], list[float]] = {}
        for one in attempts:
            if one["end"] == "completed" and one["whole"] and one["s"] is not None:
                kept = self._by.setdefault((one["model"], one["mode"], one["host"]), [])
                if len(kept) < NEWEST:
                    kept.append(float(one["s"]))
        self._cache: dict[tuple[str, str, str], tuple[str, list[float]]] = {}
        everything = [took for kept in self._by.values() for took in kept]
        self._stand_in_s = quantile(sorted(everything), 0.5) if everything else STAND_IN_S

    def estimate(self, model: str, mode: str, host: str) -> Estimate:
        """Return how long a job of that kind takes on `host`."""
        basis, found = self._nearest(model, mode, host)
        if not found:
            return Estimate(Span(*(self._stand_in_s,) * 3), 0, "none")
        return Estimate(_span(found), len(found), basis, model, mode)

    def left(
        self,
        model: str,
        mode: str,
        host: str,
        elapsed_s: float,
        *,
        share: float | None = None,
        eta_s: float | None = None,
    ) -> Estimate:
        """Return for how much longer a job runs that has run for `elapsed_s`.

        Its trainer's ETA is believed first, then the share that it has done, then the history: of
        the runs that took longer than this one so far, what was left of them.
        """
        basis, found = self._nearest(model, mode, host)
        if eta_s is not None:
            return Estimate(_around(eta_s, found), len(found), "eta")
        if share is not None and share >= 0.02 and elapsed_s > 0:
            return Estimate(_around(elapsed_s * (1 - share) / share, found), len(found), "progress")
        if not found:
            rest_s = max(0.0, self._stand_in_s - elapsed_s)
            return Estimate(Span(rest_s, rest_s, rest_s), 0, "none")
        longer = [took - elapsed_s for took in found if took > elapsed_s]
        if not longer:  # any moment now, or as long again, or never
            return Estimate(Span(0.0, 0.1 * elapsed_s, elapsed_s), len(found), "overdue")
        return Estimate(_span(longer), len(found), basis, model, mode)

    def _nearest(self, model: str, mode: str, host: str) -> tuple[str, list[float]]:
        key = (model, mode, host)
        if key not in self._cache:
            self._cache[key] = self._look(*key)
        return self._cache[key]

    def _look(self, model: str, mode: str, host: str) -> tuple[str, list[float]]:
        for basis, fits in (
            ("here", lambda key: key == (model, mode, host)),
            ("model-here", lambda key: (key[0], key[2]) == (model, host)),
            ("elsewhere", lambda key: key[:2] == (model, mode)),
            ("model-elsewhere", lambda key: key[0] == model),
        ):
            found = [took for key, kept in self._by.items() if fits(key) for took in kept]
            if found:
                return basis, sorted(found)
        return "none", []


class Expected:
    """How long jobs take that are to start, by history and by what runs now.

    A job takes no less than one of its model, mode and epochs has run for already: on the same
    host, or on any where history is of other hosts as well.
    """

    def __init__(self, history: History, running: Iterable[tuple[JobSpec, str, float]]) -> None:
        """Take what has been measured, and of each job that runs spec, host and seconds so far."""
        self._history = history
        self._longest_s: dict[tuple[Any, ...], float] = {}
        for spec, host, elapsed_s in running:
            for where in (host, None):
                key = (*_like(spec), where)
                self._longest_s[key] = max(elapsed_s, self._longest_s.get(key, 0.0))

    def estimate(self, spec: JobSpec, host: str) -> Estimate:
        """Return how long a job takes on `host`."""
        found = self._history.estimate(spec.model, spec.mode, host)
        where = host if found.basis in HISTORY_HERE else None
        return found.at_least(self._longest_s.get((*_like(spec), where), 0.0))


def _like(spec: JobSpec) -> tuple[str, str, str]:
    return spec.model, spec.mode, repr(spec.hyper.get("epochs"))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of numbers in ascending order, by linear interpolation."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _span(ordered: Sequence[float]) -> Span:
    return Span(*(quantile(ordered, share) for share in QUANTILES))


def _around(middle_s: float, ordered: Sequence[float]) -> Span:
    """Spread a figure as widely as the history is spread, in proportion."""
    if not ordered or (whole := _span(ordered)).median_s <= 0:
        return Span(middle_s, middle_s, middle_s)
    quick_s = middle_s * whole.quick_s / whole.median_s
    return Span(quick_s, middle_s, middle_s * whole.slow_s / whole.median_s)
