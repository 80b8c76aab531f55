"""Metrics on windows that were not trained on, overall and per host.

Thresholds come from validation windows alone. A metric that the data does not define (a class is
absent, say) is None, and `undefined` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    precision_recall_curve,
    roc_auc_score,
)

from agent.trainer.arrays import Floats, Ints
from agent.trainer.bootstrap import auroc_interval, resampling_groups
from agent.trainer.data import WindowIndex

Metrics = dict[str, Any]

BINARY_METRICS: Final = (
    "auroc",
    "average_precision",
    "f1",
    "balanced_accuracy",
    "tpr_at_fpr",
    "fpr_realised",
)
MULTICLASS_METRICS: Final = (
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "auroc",
    "average_precision",
)


@dataclass(frozen=True)
class Scored:
    """Labelled windows and what the model says of them.

    `windows` (n,) numbers into the index, `label` (n,), and `score`: (n,) how anomalous a window
    is in a binary task, (n, classes) the classes' probabilities otherwise.
    """

    windows: Ints
    label: Ints
    score: Floats

    def of_positive(self) -> Scored:
        """Return the same with the probability of class 1 alone, as a binary task wants it."""
        return Scored(self.windows, self.label, self.score[:, 1])

    def as_normal(self) -> Scored:
        """Return the same with every window taken for a normal one."""
        return Scored(self.windows, np.zeros_like(self.label), self.score)


@dataclass(frozen=True)
class Thresholds:
    """Chosen on validation: where F1 is best, and what the target share of negatives exceeds."""

    decision: float | None
    alarm: float | None


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the test part, and how they came about."""

    metrics: Metrics
    per_host: dict[str, Metrics]
    undefined: dict[str, str]
    thresholds: Thresholds
    confusion: list[list[int]]
    resampled_by: str


@dataclass(frozen=True)
class Protocol:
    """How to evaluate."""

    classes: tuple[str, ...]
    target_fpr: float
    n_resamples: int
    seed: int


def evaluate(
    index: WindowIndex, validation: Scored, test: Scored, protocol: Protocol
) -> Evaluation:
    """Return the metrics of `test`, with thresholds chosen on `validation`."""
    binary = test.score.ndim == 1
    thresholds = choose_thresholds(validation, protocol.target_fpr) if binary else _NO_THRESHOLDS
    classes = len(protocol.classes)

    def measure(part: Scored) -> Metrics:
        return _binary(part, thresholds) if binary else _multiclass(part, classes)

    groups, resampled_by = resampling_groups(index, test.windows)
    positive = test.label[:, None] == (np.array([1]) if binary else np.unique(test.label))
    score = test.score[:, None] if binary else test.score[:, np.unique(test.label)]
    interval = auroc_interval(positive, score, groups, protocol.n_resamples, protocol.seed)
    metrics = measure(test)
    metrics["auroc_ci"] = list(interval) if interval else None
    return Evaluation(
        metrics=metrics,
        per_host={
            name: measure(_of_host(test, index, host))
            for host, name in enumerate(index.hosts)
            if (index.host[test.windows] == host).any()
        },
        undefined=_reasons(metrics, validation, test, protocol),
        thresholds=thresholds,
        confusion=_confusion(test, thresholds, classes),
        resampled_by=resampled_by,
    )


_NO_THRESHOLDS: Final = Thresholds(None, None)


def choose_thresholds(validation: Scored, target_fpr: float) -> Thresholds:
    """Return the thresholds for a binary task.

    A score at or above `decision` is called positive; one above `alarm` raises an alarm.
    """
    positive, score = validation.label == 1, validation.score
    decision = alarm = None
    if positive.any():
        precision, recall, at = precision_recall_curve(positive, score)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        decision = float(at[np.argmax(f1[:-1])])
    if not positive.all():
        alarm = float(np.quantile(score[~positive], 1 - target_fpr, method="higher"))
    return Thresholds(decision, alarm)


def _binary(part: Scored, thresholds: Thresholds) -> Metrics:
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
    return metrics


def _multiclass(part: Scored, classes: int) -> Metrics:
    """Classes that have no window in `part` count neither for nor against the model."""
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
    return metrics


def _of_host(part: Scored, index: WindowIndex, host: int) -> Scored:
    mine = index.host[part.windows] == host
    return Scored(part.windows[mine], part.label[mine], part.score[mine])


def _confusion(test: Scored, thresholds: Thresholds, classes: int) -> list[list[int]]:
    """Return rows of true and columns of called classes; empty where there is no threshold."""
    if test.score.ndim == 2:
        called = test.score.argmax(axis=1)
    elif thresholds.decision is not None:
        called = (test.score >= thresholds.decision).astype(np.int64)
    else:
        return []
    matrix: list[list[int]] = confusion_matrix(
        test.label, called, labels=np.arange(classes)
    ).tolist()
    return matrix


def _reasons(
    metrics: Mapping[str, Any], validation: Scored, test: Scored, protocol: Protocol
) -> dict[str, str]:
    """Return why each metric that is None is so."""
    why = []
    for name, part in (("validation", validation), ("test", test)):
        absent = [label for k, label in enumerate(protocol.classes) if not (part.label == k).any()]
        if absent:
            why.append(f"the {name} part has no window of class {', '.join(absent)}")
    if protocol.n_resamples == 0:
        why.append("no resamples were asked for")
    reason = "; ".join(why) or "too few groups hold each class"
    return {name: reason for name, value in metrics.items() if value is None}
