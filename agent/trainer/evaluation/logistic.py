"""A logistic regression with an L2 penalty, fitted by L-BFGS.

After Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989. A
library for this would take longer to import than all that a small training does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats, Ints

_REMEMBERED: Final = 10  # steps, of which the curvature is estimated
_TOLERANCE: Final = 1e-5  # of the largest slope
_DECREASE: Final = 1e-4  # of what the slope promises; less is no step (Armijo)
_HALVINGS: Final = 40
_NEVER: Final = -1e9  # log odds of a class that training never showed


@dataclass(frozen=True)
class Logistic:
    """Weights (classes, inputs) and biases (classes,) of the classes' log odds."""

    weight: Floats
    bias: Floats

    def probabilities(self, inputs: Floats) -> Floats:
        """Return the classes' probabilities (n, classes) of inputs (n, inputs)."""
        return _softmax((inputs @ self.weight.T + self.bias).T)[0].T


def fit_logistic(
    inputs: Floats,
    label: Ints,
    classes: int,
    *,
    strength: float = 1.0,
    iterations: int,
    balanced: bool = False,
) -> Logistic:
    """Fit to inputs (n, inputs); `strength` is the inverse of the penalty.

    `balanced` gives all classes that are there the same weight. Of two classes the first has log
    odds of 0.
    """
    present, truth, counts = np.unique(label, return_inverse=True, return_counts=True)
    free = slice(1, None) if len(present) == 2 else slice(None)
    mass = 1 / (len(present) * counts[truth]) if balanced else np.full(len(label), 1 / len(label))
    is_class = truth == np.arange(len(present))[:, None]
    ridge = 1 / (strength * len(label))
    logits = np.zeros(is_class.shape)
    shape = logits[free].shape[0], inputs.shape[1] + 1

    def loss(flat: Floats) -> tuple[float, Floats]:
        table = flat.reshape(shape)
        weight = table[:, :-1]
        logits[free] = weight @ inputs.T + table[:, -1:]
        chance, log_total, used = _softmax(logits)
        missed = log_total - used[truth, np.arange(len(truth))]
        error = ((chance - is_class) * mass)[free]
        slope = np.column_stack([error @ inputs + ridge * weight, error.sum(axis=1)])
        return float(mass @ missed + ridge / 2 * (weight**2).sum()), slope.ravel()

    table = np.zeros((len(present), shape[1]))
    table[free] = minimum(loss, np.zeros(shape).ravel(), iterations).reshape(shape)
    weight, bias = np.zeros((classes, inputs.shape[1])), np.full(classes, _NEVER)
    weight[present], bias[present] = table[:, :-1], table[:, -1]
    return Logistic(weight, bias)


def _softmax(logits: Floats) -> tuple[Floats, Floats, Floats]:
    """Return probabilities (classes, n), the logarithm of the odds' sum, and the logits used."""
    logits = logits - logits.max(axis=0)
    odds = np.exp(logits)
    total = odds.sum(axis=0)
    return odds / total, np.log(total), logits


def minimum(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, iterations: int
) -> Floats:
    """Return where a smooth convex function, given with its slope, is lowest."""
    at, (value, slope) = start, loss(start)
    past: deque[tuple[Floats, Floats]] = deque(maxlen=_REMEMBERED)
    for _ in range(iterations):
        if np.abs(slope).max() <= _TOLERANCE:
            break
        step = _direction(slope, past)
        size, promised = 1.0, float(slope @ step)
        for _ in range(_HALVINGS):
            there = at + size * step
            low, turned = loss(there)
            if low <= value + _DECREASE * size * promised:
                break
            size /= 2
        else:
            break  # rounding leaves nothing to gain
        if (turned - slope) @ step > 0:
            past.append((there - at, turned - slope))
        at, value, slope = there, low, turned
    return at


def _direction(slope: Floats, past: deque[tuple[Floats, Floats]]) -> Floats:
    """Return the step downwards, by the curvature that past steps have met."""
    step, shares = -slope, []
    for moved, turned in reversed(past):
        shares.append(moved @ step / (moved @ turned))
        step = step - shares[-1] * turned
    if past:
        moved, turned = past[-1]
        step = step * (moved @ turned / (turned @ turned))
    else:
        step = step / max(1.0, float(np.linalg.norm(slope)))
    for moved, turned in past:
        step = step + (shares.pop() - turned @ step / (moved @ turned)) * moved
    return step
