"""Confidence intervals by resampling groups of windows, for windows of a group are not independent.

A group is an episode; where there are fewer than ten, it is a contiguous block of an episode, of
at least two windows' length. The AUROC of a resample follows from how often each group's positives
score above each other group's negatives, counted once: a thousand resamples are two products of
matrices.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.arrays import Bools, Floats, Ints
from agent.trainer.data import WindowIndex

LEAST_EPISODES: Final = 10
BLOCKS: Final = 40  # about so many in all, where episodes are too few
MOST_GROUPS: Final = 512  # beyond it, neighbouring groups are merged
INTERVAL: Final = (0.025, 0.975)
_LEAST_VALID: Final = 0.5  # share of resamples that must hold both classes


def resampling_groups(index: WindowIndex, windows: Ints) -> tuple[Ints, str]:
    """Return the group (n,) of each of `windows`, numbered from 0, and what a group is."""
    episode, start = index.episode[windows], index.start[windows]
    if len(np.unique(episode)) >= LEAST_EPISODES:
        _, groups = np.unique(episode, return_inverse=True)
        return _merged(groups), "episode"
    rows = sum(int(np.ptp(start[episode == e])) + index.length for e in np.unique(episode))
    block_rows = max(2 * index.length, -(-rows // BLOCKS))
    keys = np.stack([episode, start // block_rows], axis=1)
    _, groups = np.unique(keys, axis=0, return_inverse=True)
    return _merged(groups.ravel()), f"block of {block_rows} rows"


def _merged(groups: Ints) -> Ints:
    count = int(groups.max()) + 1
    return groups if count <= MOST_GROUPS else groups * MOST_GROUPS // count


def auroc_interval(
    positive: Bools, score: Floats, groups: Ints, n_resamples: int, seed: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of the area under the ROC curve, or None where it is undefined.

    `positive` (n, classes) says whether a window is of a class, `score` (n, classes) how much it
    looks so; the areas of several classes are averaged.
    """
    count = int(groups.max()) + 1
    if n_resamples == 0 or count < 2:
        return None
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), n_resamples)
    weights = drawn.astype(np.float64)
    areas = np.stack(
        [_areas(positive[:, k], score[:, k], groups, weights) for k in range(score.shape[1])]
    ).mean(axis=0)
    areas = areas[np.isfinite(areas)]
    if len(areas) < _LEAST_VALID * n_resamples:
        return None
    low, high = np.quantile(areas, INTERVAL)
    return float(low), float(high)


def _areas(positive: Bools, score: Floats, groups: Ints, weights: Floats) -> Floats:
    """Return the area (resamples,) under the ROC curve for group weights (resamples, groups)."""
    count = weights.shape[1]
    wins = _wins(positive, score, groups, count)
    positives = weights @ np.bincount(groups[positive], minlength=count)
    negatives = weights @ np.bincount(groups[~positive], minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((weights @ wins) * weights).sum(axis=1) / (positives * negatives))


def _wins(positive: Bools, score: Floats, groups: Ints, count: int) -> Floats:
    """Return (groups, groups): pairs of one's positive above the other's negative, ties half."""
    values, rank = np.unique(score, return_inverse=True)
    wins = np.empty((count, count))
    for other in range(count):
        negatives = rank[(groups == other) & ~positive]
        at = np.bincount(negatives, minlength=len(values))
        below = np.cumsum(at) - 0.5 * at
        won = below[rank[positive]]
        wins[:, other] = np.bincount(groups[positive], weights=won, minlength=count)
    return wins
