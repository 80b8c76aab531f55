"""Resamples of hosts, episodes and blocks, and sums and means of metrics over them.

Windows of an episode depend on each other, and so do those of a host. With `LEAST_HOSTS` or more
hosts a resample draws hosts, and then groups of windows within each: the result speaks for hosts
like these. With fewer, groups are drawn within each host: it speaks for these hosts only.

A group is an episode, or a block of one where its host has few of them. Every metric is computed
from sums over groups: a thousand resamples are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.auroc import aurocs, average_precisions, ratio

LEAST_HOSTS: Final = 5
LEAST_EPISODES: Final = 10  # of a host, for them to be its groups
BLOCKS: Final = 40  # of a host at most, where it has fewer
MOST_GROUPS: Final = 512  # of all hosts; beyond it, neighbours are merged


@dataclass(frozen=True)
class Groups:
    """The group (n,) of each window, the host (groups,) of each group, both numbered from 0.

    `what` names a group.
    """

    of_window: Ints
    host: Ints
    what: str

    @property
    def hosts(self) -> int:
        """Return the number of hosts."""
        return int(self.host.max()) + 1

    @property
    def over_hosts(self) -> bool:
        """Whether there are enough hosts to speak for others."""
        return self.hosts >= LEAST_HOSTS

    def holding(self, windows: Bools) -> int:
        """Return how many groups hold one of these windows (n,)."""
        return len(np.unique(self.of_window[windows]))


def one_group(windows: int) -> Groups:
    """Return a single group of so many windows."""
    return Groups(np.zeros(windows, dtype=np.int64), np.zeros(1, dtype=np.int64), "part")


def resampling_groups(index: WindowIndex, windows: Ints) -> Groups:
    """Return the groups of `windows` (n,)."""
    episode, start = index.episode[windows], index.start[windows]
    _, host = np.unique(index.host[windows], return_inverse=True)
    count = int(host.max()) + 1
    _, first = np.unique(episode, return_index=True)
    if np.bincount(host[first], minlength=count).min() >= LEAST_EPISODES:
        _, groups = np.unique(episode, return_inverse=True)
        what = "episode"
    else:
        block_rows = _block_rows(host, episode, start, index.length)
        keys = np.stack([host, episode, start // block_rows], axis=1)
        _, groups = np.unique(keys, axis=0, return_inverse=True)
        what = f"block of {block_rows} rows"
    merged = _merged(groups.ravel(), host)
    _, at = np.unique(merged, return_index=True)
    return Groups(merged, host[at], what)


def _block_rows(host: Ints, episode: Ints, start: Ints, length: int) -> int:
    """Return the rows of a block: at least two windows, at most `BLOCKS` blocks of any host."""
    rows = np.zeros(int(host.max()) + 1, dtype=np.int64)
    for one in np.unique(episode):
        mine = episode == one
        rows[host[mine][0]] += int(np.ptp(start[mine])) + length
    return max(2 * length, -(-int(rows.max()) // BLOCKS))


def _merged(groups: Ints, host: Ints) -> Ints:
    """Return `groups` numbered host by host, neighbours of a host merged if there are too many."""
    most = max(1, MOST_GROUPS // (int(host.max()) + 1))
    merged, begun = np.empty_like(groups), 0
    for one in range(int(host.max()) + 1):
        mine = host == one
        values, place = np.unique(groups[mine], return_inverse=True)
        if len(values) > most:
            place = place * most // len(values)
        merged[mine] = begun + place
        begun += int(place.max()) + 1
    return merged


class Draws:
    """Draws of groups; the first has each group once, the others are resamples.

    One group alone is not resampled. `asked` is how many resamples were asked for.
    """

    def __init__(self, groups: Groups, n_resamples: int = 0, seed: int = 0) -> None:
        self.groups, self.asked = groups, n_resamples
        count = len(groups.host)
        rng, n_resamples = np.random.default_rng(seed), n_resamples if count > 1 else 0
        hosts = np.ones((n_resamples, groups.hosts), dtype=np.int64)
        if groups.over_hosts:
            chances = np.full(groups.hosts, 1 / groups.hosts)
            hosts = rng.multinomial(groups.hosts, chances, n_resamples)
        drawn = np.empty((n_resamples, count))
        for host in range(groups.hosts):
            mine = np.flatnonzero(groups.host == host)
            # Each time that the host is drawn, as many of its groups are as it has.
            chances = np.full(len(mine), 1 / len(mine))
            drawn[:, mine] = rng.multinomial(hosts[:, host] * len(mine), chances)
        self.weights = np.vstack([np.ones(count), drawn])  # (draws, groups)
        self._hosts = np.vstack([np.ones(groups.hosts, dtype=np.int64), hosts])  # (draws, hosts)

    def __len__(self) -> int:
        return len(self.weights)

    def sums(self, values: Floats | Bools) -> Floats:
        """Return the sum (draws,) of the windows' `values` (n,) in each draw."""
        return self.sums_by(np.zeros(len(values), dtype=np.int64), values, 1)[:, 0]

    def sums_by(self, key: Ints, values: Floats | Bools, keys: int) -> Floats:
        """Return the sums (draws, keys) of the windows' `values` (n,) by their `key` (n,)."""
        count = len(self.groups.host)
        cells = np.bincount(
            self.groups.of_window * keys + key, weights=values, minlength=count * keys
        )
        return np.asarray(self.weights @ cells.reshape(count, keys))

    def areas(self, positive: Bools, score: Floats, fold: Ints) -> Floats:
        """Return the area (draws,) under the ROC curve of `score` (n,); ties count half."""
        return self._over_folds(aurocs, positive, score, fold)

    def precisions(self, positive: Bools, score: Floats, fold: Ints) -> Floats:
        """Return the average precision (draws,) of `score` (n,), as scikit-learn defines it."""
        return self._over_folds(average_precisions, positive, score, fold)

    def _over_folds(
        self,
        compute: Callable[[Floats, Ints, Bools, Floats], Floats],
        positive: Bools,
        score: Floats,
        fold: Ints,
    ) -> Floats:
        """Return the mean over the folds (n,) that define it, each as often as it has hosts.

        Scores of different folds come from different models: they are never ranked together
        (Forman and Scholz 2010).
        """
        total, count = np.zeros(len(self)), np.zeros(len(self))
        for one in np.unique(fold):
            mine = fold == one
            held, groups = np.unique(self.groups.of_window[mine], return_inverse=True)
            values = compute(self.weights[:, held], groups, positive[mine], score[mine])
            hosts = self._hosts[:, np.unique(self.groups.host[held])].sum(axis=1)
            hosts = np.where(np.isfinite(values), hosts, 0)
            total += hosts * np.nan_to_num(values)
            count += hosts
        return ratio(total, count)
