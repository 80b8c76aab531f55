"""Two floors that a model has to exceed, trained on the same windows as the model.

- `threshold`: the single summary feature, and its direction, that ranks the training windows best.
- `logistic`: a logistic regression on the standardised summary features, its penalty chosen on
  validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.evaluation.auroc import auroc
from agent.trainer.evaluation.logistic import fit_logistic

FLOORS: Final = ("threshold", "logistic")
# Inverse: the first is the strongest. Weaker ones do not converge in so many iterations, and then
# rounding, and with it the number of threads, would decide which is chosen.
PENALTIES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_ITERATIONS: Final = 200
_ROUNDING: Final = 1e-6
_LEAST: Final = 1e-15  # chance of a class, for its logarithm

# From windows (n,) to scores: of `logistic`, and of several classes, probabilities (n, classes).
Score = Callable[[Ints], Floats]


def fit_floors(
    features: Floats, label: Ints, train: Ints, validation: Ints, classes: int
) -> dict[str, Score]:
    """Return the floors by name; `features` (windows, inputs) and `label` (windows,) are of all.

    None of them learns from other windows than `train` and `validation`. Empty where the training
    windows show a single class.
    """
    if len(np.unique(label[train])) < 2:
        return {}
    return {
        "threshold": _threshold(features, label, train, classes),
        "logistic": _logistic(features, label, train, validation, classes),
    }


def _threshold(features: Floats, label: Ints, train: Ints, classes: int) -> Score:
    learnt, truth = features[train].astype(float), label[train]
    if classes > 2:
        return _nearest_means(features, learnt, truth, classes)
    areas = np.array([auroc(truth == 1, learnt[:, at]) for at in range(learnt.shape[1])])
    best = int(np.argmax(np.abs(areas - 0.5)))
    sign = 1.0 if areas[best] >= 0.5 else -1.0
    return lambda windows: sign * features[windows, best].astype(float)


def _nearest_means(features: Floats, learnt: Floats, truth: Ints, classes: int) -> Score:
    """Of several classes: the feature whose class means, as a classifier, are right most often."""
    present = np.unique(truth)
    means = np.full((classes, learnt.shape[1]), np.inf)  # a class never seen is never nearest
    for k in present:
        means[k] = learnt[truth == k].mean(axis=0)

    def odds_of(values: Floats, at: int) -> Floats:
        gaps = -np.abs(values[:, None] - means[:, at])
        odds = np.exp(
            (gaps - gaps.max(axis=1, keepdims=True)) / (np.ptp(means[present, at]) + 1e-9)
        )
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    right = [
        np.mean([(odds_of(learnt[truth == k, at], at).argmax(axis=1) == k).mean() for k in present])
        for at in range(learnt.shape[1])
    ]
    best = int(np.argmax(right))
    return lambda windows: odds_of(features[windows, best].astype(float), best)


def _logistic(features: Floats, label: Ints, train: Ints, validation: Ints, classes: int) -> Score:
    learnt = features[train].astype(float)
    mean, scale = learnt.mean(axis=0), learnt.std(axis=0)
    # What does not vary in training but for rounding would be magnified elsewhere.
    scale = np.where(scale > _ROUNDING * np.abs(learnt).max(axis=0), scale, 1.0)

    def inputs(windows: Ints) -> Floats:
        return np.asarray((features[windows] - mean) / scale)

    learnt, held_out, truth = inputs(train), inputs(validation), label[validation]
    found = []
    for penalty in PENALTIES:
        model = fit_logistic(
            learnt, label[train], classes, strength=penalty, iterations=_ITERATIONS
        )
        chance = model.probabilities(held_out)[np.arange(len(truth)), truth]
        found.append((float(-np.log(np.maximum(chance, _LEAST)).mean()), model))
    chosen = min(found, key=lambda one: one[0])[1]
    return lambda windows: chosen.probabilities(inputs(windows))
