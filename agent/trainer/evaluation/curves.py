"""The curves of a report, thinned to what a drawing can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.evaluation.metrics import BINS, Scored, bin_of, confidence, cuts
from agent.trainer.evaluation.report_schema import Calibration, Curve, Curves, Timeline
from agent.trainer.evaluation.thresholds import Track

MOST_CLASSES: Final = 8  # the page has so many colours
_MOST_HOSTS: Final = 4
_POINTS: Final = 300  # of a curve
_STEPS: Final = 400  # of a timeline


def curves_of(test: Scored, classes: Sequence[str], tracks: Sequence[Track]) -> Curves:
    """Return the curves of a test part's scores, and of its hosts over time."""
    roc, precision_recall = [], []
    for name, positive, score in _against_the_rest(test, classes):
        _, hits, false = cuts(positive, score)
        rates = _start(hits / hits[-1]), _start(false / false[-1])
        roc.append(_curve(name, rates[1], rates[0]))
        # Nothing called has no precision: the curve begins at 1 there, by convention.
        precision = np.append(1.0, hits / (hits + false))
        precision_recall.append(_curve(name, rates[0], precision))
    # Hosts with events come before the others.
    order = sorted(tracks, key=lambda track: (not (track.label == 1).any(), track.host))
    return Curves(
        roc=roc,
        precision_recall=precision_recall,
        calibration=_calibration(test) if test.probable else None,
        timelines=[_timeline(track) for track in order[:_MOST_HOSTS]],
    )


def _against_the_rest(part: Scored, classes: Sequence[str]) -> Iterator[tuple[str, Bools, Floats]]:
    """Yield each class, whether each window is of it (n,), and its score for it (n,)."""
    present = np.unique(part.label)
    if len(present) < 2:
        return
    if part.score.ndim == 1:
        yield classes[-1], part.label == 1, part.score
        return
    for k in present[:MOST_CLASSES]:
        yield classes[k], part.label == k, part.score[:, k]


def _start(rates: Floats) -> Floats:
    """Return rates that begin where nothing is called."""
    return np.append(0.0, rates)


def _curve(name: str, x: Floats, y: Floats) -> Curve:
    some = np.unique(np.linspace(0, len(x) - 1, _POINTS).round().astype(int))
    return Curve(name=name, x=_listed(x[some]), y=_listed(y[some]))


def _calibration(test: Scored) -> Calibration:
    given, true = confidence(test)
    bins = bin_of(given)
    counts: Ints = np.bincount(bins, minlength=BINS)
    some = counts > 0
    mean_given, mean_true = (
        np.bincount(bins, weights=values, minlength=BINS)[some] / counts[some]
        for values in (given, true)
    )
    return Calibration(
        given=_listed(mean_given), true=_listed(mean_true), windows=counts[some].tolist()
    )


def _timeline(track: Track) -> Timeline:
    step = -(-len(track.score) // _STEPS)
    own = _by_step(track.own, step, np.fmin)
    return Timeline(
        host=track.host,
        step=step,
        unlabelled=int((track.label < 0).sum()),
        alarm=track.alarm,
        score=_listed(_by_step(track.score, step, np.fmax)),
        own=[None if np.isnan(one) else one for one in _listed(own)],
        event=(_by_step(track.label == 1, step, np.fmax) > 0).tolist(),
    )


def _by_step(values: Any, step: int, of: np.ufunc) -> Floats:
    """Return what `of` makes of each `step` values (n,)."""
    return np.asarray(of.reduceat(values.astype(float), np.arange(0, len(values), step)))


def _listed(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
