"""AUROC and average precision: of draws of windows (for reports), and of scores."""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints

_CHUNK: Final = 4_000_000  # numbers in a matrix at once


def auroc(positive: Bools, score: Floats) -> float:
    """Return the area under the ROC curve; both classes have to be there."""
    lower, higher = np.sort(score[~positive]), np.sort(score[positive])
    won = [np.searchsorted(lower, higher, side=side).sum() for side in ("left", "right")]
    return float(sum(won) / (2 * len(lower) * len(higher)))


def aurocs(weights: Floats, groups: Ints, positive: Bools, score: Floats) -> Floats:
    """Return the AUROC (draws,) of `score` (n,) with the `weights` (draws, groups) of each draw."""
    count = weights.shape[1]
    sizes = [np.bincount(groups, weights=which, minlength=count) for which in (positive, ~positive)]
    won = ((weights @ _wins(count, groups, positive, score)) * weights).sum(axis=1)
    return ratio(won, (weights @ sizes[0]) * (weights @ sizes[1]))


def _wins(count: int, groups: Ints, positive: Bools, score: Floats) -> Floats:
    """Return (groups, groups): pairs of one's positive above the other's negative."""
    values, rank = np.unique(score, return_inverse=True)
    wins = np.empty((count, count))
    for other in range(count):
        negatives = rank[(groups == other) & ~positive]
        at = np.bincount(negatives, minlength=len(values))
        won = (np.cumsum(at) - 0.5 * at)[rank[positive]]
        wins[:, other] = np.bincount(groups[positive], weights=won, minlength=count)
    return wins


def average_precisions(weights: Floats, groups: Ints, positive: Bools, score: Floats) -> Floats:
    """Return the average precision (draws,) of scikit-learn; both classes have to be there."""
    found = np.full(len(weights), np.nan)
    places = np.unique(score[positive])[::-1]  # precision counts where recall grows
    if not len(places):
        return found
    of_groups = [groups == group for group in range(weights.shape[1])]
    above = np.stack([_at_least(places, score[mine]) for mine in of_groups])
    true = np.stack([_at_least(places, score[mine & positive]) for mine in of_groups])
    step = max(1, _CHUNK // len(places))
    for at in range(0, len(found), step):
        some = weights[at : at + step]
        called, hits = some @ above, some @ true
        gains = np.diff(hits, axis=1, prepend=0.0)
        precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
        found[at : at + step] = ratio((precision * gains).sum(axis=1), hits[:, -1])
    negatives = weights @ np.bincount(groups, weights=~positive, minlength=weights.shape[1])
    return np.where(negatives > 0, found, np.nan)


def _at_least(places: Floats, score: Floats) -> Floats:
    """Return how many of `score` (n,) reach each of `places` (m,)."""
    return len(score) - np.searchsorted(np.sort(score), places, side="left").astype(float)


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return `part` divided by `whole`, NaN where that is not positive."""
    found = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return found
