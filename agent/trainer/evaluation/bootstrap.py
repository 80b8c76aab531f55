"""Sums over resamples of groups of windows: windows of a group are not independent.

A group is an episode; where there are fewer than ten, it is a contiguous block of an episode, of
at least two windows' length. Every metric is computed from sums over groups: a thousand resamples
are a few matrix products.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.data.dataset import WindowIndex

LEAST_EPISODES: Final = 10
BLOCKS: Final = 40  # about so many in all, where episodes are too few
MOST_GROUPS: Final = 512  # beyond it, neighbouring groups are merged
INTERVAL: Final = (0.025, 0.975)
_LEAST_VALID: Final = 0.5  # share of resamples that must define a metric
_CHUNK: Final = 4_000_000  # numbers in a matrix at once


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


class Draws:
    """The groups (n,) of windows, drawn several times; the first draw has each group once.

    The other draws are resamples with replacement. One group alone is not resampled.
    """

    def __init__(self, groups: Ints, n_resamples: int = 0, seed: int = 0) -> None:
        self._groups = groups
        self._count = count = int(groups.max()) + 1
        rng, chances = np.random.default_rng(seed), np.full(count, 1 / count)
        drawn = rng.multinomial(count, chances, n_resamples if count > 1 else 0)
        self._weights = np.vstack([np.ones(count), drawn])  # (draws, groups)

    def __len__(self) -> int:
        return len(self._weights)

    def sums(self, values: Floats | Bools) -> Floats:
        """Return the sum (draws,) of the windows' `values` (n,) in each draw."""
        return np.asarray(
            self._weights @ np.bincount(self._groups, weights=values, minlength=self._count)
        )

    def sums_by(self, key: Ints, values: Floats | Bools, keys: int) -> Floats:
        """Return the sums (draws, keys) of the windows' `values` (n,) by their `key` (n,)."""
        cells = np.bincount(self._groups * keys + key, weights=values, minlength=self._count * keys)
        return np.asarray(self._weights @ cells.reshape(self._count, keys))

    def areas(self, positive: Bools, score: Floats) -> Floats:
        """Return the area (draws,) under the ROC curve of `score` (n,); ties count half."""
        wins = self._wins(positive, score)
        pairs = self.sums(positive) * self.sums(~positive)
        return ratio(((self._weights @ wins) * self._weights).sum(axis=1), pairs)

    def precisions(self, positive: Bools, score: Floats) -> Floats:
        """Return the average precision (draws,) of `score` (n,), as scikit-learn defines it."""
        found = np.full(len(self), np.nan)
        places = np.unique(score[positive])[::-1]  # precision counts where recall grows
        if not len(places):
            return found
        of_groups = [self._groups == group for group in range(self._count)]
        above = np.stack([_at_least(places, score[mine]) for mine in of_groups])
        true = np.stack([_at_least(places, score[mine & positive]) for mine in of_groups])
        step = max(1, _CHUNK // len(places))
        for at in range(0, len(found), step):
            weights = self._weights[at : at + step]
            called, hits = weights @ above, weights @ true
            gains = np.diff(hits, axis=1, prepend=0.0)
            precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
            found[at : at + step] = ratio((precision * gains).sum(axis=1), hits[:, -1])
        return found

    def _wins(self, positive: Bools, score: Floats) -> Floats:
        """Return (groups, groups): pairs of one's positive above the other's negative."""
        values, rank = np.unique(score, return_inverse=True)
        wins = np.empty((self._count, self._count))
        for other in range(self._count):
            negatives = rank[(self._groups == other) & ~positive]
            at = np.bincount(negatives, minlength=len(values))
            won = (np.cumsum(at) - 0.5 * at)[rank[positive]]
            wins[:, other] = np.bincount(self._groups[positive], weights=won, minlength=self._count)
        return wins


def _at_least(places: Floats, score: Floats) -> Floats:
    """Return how many of `score` (n,) reach each of `places` (m,)."""
    return len(score) - np.searchsorted(np.sort(score), places, side="left").astype(float)


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return `part` divided by `whole`, NaN where that is not positive."""
    found = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return found


def interval(values: Floats) -> list[float] | None:
    """Return the 95 % interval of resampled `values`, or None where too few are defined."""
    defined = values[np.isfinite(values)]
    if not len(values) or len(defined) < _LEAST_VALID * len(values):
        return None
    low, high = np.quantile(defined, INTERVAL)
    return [float(low), float(high)]
