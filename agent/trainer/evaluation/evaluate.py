"""Metrics on the test windows, overall and per host, with intervals.

A metric that the data does not define, for example because a class is absent, is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_curve

from agent.trainer.common.arrays import Floats
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.bootstrap import Draws, interval, resampling_groups
from agent.trainer.evaluation.metrics import OF_PROBABILITIES, Metrics, Scored, measure
from agent.trainer.evaluation.report_schema import Thresholds


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the test part, the thresholds, and the model's scores.

    `probe` are the metrics of a pretrained network's linear probe.
    """

    test: Scored
    metrics: Metrics
    per_host: dict[str, Metrics]
    undefined: dict[str, str]
    thresholds: Thresholds
    confusion: list[list[int]]
    resampled_by: str
    probe: Metrics | None = None


def evaluate(
    index: WindowIndex,
    validation: Scored,
    test: Scored,
    classes: Sequence[str],
    *,
    target_fpr: float,
    n_resamples: int,
    seed: int,
) -> Evaluation:
    """Return the metrics of `test`, with thresholds chosen on `validation`."""
    thresholds = Thresholds(decision=None, alarm=None)
    if test.score.ndim == 1:
        thresholds = choose_thresholds(validation, target_fpr)
    groups, resampled_by = resampling_groups(index, test.windows)
    found = measure(test, thresholds, Draws(groups, n_resamples, seed))
    metrics = _values(found)
    # An undefined metric has no interval either: the reason is given once.
    known = [name for name, value in metrics.items() if value is not None]
    metrics |= {f"{name}_ci": interval(found[name][1:]) for name in known}
    return Evaluation(
        test=test,
        metrics=metrics,
        per_host=_per_host(index, test, thresholds),
        undefined=_reasons(metrics, {"validation": validation, "test": test}, classes, n_resamples),
        thresholds=thresholds,
        confusion=_confusion(test, thresholds, len(classes)),
        resampled_by=resampled_by,
    )


def choose_thresholds(validation: Scored, target_fpr: float) -> Thresholds:
    """Return the thresholds for a binary task."""
    positive, score = validation.label == 1, validation.score
    decision = alarm = None
    if positive.any():
        precision, recall, at = precision_recall_curve(positive, score)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        decision = float(at[np.argmax(f1[:-1])])
    if not positive.all():
        alarm = float(np.quantile(score[~positive], 1 - target_fpr, method="higher"))
    return Thresholds(decision=decision, alarm=alarm)


def _values(found: Mapping[str, Floats]) -> Metrics:
    """Return the metrics of the part itself, None where one is not defined."""
    values = {name: float(draws[0]) for name, draws in found.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def _per_host(index: WindowIndex, test: Scored, thresholds: Thresholds) -> dict[str, Metrics]:
    host, found = index.host[test.windows], {}
    for number in np.unique(host):
        mine = host == number
        kept = {name: getattr(test, name)[mine] for name in ("windows", "label", "score")}
        whole = Draws(np.zeros(len(kept["label"]), dtype=np.int64))
        found[index.hosts[number]] = _values(measure(replace(test, **kept), thresholds, whole))
    return found


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
    metrics: Mapping[str, Any],
    parts: Mapping[str, Scored],
    classes: Sequence[str],
    n_resamples: int,
) -> dict[str, str]:
    """Return why each metric that is None is so."""
    why = []
    for name, part in parts.items():
        absent = [label for k, label in enumerate(classes) if not (part.label == k).any()]
        if absent:
            why.append(f"the {name} part has no window of class {', '.join(absent)}")
    if n_resamples == 0:
        why.append("no resamples were asked for")
    reason = "; ".join(why) or "too few groups hold each class"
    return {
        name: "the score is no probability" if name in OF_PROBABILITIES else reason
        for name, value in metrics.items()
        if value is None
    }
