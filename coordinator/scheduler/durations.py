"""How long jobs take, by what has been measured: pure values, no assumptions about hardware.

The nearest history that there is counts: this model and mode on this host; this model on this host;
the same on other hosts, as they were. On the same host, or on the others, runs of as many epochs
count before all else; where there are none, those of the nearest number are scaled. How the other
hyperparameters change what a run takes is known to its trainer's ETA alone, once it runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.estimates import (
    AS_IT_WAS,
    HISTORY_HERE,
    NEWEST,
    QUANTILES,
    Estimate,
    Factors,
    Span,
    quantile,
)
from coordinator.scheduler.lead_times import LeadTimes

STAND_IN_S: Final = 3600.0
LEAST_SHARE: Final = 0.02  # of less than that nobody can tell how long the rest takes
SURE_AFTER_S: Final = 10.0  # nor of less than that: half of it may have gone to loading the data
SHORTEST_S: Final = 1e-3  # nothing is in proportion to less than that
MOST_EPOCHS: Final = 1e9


class _Runs(NamedTuple):
    """Durations of like runs, ascending; scaled where those had another number of epochs."""

    basis: str
    took_s: Sequence[float]
    epochs: float = 0
    scaled_from: float = 0
    factors: Factors = AS_IT_WAS

    def whole(self) -> Span:
        """Return how long all of it takes."""
        ordered = self.took_s
        return Span(*(quantile(ordered, at) * by for at, by in zip(QUANTILES, self.factors)))

    def left(self, elapsed_s: float) -> Span | None:
        """Return what was left of those that took longer; none where none of them did."""
        quick, median, slow = (
            [took_s * by - elapsed_s for took_s in self.took_s if took_s * by > elapsed_s]
            for by in self.factors
        )
        if not slow:
            return None
        slow_s = quantile(slow, QUANTILES[2])
        median_s = min(quantile(median or slow, QUANTILES[1]), slow_s)
        quick_s = quantile(quick, QUANTILES[0]) if quick else 0.0
        return Span(min(quick_s, median_s), median_s, slow_s)


_Key = tuple[str, str, str, float]  # model, mode, host, epochs


class History:
    """Durations of completed attempts; `leads`: of what comes before their trainers start."""

    def __init__(
        self,
        attempts: Iterable[Mapping[str, Any]] = (),
        epochs_by_default: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        """Take in ended attempts, newest first.

        What went on from a checkpoint says nothing of the whole, and does not count.
        `epochs_by_default`, by model and host, are those of a job that sets none; by model and "",
        those on a host that is not in it.
        """
        self._by_default = epochs_by_default or {}
        self.leads = LeadTimes()
        kept: dict[_Key, list[float]] = {}
        for one in attempts:
            self.leads.note(one)
            if one["end"] == "completed" and one["whole"] and one["s"] is not None:
                model, mode, host = one["model"], one["mode"], one["host"]
                epochs = self.epochs(model, host, one.get("epochs"))
                newest = kept.setdefault((model, mode, host, epochs), [])
                if len(newest) < NEWEST:
                    newest.append(float(one["s"]))
        self._by = _by_nearness(kept)
        self._found: dict[_Key, _Runs] = {}
        self._said: dict[_Key, Estimate] = {}
        everything = [took_s for newest in kept.values() for took_s in newest]
        self._stand_in_s = quantile(sorted(everything), 0.5) if everything else STAND_IN_S

    def epochs(self, model: str, host: str, said: Any) -> float:
        """Return how many epochs a job has that sets `said`, on that host; 0: nobody knows."""
        if said is not None:
            return _amount(said)
        default = self._by_default.get((model, host))
        return self._by_default.get((model, ""), 0) if default is None else default

    def estimate(self, model: str, mode: str, host: str, epochs: Any = None) -> Estimate:
        """Return how long such a job takes on `host`."""
        key = (model, mode, host, self.epochs(model, host, epochs))
        said = self._said.get(key)
        if said is None:
            said = self._said[key] = self._say(self._nearest(key), key)
        return said

    def left(
        self,
        model: str,
        mode: str,
        host: str,
        elapsed_s: float,
        *,
        share: float | None = None,
        eta_s: float | None = None,
        epochs: Any = None,
        begun: float = 0.0,
    ) -> Estimate:
        """Return how long a running job takes on: by ETA, else progress, else history.

        `share` of it is done, of which its attempt has done what is beyond `begun`.
        """
        key = (model, mode, host, self.epochs(model, host, epochs))
        found = self._nearest(key)
        if eta_s is not None:
            return Estimate(_around(eta_s, found.took_s), len(found.took_s), "eta")
        fresh = 0.0 if share is None else share - begun
        if share is not None and fresh >= LEAST_SHARE and elapsed_s >= SURE_AFTER_S:
            rest_s = elapsed_s * (1 - share) / fresh
            return Estimate(_around(rest_s, found.took_s), len(found.took_s), "progress")
        if not found.took_s:
            rest_s = max(0.0, self._stand_in_s - elapsed_s)
            return Estimate(Span(rest_s, rest_s, rest_s), 0, "none")
        span = found.left(elapsed_s)
        if span is None:  # any moment now, or as long again, or never
            beyond = Span(0.0, 0.1 * elapsed_s, elapsed_s)
            return Estimate(beyond, len(found.took_s), "overdue")
        return replace(self._say(found, key), span=span)

    def _say(self, found: _Runs, key: _Key) -> Estimate:
        if not found.took_s:
            return Estimate(Span(*(self._stand_in_s,) * 3), 0, "none")
        model, mode, *_ = key
        return Estimate(
            found.whole(), len(found.took_s), found.basis, model, mode,
            found.epochs, found.scaled_from,
        )  # fmt: skip

    def _nearest(self, key: _Key) -> _Runs:
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(key)
        return found

    def _look(self, key: _Key) -> _Runs:
        epochs = key[3]
        places = _places(key)
        for near in (places[:2], places[2:]):
            for place in near:
                if took_s := self._by.get(place, {}).get(epochs):
                    return _Runs(place[0], took_s, epochs)
            for place in near:
                if by_epochs := self._by.get(place):
                    return _scaled(place[0], by_epochs, epochs)
        return _Runs("none", ())


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
                key = (*self._like(spec, host), where)
                self._longest_s[key] = max(elapsed_s, self._longest_s.get(key, 0.0))

    def estimate(self, spec: JobSpec, host: str) -> Estimate:
        """Return how long a job takes on `host`."""
        epochs = spec.hyper.get("epochs")
        found = self._history.estimate(spec.model, spec.mode, host, epochs)
        if not self._longest_s:
            return found
        where = host if found.basis in HISTORY_HERE else None
        return found.at_least(self._longest_s.get((*self._like(spec, host), where), 0.0))

    def _like(self, spec: JobSpec, host: str) -> tuple[str, str, float]:
        epochs = self._history.epochs(spec.model, host, spec.hyper.get("epochs"))
        return spec.model, spec.mode, epochs


def default_epochs(schema: Mapping[str, Any]) -> float:
    """Return how many epochs a trainer does that is told none, by its schema; 0: it is not said."""
    properties = schema.get("properties")
    epochs = properties.get("epochs") if isinstance(properties, Mapping) else None
    return _amount(epochs.get("default")) if isinstance(epochs, Mapping) else 0


def _amount(said: Any) -> float:
    """Return a number of epochs, 0 for what is none."""
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    return said if is_number and 0 < said <= MOST_EPOCHS else 0


_Place = tuple[str, ...]


def _places(key: _Key) -> tuple[_Place, ...]:
    """Return where to look for runs that are like a job's, the nearest first."""
    model, mode, host, _ = key
    return (
        ("here", model, mode, host),
        ("model-here", model, host),
        ("elsewhere", model, mode),
        ("model-elsewhere", model),
    )


