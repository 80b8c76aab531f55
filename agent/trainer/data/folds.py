"""Folds over hosts: each host is tested once, by a model that has learnt from other hosts alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Ints
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.data.splits import (
    TEST,
    TRAIN,
    VALIDATION,
    Splits,
    best_covering,
    check_parts,
    hold_out,
    host_numbers,
    labelled_hosts,
    restricted,
)

_VALIDATE: Final = 0.2  # share of all hosts, at most a quarter of those trained on
_OF_POOL: Final = 0.25


def fold_hosts(index: WindowIndex, train_hosts: Sequence[str], folds: int, seed: int) -> list[Ints]:
    """Return the hosts of each fold, by number: at most one fold a host that has labels.

    `train_hosts` restricts the data to these hosts. Raises BadInputError for fewer than two hosts.
    """
    hosts = labelled_hosts(index)
    if len(chosen := host_numbers(index, train_hosts)):
        hosts = np.intersect1d(hosts, chosen)
    if len(hosts) < 2:
        problem = f"{len(hosts)} hosts with labels; folds need two"
        raise BadInputError.at("split_recipe", "folds", problem, "use the time recipe")
    count, rng = min(folds, len(hosts)), np.random.default_rng(seed)

    def draw() -> Ints:
        fold = np.full(len(index), -1)
        for number, mine in enumerate(np.array_split(rng.permutation(hosts), count)):
            fold[np.isin(index.host, mine)] = number
        return fold

    fold = best_covering(index, draw, range(count))
    return [np.unique(index.host[fold == number]) for number in range(count)]


def split_fold(
    index: WindowIndex, train_hosts: Sequence[str], folds: int, fold: int, seed: int
) -> Splits:
    """Split all windows so that the hosts of `fold`, counted from 1, are tested; of 0 none is.

    Raises BadInputError where a part would have no labelled window, or there is no such fold.
    """
    groups = fold_hosts(index, train_hosts, folds, seed)
    if fold > len(groups):
        problem = f"there are {len(groups)} folds, one for each host with labels at most"
        raise BadInputError.at("fold", str(fold), problem, f"give 1 to {len(groups)}")
    chosen, rng = host_numbers(index, train_hosts), np.random.default_rng([seed, fold])
    hosts = np.sort(np.concatenate(groups))
    test = groups[fold - 1] if fold else hosts[:0]
    pool = np.setdiff1d(hosts, test)
    count = min(round(_VALIDATE * len(hosts)), round(_OF_POOL * len(pool)))

    def draw() -> Ints:
        part = hold_out(index, test, rng.permutation(pool), count, rng)
        return restricted(index, chosen, part)

    parts = (TRAIN, VALIDATION, TEST) if fold else (TRAIN, VALIDATION)
    splits = Splits(best_covering(index, draw, parts), index.labelled)
    check_parts(splits, "folds", any_label=bool(index.labelled.any()), parts=parts)
    return splits
