"""Metrics of scores, in a part and in its resamples. AUROC and AP: auroc.py.

Each is (draws,). A metric that the data does not define (a class is absent, say) is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.evaluation.auroc import ratio
from agent.trainer.evaluation.bootstrap import Draws
from agent.trainer.evaluation.report_schema import Thresholds

Metrics = dict[str, Any]

OF_PROBABILITIES: Final = ("brier", "calibration_error")
BINS: Final = 10  # of equal width, for the calibration error


@dataclass(frozen=True)
class Scored:
    """Labelled windows and their scores.

    `windows` (n,) are numbers into the index; `score` is (n,) in a binary task, a probability if
    `probable`, and otherwise (n, classes) probabilities.
    """

    windows: Ints
    label: Ints
    score: Floats
    probable: bool = True

    def of(self, mine: Bools | Ints) -> Self:
        """Return those of `mine`, by flags (n,) or by their places."""
        columns = [one.name for one in fields(self) if one.name != "probable"]
        return replace(self, **{name: getattr(self, name)[mine] for name in columns})


@dataclass(frozen=True, kw_only=True)
class Called(Scored):
    """With what each window was called, and by which model it was scored; each (n,).

    `called` is the class by number, `alarm` whether its score is above the alarm's threshold. Each
    is -1 where there was no threshold for it.
    """

    called: Ints
    alarm: Ints
    fold: Ints


def called_by(thresholds: Thresholds, part: Scored, fold: int = 0) -> Called:
    """Return the part with what its windows are called by these thresholds."""
    called = alarm = np.full(len(part.label), -1)
    if part.score.ndim == 2:
        called = part.score.argmax(axis=1)
    elif thresholds.decision is not None:
        called = (part.score >= thresholds.decision).astype(np.int64)
    if part.score.ndim == 1 and thresholds.alarm is not None:
        alarm = (part.score > thresholds.alarm).astype(np.int64)
    folds = np.full(len(part.label), fold)
    return Called(**vars(part), called=called, alarm=alarm, fold=folds)


def measure(part: Called, draws: Draws) -> dict[str, Floats]:
    """Return the metrics of the part's task, by name in the order of the report."""
    found = _binary(part, draws) if part.score.ndim == 1 else _multiclass(part, draws)
    return found | _of_probabilities(part, draws)


def _binary(part: Called, draws: Draws) -> dict[str, Floats]:
    positive, is_called, had_one = part.label == 1, part.called == 1, part.called >= 0
    hits = draws.sums(is_called & positive)
    recall, false = _rates(positive, part.called, draws)
    tpr, fpr = _rates(positive, part.alarm, draws)
    return {
        "auroc": draws.areas(positive, part.score, part.fold),
        "average_precision": draws.precisions(positive, part.score, part.fold),
        "f1": _f1(hits, draws.sums(is_called), draws.sums(positive & had_one)),
        "balanced_accuracy": (recall + 1 - false) / 2,
        "tpr_at_fpr": tpr,
        "fpr_realised": fpr,
    }


def _rates(positive: Bools, called: Ints, draws: Draws) -> tuple[Floats, Floats]:
    """Return the true- and the false-positive rate (draws,), of windows that had a threshold."""
    is_called, had_one = called == 1, called >= 0
    true = ratio(draws.sums(is_called & positive), draws.sums(had_one & positive))
    false = ratio(draws.sums(is_called & ~positive), draws.sums(had_one & ~positive))
    return true, false


def _multiclass(part: Called, draws: Draws) -> dict[str, Floats]:
    """Average over the classes: one that has no window neither helps nor harms."""
    present, called = np.unique(part.label), part.called
    recalls, f1s, areas, precisions = [], [], [], []
    for k in present:
        truth, told = part.label == k, called == k
        hits, size = draws.sums(truth & told), draws.sums(truth)
        recalls.append(ratio(hits, size))
        f1s.append(_f1(hits, draws.sums(told), size))
        areas.append(draws.areas(truth, part.score[:, k], part.fold))
        precisions.append(draws.precisions(truth, part.score[:, k], part.fold))
    return {
        "auroc": np.mean(areas, axis=0),
        "average_precision": np.mean(precisions, axis=0),
        "accuracy": _share(called == part.label, draws),
        "balanced_accuracy": np.mean(recalls, axis=0),
        "macro_f1": np.mean(f1s, axis=0),
    }


def _f1(hits: Floats, called: Floats, size: Floats) -> Floats:
    # A draw without the class does not define its F1, whatever was called by its name.
    return ratio(2 * hits, np.where(size > 0, called + size, 0.0))


def _share(values: Floats | Bools, draws: Draws) -> Floats:
    return draws.sums(values) / draws.sums(np.ones(len(values)))


def _of_probabilities(part: Scored, draws: Draws) -> dict[str, Floats]:
    if not part.probable:
        return dict.fromkeys(OF_PROBABILITIES, np.full(len(draws), np.nan))
    if part.score.ndim == 1:  # Brier 1950; of two classes, of the positive one
        terms = (part.score - (part.label == 1)) ** 2
    else:
        truth = part.label[:, None] == np.arange(part.score.shape[1])
        terms = ((part.score - truth) ** 2).sum(axis=1)
    given, true = confidence(part)
    gaps = np.abs(draws.sums_by(bin_of(given), given - true, BINS)).sum(axis=1)
    return {
        "brier": _share(terms, draws),
        "calibration_error": gaps / draws.sums(np.ones(len(given))),
    }


def confidence(part: Scored) -> tuple[Floats, Bools]:
    """Return what each window was given (n,) and whether it came true (n,).

    Of two classes that is the positive one's probability (Naeini et al. 2015), of several the
    highest (Guo et al. 2017).
    """
    if part.score.ndim == 1:
        return part.score, np.asarray(part.label == 1)
    called = part.score.argmax(axis=1)
    return part.score.max(axis=1), np.asarray(called == part.label)


def bin_of(given: Floats) -> Ints:
    """Return the bin (n,) of each confidence (n,)."""
    return np.clip((given * BINS).astype(np.int64), 0, BINS - 1)


def cuts(positive: Bools, score: Floats) -> tuple[Floats, Ints, Ints]:
    """Return each different score, highest first, and the positives and negatives that reach it."""
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    hits = np.cumsum(positive[order])[last]
    return ranked[last], hits, last + 1 - hits
