"""Folds test each host once, by what was learnt from other hosts alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.trainer.common.errors import BadInputError
from agent.trainer.data.splits import PURGED, TEST, TRAIN, VALIDATION, fold_hosts, split_fold
from tests.harness.windows import an_index, some_hosts


@given(hosts=st.integers(2, 12), folds=st.integers(2, 15), seed=st.integers(0, 20))
def test_each_host_is_tested_once_and_by_others(hosts: int, folds: int, seed: int) -> None:
    index = an_index(some_hosts(hosts))
    groups = fold_hosts(index, (), folds, seed)
    assert len(groups) == min(folds, hosts)
    assert sorted(np.concatenate(groups).tolist()) == list(range(hosts))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    for fold, mine in enumerate(groups, 1):
        splits = split_fold(index, (), folds, fold, seed)
        tested = np.unique(index.host[splits.windows(TEST)])
        assert tested.tolist() == mine.tolist()
        learnt = index.host[np.isin(splits.part, (TRAIN, VALIDATION))]
        assert not set(learnt) & set(tested)
        assert all(len(splits.windows(part)) for part in (TRAIN, VALIDATION))


def test_the_model_that_is_kept_learns_from_all_hosts() -> None:
    splits = split_fold(an_index(some_hosts(8)), (), 4, 0, 0)
    assert len(splits.windows(TEST)) == 0
    assert len(splits.windows(TRAIN)) >= 3 * len(splits.windows(VALIDATION))


def test_train_hosts_restrict_the_folds() -> None:
    index = an_index(some_hosts(6))
    chosen = ("h01", "h03", "h04")
    for fold in range(4):
        splits = split_fold(index, chosen, 3, fold, 0)
        used = np.unique(index.host[splits.part != PURGED])
        assert [index.hosts[host] for host in used] == list(chosen)


def test_hosts_without_labels_are_in_no_fold() -> None:
    index = an_index(some_hosts(5))
    told = replace(index, label=np.where(index.host == 0, -1, index.label))
    assert sorted(np.concatenate(fold_hosts(told, (), 9, 0)).tolist()) == [1, 2, 3, 4]
    assert (split_fold(told, (), 9, 1, 0).part[told.host == 0] == TRAIN).all()


@pytest.mark.parametrize(
    ("hosts", "fold", "key"), [(1, 1, "split_recipe"), (3, 4, "fold"), (3, 5, "fold")]
)
def test_folds_that_cannot_be_are_refused(hosts: int, fold: int, key: str) -> None:
    with pytest.raises(BadInputError, match=f"^{key}: "):
        split_fold(an_index(some_hosts(hosts)), (), 5, fold, 0)
