"""How good scores are, in a part and in its resamples: each metric is (draws,).

A metric that the data does not define (a class is absent, say) is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.evaluation.bootstrap import Draws, ratio
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


def measure(part: Scored, thresholds: Thresholds, draws: Draws) -> dict[str, Floats]:
    """Return the metrics of the part's task, by name in the order of the report."""
    if part.score.ndim == 1:
        found = _binary(part.label == 1, part.score, thresholds, draws)
    else:
        found = _multiclass(part, draws)
    return found | _of_probabilities(part, draws)


def _binary(
    positive: Bools, score: Floats, thresholds: Thresholds, draws: Draws
) -> dict[str, Floats]:
    undefined = np.full(len(draws), np.nan)
    f1 = balanced_accuracy = tpr = fpr = undefined
    positives, negatives = draws.sums(positive), draws.sums(~positive)
    if thresholds.decision is not None:
        called = score >= thresholds.decision
        hits, false = draws.sums(called & positive), draws.sums(called & ~positive)
        f1 = _f1(hits, hits + false, positives)
        balanced_accuracy = (ratio(hits, positives) + 1 - ratio(false, negatives)) / 2
    if thresholds.alarm is not None:
        alarms = score > thresholds.alarm
        tpr = ratio(draws.sums(alarms & positive), positives)
        fpr = ratio(draws.sums(alarms & ~positive), negatives)
    return {
        "auroc": draws.areas(positive, score),
        "average_precision": draws.precisions(positive, score),
        "f1": f1,
        "balanced_accuracy": balanced_accuracy,
        "tpr_at_fpr": tpr,
        "fpr_realised": fpr,
    }


def _multiclass(part: Scored, draws: Draws) -> dict[str, Floats]:
    """Average over the classes: one that has no window neither helps nor harms."""
    present, called = np.unique(part.label), part.score.argmax(axis=1)
    recalls, f1s, areas, precisions = [], [], [], []
    for k in present:
        truth, told = part.label == k, called == k
        hits, size = draws.sums(truth & told), draws.sums(truth)
        recalls.append(ratio(hits, size))
        f1s.append(_f1(hits, draws.sums(told), size))
        areas.append(draws.areas(truth, part.score[:, k]))
        precisions.append(draws.precisions(truth, part.score[:, k]))
    if len(present) == 1:
        precisions = areas  # against no rest neither is defined
    return {
        "accuracy": _share(called == part.label, draws),
        "balanced_accuracy": np.mean(recalls, axis=0),
        "macro_f1": np.mean(f1s, axis=0),
        "auroc": np.mean(areas, axis=0),
        "average_precision": np.mean(precisions, axis=0),
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
