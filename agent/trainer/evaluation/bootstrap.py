"""Confidence intervals by resampling groups of windows: windows of a group are not independent.

A group is an episode; where there are fewer than ten, it is a contiguous block of an episode, of
at least two windows' length. Every metric is computed from sums over groups: a thousand resamples
are a few matrix products.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.metrics import (
    BINARY_METRICS,
    BINS,
    Scored,
    Thresholds,
    bin_of,
    brier_terms,
    confidence,
)

LEAST_EPISODES: Final = 10
BLOCKS: Final = 40  # about so many in all, where episodes are too few
MOST_GROUPS: Final = 512  # beyond it, neighbouring groups are merged
INTERVAL: Final = (0.025, 0.975)
_LEAST_VALID: Final = 0.5  # share of resamples that must define a metric
_CHUNK: Final = 4_000_000  # numbers in a matrix at once

Interval = list[float] | None


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


class Resamples:
    """Draws of all groups (n,) of windows with replacement: how often each draw has each group."""

    def __init__(self, groups: Ints, n_resamples: int, seed: int) -> None:
        self._groups = groups
        self._count = count = int(groups.max()) + 1
        rng, chances = np.random.default_rng(seed), np.full(count, 1 / count)
        drawn = rng.multinomial(count, chances, n_resamples if count > 1 else 0)
        self._weights = drawn.astype(np.float64)  # (resamples, groups)

    def sums(self, values: Floats | Bools) -> Floats:
        """Return the sum (resamples,) of the windows' `values` (n,) in each resample."""
        return np.asarray(
            self._weights @ np.bincount(self._groups, weights=values, minlength=self._count)
        )

    def sums_by(self, key: Ints, values: Floats | Bools, keys: int) -> Floats:
        """Return the sums (resamples, keys) of the windows' `values` (n,) by their `key` (n,)."""
        cells = np.bincount(self._groups * keys + key, weights=values, minlength=self._count * keys)
        return np.asarray(self._weights @ cells.reshape(self._count, keys))

    def areas(self, positive: Bools, score: Floats) -> Floats:
        """Return the area (resamples,) under the ROC curve of `score` (n,); ties count half."""
        wins = self._wins(positive, score)
        pairs = self.sums(positive) * self.sums(~positive)
        won = ((self._weights @ wins) * self._weights).sum(axis=1)
        return _ratio(won, pairs)

    def precisions(self, positive: Bools, score: Floats) -> Floats:
        """Return the average precision (resamples,) of `score` (n,), as scikit-learn defines it."""
        places = np.unique(score[positive])[::-1]  # precision counts where recall grows
        of_groups = [self._groups == group for group in range(self._count)]
        above = np.stack([_at_least(places, score[mine]) for mine in of_groups])
        true = np.stack([_at_least(places, score[mine & positive]) for mine in of_groups])
        found = np.empty(len(self._weights))
        step = max(1, _CHUNK // max(1, len(places)))
        for at in range(0, len(found), step):
            weights = self._weights[at : at + step]
            called, hits = weights @ above, weights @ true
            gains = np.diff(hits, axis=1, prepend=0.0)
            precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
            found[at : at + step] = _ratio((precision * gains).sum(axis=1), hits[:, -1])
        return found

    def _wins(self, positive: Bools, score: Floats) -> Floats:
        """Return (groups, groups): pairs of one's positive above the other's negative."""
        values, rank = np.unique(score, return_inverse=True)
        wins = np.empty((self._count, self._count))
        for other in range(self._count):
            negatives = rank[(self._groups == other) & ~positive]
            at = np.bincount(negatives, minlength=len(values))
            below = np.cumsum(at) - 0.5 * at
            won = below[rank[positive]]
            wins[:, other] = np.bincount(self._groups[positive], weights=won, minlength=self._count)
        return wins


def _at_least(places: Floats, score: Floats) -> Floats:
    """Return how many of `score` (n,) reach each of `places` (m,)."""
    return len(score) - np.searchsorted(np.sort(score), places, side="left").astype(float)


def binary_intervals(part: Scored, thresholds: Thresholds, draws: Resamples) -> dict[str, Interval]:
    """Return the 95 % intervals of the metrics of a binary task."""
    positive, score = part.label == 1, part.score
    both = bool(positive.any() and not positive.all())
    found: dict[str, Floats | None] = dict.fromkeys(BINARY_METRICS)
    found["auroc"] = draws.areas(positive, score) if both else None
    found["average_precision"] = draws.precisions(positive, score) if positive.any() else None
    positives, negatives = draws.sums(positive), draws.sums(~positive)
    if thresholds.decision is not None:
        called = score >= thresholds.decision
        hits, false = draws.sums(called & positive), draws.sums(called & ~positive)
        found["f1"] = _ratio(2 * hits, hits + false + positives)
        recall, spared = _ratio(hits, positives), 1 - _ratio(false, negatives)
        found["balanced_accuracy"] = (recall + spared) / 2
    if thresholds.alarm is not None:
        alarms = score > thresholds.alarm
        found["tpr_at_fpr"] = _ratio(draws.sums(alarms & positive), positives)
        found["fpr_realised"] = _ratio(draws.sums(alarms & ~positive), negatives)
    if part.probable:
        found |= _of_probabilities(part, draws)
    return {f"{name}_ci": _interval(values) for name, values in found.items()}


def multiclass_intervals(part: Scored, draws: Resamples) -> dict[str, Interval]:
    """Return the 95 % intervals of the metrics of a task of several classes."""
    present, called = np.unique(part.label), part.score.argmax(axis=1)
    everyone = np.ones(len(part.label))
    recalls, f1s, areas, precisions = [], [], [], []
    for k in present:
        truth, told = part.label == k, called == k
        hits, size = draws.sums(truth & told), draws.sums(truth)
        recalls.append(_ratio(hits, size))
        # A resample without the class does not define its F1, whatever was called by its name.
        f1s.append(_ratio(2 * hits, np.where(size > 0, draws.sums(told) + size, 0.0)))
        if len(present) > 1:
            areas.append(draws.areas(truth, part.score[:, k]))
            precisions.append(draws.precisions(truth, part.score[:, k]))
    found: dict[str, Floats | None] = {
        "accuracy": _ratio(draws.sums(called == part.label), draws.sums(everyone)),
        "balanced_accuracy": np.mean(recalls, axis=0),
        "macro_f1": np.mean(f1s, axis=0),
        "auroc": np.mean(areas, axis=0) if areas else None,
        "average_precision": np.mean(precisions, axis=0) if precisions else None,
    } | _of_probabilities(part, draws)
    return {f"{name}_ci": _interval(values) for name, values in found.items()}


def _of_probabilities(part: Scored, draws: Resamples) -> dict[str, Floats | None]:
    size = draws.sums(np.ones(len(part.label)))
    given, true = confidence(part)
    gaps = draws.sums_by(bin_of(given), given - true, BINS)
    return {
        "brier": _ratio(draws.sums(brier_terms(part)), size),
        "calibration_error": _ratio(np.abs(gaps).sum(axis=1), size),
    }


def _interval(values: Floats | None) -> Interval:
    if values is None or not len(values):
        return None
    defined = values[np.isfinite(values)]
    if len(defined) < _LEAST_VALID * len(values):
        return None
    low, high = np.quantile(defined, INTERVAL)
    return [float(low), float(high)]


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / np.where(whole > 0, whole, np.nan))
