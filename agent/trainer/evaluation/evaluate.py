"""Metrics on the test windows, overall and per host, with intervals.

Thresholds come from validation windows alone. A metric that the data does not define, for example
because a class is absent, is None, and `undefined` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_curve

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.bootstrap import (
    Resamples,
    binary_intervals,
    multiclass_intervals,
    resampling_groups,
)
from agent.trainer.evaluation.metrics import (
    OF_PROBABILITIES,
    Metrics,
    Scored,
    Thresholds,
    binary_metrics,
    multiclass_metrics,
)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the test part, the thresholds, and the model's scores."""

    test: Scored
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
    classes = len(protocol.classes)
    groups, resampled_by = resampling_groups(index, test.windows)
    draws = Resamples(groups, protocol.n_resamples, protocol.seed)
    measure: Callable[[Scored], Metrics]
    if test.score.ndim == 1:
        thresholds = choose_thresholds(validation, protocol.target_fpr)
        intervals = binary_intervals(test, thresholds, draws)
        measure = partial(binary_metrics, thresholds=thresholds)
    else:
        thresholds = Thresholds(None, None)
        intervals = multiclass_intervals(test, draws)
        measure = partial(multiclass_metrics, classes=classes)
    metrics = measure(test)
    # An undefined metric has no interval either: the reason is given once.
    metrics |= {name: intervals[name] for name in intervals if metrics[name[:-3]] is not None}
    return Evaluation(
        test=test,
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


def _of_host(part: Scored, index: WindowIndex, host: int) -> Scored:
    mine = index.host[part.windows] == host
    return replace(part, windows=part.windows[mine], label=part.label[mine], score=part.score[mine])


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
    return {
        name: "the score is no probability" if name in OF_PROBABILITIES else reason
        for name, value in metrics.items()
        if value is None
    }