def _by_nearness(kept: Mapping[_Key, list[float]]) -> dict[_Place, dict[float, list[float]]]:
    """Return durations, ascending, by where to look for them and by epochs, the fewest first."""
    found: dict[_Place, dict[float, list[float]]] = {}
    for key in sorted(kept, key=lambda key: key[3]):
        for place in _places(key):
            found.setdefault(place, {}).setdefault(key[3], []).extend(kept[key])
    for by_epochs in found.values():
        for took_s in by_epochs.values():
            took_s.sort()
    return found


def _scaled(basis: str, by_epochs: Mapping[float, list[float]], epochs: float) -> _Runs:
    """Return the runs of the nearest number of epochs, scaled; one extreme is no scaling at all."""
    known = [*by_epochs]
    place = bisect_left(known, epochs)
    near = [one for one in known[max(0, place - 1) : place + 1] if one]
    if not epochs or not near:  # nobody knows how much more or less that is
        everything = sorted(took_s for kept in by_epochs.values() for took_s in kept)
        return _Runs(basis, everything)
    nearest = min(near, key=lambda one: abs(math.log(one / epochs)))
    ratio = epochs / nearest
    least, most = min(1.0, ratio), max(1.0, ratio)
    median = min(max(_by_line(by_epochs, nearest, epochs) or ratio, least), most)
    return _Runs(basis, by_epochs[nearest], epochs, nearest, Factors(least, median, most))


def _by_line(by_epochs: Mapping[float, list[float]], nearest: float, epochs: float) -> float | None:
    """Return the factor by a line through the medians of two numbers of epochs; none: no line."""
    known = [one for one in by_epochs if one and one != nearest]
    if not known:
        return None
    other = max(known, key=lambda one: abs(math.log(one / nearest)))
    near_s, other_s = (quantile(by_epochs[one], QUANTILES[1]) for one in (nearest, other))
    slope_s = (other_s - near_s) / (other - nearest)
    if slope_s <= 0 or near_s < SHORTEST_S:
        return None
    return 1.0 + slope_s * (epochs - nearest) / near_s


def _around(middle_s: float, ordered: Sequence[float]) -> Span:
    """Spread a figure as widely as the history is spread, in proportion."""
    if not ordered:
        return Span(middle_s, middle_s, middle_s)
    quick_s, median_s, slow_s = (quantile(ordered, share) for share in QUANTILES)
    if median_s < SHORTEST_S:
        return Span(middle_s, middle_s, middle_s)
    return Span(middle_s * quick_s / median_s, middle_s, middle_s * slow_s / median_s)
