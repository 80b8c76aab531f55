"""Which windows are trained on, validated on, and tested on (docs/reference/trainers.md).

Windows overlap, so a window that reaches over a border is in no part (purged): no two windows of
different parts share a row. Where chance decides, the first of some draws is taken whose parts hold
every class, or else the one whose parts lack the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools, Ints
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.dataset import WindowIndex

TRAIN: Final = 0
VALIDATION: Final = 1
TEST: Final = 2
PURGED: Final = -1
_PARTS: Final = (TRAIN, VALIDATION, TEST)

_SHARES: Final = (0.6, 0.2, 0.2)
_OF_CHOSEN: Final = _SHARES[VALIDATION] / (1 - _SHARES[TEST])  # to validate, of hosts asked for
_CARVED_SHARES: Final = (0.8, 0.2, 0.0)  # train and validation within the hosts trained on
_BLOCK_WINDOWS: Final = 4  # lengths of a window in a block
_LEAST_HOSTS: Final = 3  # to spare one of them for validation
_OF_FOLD: Final = 0.25  # at most, to validate, of the hosts that a fold trains on
_DRAWS: Final = 50
_NAMES: Final = ("training", "validation", "test")


@dataclass(frozen=True)
class Splits:
    """The part of each window: (n,) of TRAIN, VALIDATION, TEST or PURGED."""

    part: Ints
    labelled: Bools

    def windows(self, part: int) -> Ints:
        """Return the labelled windows of a part, ascending."""
        return np.flatnonzero((self.part == part) & self.labelled)

    def unlabelled(self, part: int) -> Ints:
        """Return the unlabelled windows of a part, ascending."""
        return np.flatnonzero((self.part == part) & ~self.labelled)

    def sizes(self) -> dict[str, int]:
        """Return how many labelled windows each part has, and how many were purged."""
        counts = {name: len(self.windows(part)) for part, name in enumerate(_NAMES)}
        return counts | {"purged": int(((self.part == PURGED) & self.labelled).sum())}


def split(index: WindowIndex, recipe: str, train_hosts: Sequence[str], seed: int) -> Splits:
    """Split all windows. Raises BadInputError for hosts of which none is left to test on."""
    chosen = _host_numbers(index, train_hosts)
    rng = np.random.default_rng(seed)
    if recipe == "time":
        part = _restricted(index, chosen, _by_time(index))
    elif recipe == "sample":
        part = _best_covering(
            index, lambda: _restricted(index, chosen, _by_blocks(index, _SHARES, rng))
        )
    else:
        part = _by_host(index, chosen, rng)
    return Splits(part, index.labelled)


def fold_hosts(index: WindowIndex, train_hosts: Sequence[str], folds: int, seed: int) -> list[Ints]:
    """Return the hosts of each fold, by number: at most one fold a host that has labels.

    `train_hosts` restricts the data to these hosts. Raises BadInputError for fewer than two hosts.
    """
    hosts = _labelled_hosts(index)
    if len(chosen := _host_numbers(index, train_hosts)):
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

    fold = _best_covering(index, draw, range(count))
    return [np.unique(index.host[fold == number]) for number in range(count)]


def split_fold(
    index: WindowIndex, train_hosts: Sequence[str], folds: int, fold: int, seed: int
) -> Splits:
    """Split all windows so that the hosts of `fold`, counted from 1, are tested; of 0 none is.

    Raises BadInputError where there is no such fold.
    """
    groups = fold_hosts(index, train_hosts, folds, seed)
    if fold > len(groups):
        problem = f"there are {len(groups)} folds, one for each host with labels at most"
        raise BadInputError.at("fold", str(fold), problem, f"give 1 to {len(groups)}")
    chosen, rng = _host_numbers(index, train_hosts), np.random.default_rng([seed, fold])
    hosts = np.sort(np.concatenate(groups))
    test = groups[fold - 1] if fold else hosts[:0]
    pool = np.setdiff1d(hosts, test)
    count = min(round(_SHARES[VALIDATION] * len(hosts)), round(_OF_FOLD * len(pool)))

    def draw() -> Ints:
        part = _hold_out(index, test, rng.permutation(pool), count, rng)
        return _restricted(index, chosen, part)

    parts = (TRAIN, VALIDATION, TEST) if fold else (TRAIN, VALIDATION)
    return Splits(_best_covering(index, draw, parts), index.labelled)


def _host_numbers(index: WindowIndex, names: Sequence[str]) -> Ints:
    """Return hosts as numbers, ascending. Raises BadInputError for one that the data lacks."""
    for name in names:
        if name not in index.hosts:
            known = f"the data has {', '.join(index.hosts)}"
            raise BadInputError.at("train_hosts", name, "no such host", known)
    return np.array(sorted({index.hosts.index(name) for name in names}), dtype=np.int64)


def _restricted(index: WindowIndex, chosen: Ints, part: Ints) -> Ints:
    """Return `part` (n,), of the chosen hosts alone if there are any."""
    return np.where(np.isin(index.host, chosen), part, PURGED) if len(chosen) else part


def _best_covering(
    index: WindowIndex, draw: Callable[[], Ints], parts: Sequence[int] = _PARTS
) -> Ints:
    """Return the first draw whose `parts` hold every class, or else lack the fewest of them."""
    # Counted, not asked for: what a fixed test part lacks must not decide about the other parts.
    classes = np.unique(index.label[index.labelled])
    best, most = None, -1
    for _ in range(_DRAWS):
        part = draw()
        held = sum(int(np.isin(classes, index.label[part == number]).sum()) for number in parts)
        if held > most:
            best, most = part, held
        if held == len(parts) * len(classes):
            break
    assert best is not None  # noqa: S101 - _DRAWS is not 0
    return best


def _labelled_hosts(index: WindowIndex) -> Ints:
    """Return the hosts that have labels, or all if none has."""
    return np.unique(index.host[index.labelled] if index.labelled.any() else index.host)


def _by_host(index: WindowIndex, chosen: Ints, rng: np.random.Generator) -> Ints:
    hosts = _labelled_hosts(index)
    if len(hosts) < 2 or not len(np.setdiff1d(hosts, chosen)):
        problem = f"of {len(hosts)} hosts with labels none is left to test on"
        remedy = "leave some out of train_hosts, or use the time recipe"
        raise BadInputError.at("split_recipe", "host", problem, remedy)
    return _best_covering(index, lambda: _draw_hosts(index, hosts, chosen, rng))


def _draw_hosts(index: WindowIndex, hosts: Ints, chosen: Ints, rng: np.random.Generator) -> Ints:
    drawn = rng.permutation(hosts)
    count = round(_SHARES[VALIDATION] * len(hosts))
    if len(chosen):
        test = np.setdiff1d(np.unique(index.host), chosen)
        pool = drawn[np.isin(drawn, chosen)]
        return _hold_out(index, test, pool, min(count, round(_OF_CHOSEN * len(pool))), rng)
    tested = max(1, round(_SHARES[TEST] * len(hosts)))
    least = 2 if len(hosts) - tested == 2 else _LEAST_HOSTS
    return _hold_out(index, drawn[:tested], drawn[tested:], count, rng, least)


def _hold_out(
    index: WindowIndex,
    test: Ints,
    pool: Ints,
    count: int,
    rng: np.random.Generator,
    least: int = _LEAST_HOSTS,
) -> Ints:
    """Return the parts: hosts to `test`, and of the `pool` about `count` to validate on.

    Of fewer than `least` hosts, none can be spared: blocks of their time validate.
    """
    count = max(1, count)
    if len(pool) >= max(least, count + 1):
        part = np.full(len(index), TRAIN)
        part[np.isin(index.host, pool[:count])] = VALIDATION
    else:
        part = _by_blocks(index, _CARVED_SHARES, rng)
    part[np.isin(index.host, test)] = TEST
    return part


def _by_time(index: WindowIndex) -> Ints:
    """Return the parts by the share of its host's labelled rows that come before a window."""
    rows = np.zeros(len(index.episodes), dtype=np.int64)
    np.maximum.at(rows, index.episode, index.start + index.length)
    with_labels = np.unique(index.episode[index.labelled]) if index.labelled.any() else None
    part = np.full(len(index), TRAIN)
    for host in range(len(index.hosts)):
        of_host = index.host == host
        stored = index.episode[of_host][np.sort(np.unique(index.episode[of_host], True)[1])]
        episodes = stored if with_labels is None else stored[np.isin(stored, with_labels)]
        before = np.zeros(len(index.episodes), dtype=np.int64)
        before[episodes] = np.cumsum(rows[episodes]) - rows[episodes]
        windows = np.flatnonzero(np.isin(index.episode, episodes))
        first = before[index.episode[windows]] + index.start[windows]
        cuts = np.floor(np.cumsum(_SHARES)[:2] * rows[episodes].sum())
        of_first = np.searchsorted(cuts, first, side="right")
        of_last = np.searchsorted(cuts, first + index.length - 1, side="right")
        part[windows] = np.where(of_first == of_last, of_first, PURGED)
    return part


def _by_blocks(index: WindowIndex, shares: Sequence[float], rng: np.random.Generator) -> Ints:
    """Return the parts by blocks of rows, dealt out to each host's windows by `shares`."""
    block_rows = _BLOCK_WINDOWS * index.length
    first = index.start // block_rows
    last = (index.start + index.length - 1) // block_rows
    per_episode = int(last.max()) + 1
    part_of_block = np.full(len(index.episodes) * per_episode, PURGED)
    key_first = index.episode * per_episode + first
    key_last = index.episode * per_episode + last
    for host in range(len(index.hosts)):
        blocks = np.unique(np.append(key_first[index.host == host], key_last[index.host == host]))
        ends = np.round(np.cumsum(shares) * len(blocks)).astype(np.int64)
        dealt = np.searchsorted(ends, np.arange(len(blocks)), side="right")
        part_of_block[rng.permutation(blocks)] = dealt
    of_first, of_last = part_of_block[key_first], part_of_block[key_last]
    return np.where(of_first == of_last, of_first, PURGED)
