"""Summary features of windows, ten a channel; and class weights, how a loss counts rare classes."""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats, Ints

STATISTICS: Final = (
    "mean",
    "std",
    "min",
    "q25",
    "median",
    "q75",
    "max",
    "slope",
    "mean_abs_change",
    "max_abs_change",
)


def summarise(windows: Floats) -> Floats:
    """Return the statistics of `windows` (n, channels, steps) as (n, channels, statistics) float32.

    Quantiles are those of the sorted steps without interpolation; the slope is that of the least
    squares line, per step. A window's numbers do not depend on which windows are beside it.
    """
    steps = windows.shape[-1]
    series = np.ascontiguousarray(windows, dtype=np.float32)
    ordered = np.sort(series, axis=-1)
    change = np.abs(np.diff(series, axis=-1))
    time = np.arange(steps, dtype=np.float32) - np.float32((steps - 1) / 2)
    mean = series.mean(axis=-1, keepdims=True)
    slope = ((series - mean) * time).sum(axis=-1) / np.float32((time**2).sum())
    quantiles = [ordered[..., round(share * (steps - 1))] for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    columns = [mean[..., 0], series.std(axis=-1), *quantiles, slope]
    columns += [change.mean(axis=-1), change.max(axis=-1)]
    return np.stack(columns, axis=-1)


def unweighted(probabilities: Floats, weights: Floats) -> Floats:
    """Return probabilities (n, classes) as if learnt without class weights (classes,)."""
    found = probabilities / weights
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def class_weights(label: Ints, classes: int, power: float) -> Floats:
    """Return a weight a class (classes,): inverse frequency to `power`, of mean 1 over `label`."""
    counts = np.bincount(label, minlength=classes)
    weights = (len(label) / (classes * np.maximum(counts, 1))) ** power
    return np.asarray(weights * len(label) / (weights * counts).sum())
