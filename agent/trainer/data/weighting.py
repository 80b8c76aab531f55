"""Class weights: how a loss makes up for rare classes, and how that is taken back."""

from __future__ import annotations

import numpy as np

from agent.trainer.common.arrays import Floats, Ints


def unweighted(probabilities: Floats, weights: Floats) -> Floats:
    """Undo for the probabilities (n, classes) what class weights (classes,) did to the loss.

    A classifier that is trained with them learns odds that are off by their ratio.
    """
    found = probabilities / weights
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def class_weights(label: Ints, classes: int, power: float) -> Floats:
    """Return a weight a class (classes,): inverse frequency to `power`, of mean 1 over `label`."""
    counts = np.bincount(label, minlength=classes)
    weights = (len(label) / (classes * np.maximum(counts, 1))) ** power
    return np.asarray(weights * len(label) / (weights * counts).sum())
