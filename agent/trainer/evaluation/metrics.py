"""How good scores are: point values, by scikit-learn where it has them.

A metric that the data does not define (a class is absent, say) is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    roc_auc_score,
)

from agent.trainer.common.arrays import Bools, Floats, Ints

Metrics = dict[str, Any]

BINARY_METRICS: Final = (
    "auroc",
    "average_precision",
    "f1",
    "balanced_accuracy",
    "tpr_at_fpr",
    "fpr_realised",
    "brier",
    "calibration_error",
)
MULTICLASS_METRICS: Final = (
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "auroc",
    "average_precision",
    "brier",
    "calibration_error",
)
OF_PROBABILITIES: Final = frozenset({"brier", "calibration_error"})
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

    def as_normal(self) -> Scored:
        """Return the same with every window taken for a normal one."""
        return Scored(self.windows, np.zeros_like(self.label), self.score, self.probable)


@dataclass(frozen=True)
class Thresholds:
    """Chosen on validation: where F1 is best, and what the target share of negatives exceeds."""

    decision: float | None
    alarm: float | None


def binary_metrics(part: Scored, thresholds: Thresholds) -> Metrics:
    """Return `BINARY_METRICS` of a part whose score is (n,)."""
    metrics: Metrics = dict.fromkeys(BINARY_METRICS)
    positive, score = part.label == 1, part.score
    both = bool(positive.any() and not positive.all())
    if both:
        metrics["auroc"] = float(roc_auc_score(positive, score))
    if positive.any():
        metrics["average_precision"] = float(average_precision_score(positive, score))
    if thresholds.decision is not None and positive.any():
        called = score >= thresholds.decision
        metrics["f1"] = float(f1_score(positive, called, zero_division=0))
        if both:
            metrics["balanced_accuracy"] = float(balanced_accuracy_score(positive, called))
    if thresholds.alarm is not None:
        alarms = score > thresholds.alarm
        if positive.any():
            metrics["tpr_at_fpr"] = float(alarms[positive].mean())
        if not positive.all():
            metrics["fpr_realised"] = float(alarms[~positive].mean())
    if part.probable:
        metrics["brier"] = float(brier_terms(part).mean())
        metrics["calibration_error"] = calibration_error(*confidence(part))
    return metrics


def multiclass_metrics(part: Scored, classes: int) -> Metrics:
    """Return `MULTICLASS_METRICS` of a part whose score is (n, classes).

    Classes that have no window in `part` count neither for nor against the model.
    """
    present = np.unique(part.label)
    called = part.score.argmax(axis=1)
    metrics: Metrics = dict.fromkeys(MULTICLASS_METRICS)
    metrics["accuracy"] = float(accuracy_score(part.label, called))
    recalls = [float((called[part.label == k] == k).mean()) for k in present]
    metrics["balanced_accuracy"] = float(np.mean(recalls))
    metrics["macro_f1"] = float(
        f1_score(part.label, called, labels=present, average="macro", zero_division=0)
    )
    if 1 < len(present) <= classes:
        one_of = part.label[:, None] == present
        areas = [roc_auc_score(one_of[:, i], part.score[:, k]) for i, k in enumerate(present)]
        precisions = [
            average_precision_score(one_of[:, i], part.score[:, k]) for i, k in enumerate(present)
        ]
        metrics["auroc"] = float(np.mean(areas))
        metrics["average_precision"] = float(np.mean(precisions))
    metrics["brier"] = float(brier_terms(part).mean())
    metrics["calibration_error"] = calibration_error(*confidence(part))
    return metrics


def brier_terms(part: Scored) -> Floats:
    """Return each window's squared error (n,): Brier 1950; of two classes, of the positive one."""
    if part.score.ndim == 1:
        return np.asarray((part.score - (part.label == 1)) ** 2)
    truth = part.label[:, None] == np.arange(part.score.shape[1])
    return np.asarray(((part.score - truth) ** 2).sum(axis=1))


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


def calibration_error(given: Floats, true: Bools) -> float:
    """Return the expected calibration error: the mean gap between given and come true, by bin."""
    bins = bin_of(given)
    gaps = np.bincount(bins, weights=given - true, minlength=BINS)
    return float(np.abs(gaps).sum() / len(given))
