"""No knowledge leaks from one part of a split to another, whatever the data looks like."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.trainer.common.errors import BadInputError
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.data.splits import PURGED, TEST, TRAIN, VALIDATION, Splits, split
from tests.harness.windows import an_index, some_hosts

PARTS = (TRAIN, VALIDATION, TEST)


def covered(index: WindowIndex, windows: np.ndarray) -> set[int]:
    """Return the rows of the series that `windows` cover."""
    return {row for at in index.offset[windows] for row in range(at, at + index.length)}


def _windows(splits: Splits, part: int) -> np.ndarray:
    return np.flatnonzero(splits.part == part)


@given(
    episodes=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(60, 400)), min_size=1, max_size=6
    ),
    recipe=st.sampled_from(["host", "sample", "time"]),
    seed=st.integers(0, 20),
    stride=st.integers(1, 15),
    unlabelled=st.integers(0, 1),
)
def test_no_two_parts_share_a_row(
    episodes: list[tuple[str, int]], recipe: str, seed: int, stride: int, unlabelled: int
) -> None:
    index = an_index(episodes, stride=stride, unlabelled=unlabelled)
    try:
        splits = split(index, recipe, (), seed)
    except BadInputError:
        assume(False)
    for one, other in combinations(PARTS, 2):
        rows = (covered(index, _windows(splits, part)) for part in (one, other))
        assert set.isdisjoint(*rows)
    assert splits.sizes()["purged"] < len(index)


@given(hosts=st.integers(2, 9), seed=st.integers(0, 20), chosen=st.integers(0, 5))
def test_no_host_is_both_tested_and_trained_on(hosts: int, seed: int, chosen: int) -> None:
    index = an_index(some_hosts(hosts))
    train_hosts = index.hosts[: min(chosen, hosts - 1)]
    splits = split(index, "host", train_hosts, seed)
    learnt = {*index.host[np.isin(splits.part, (TRAIN, VALIDATION))]}
    tested = set(index.host[_windows(splits, TEST)])
    assert not learnt & tested
    assert len(learnt | tested) == hosts
    if train_hosts:
        assert {index.hosts[host] for host in learnt} == set(train_hosts)
    for part in PARTS:
        assert len(splits.windows(part)) > 0


def test_of_a_few_hosts_to_train_on_most_are_trained_on() -> None:
    for hosts, chosen in ((8, 3), (20, 5), (23, 6)):
        index = an_index(some_hosts(hosts))
        splits = split(index, "host", index.hosts[:chosen], 0)
        train, validation = (set(index.host[splits.windows(part)]) for part in (TRAIN, VALIDATION))
        assert len(train | validation) == chosen
        assert not train & validation
        assert len(train) >= 2 * len(validation)


def test_a_tested_host_without_anomalies_does_not_cost_validation_its_own() -> None:
    """What is tested has no say in who validates; else there may be no threshold to be had."""
    index = an_index(some_hosts(5))
    for seed in range(10):
        parts = []
        for anomalous in ((0, 1, 4), (0, 1)):
            told = replace(index, label=np.where(np.isin(index.host, anomalous), index.label, 0))
            splits = split(told, "host", index.hosts[:4], seed)
            parts.append(splits.part)
            for part in (TRAIN, VALIDATION):
                assert set(told.label[splits.windows(part)]) == {0, 1}, (seed, part)
        assert (parts[0] == parts[1]).all()


def test_blocks_of_other_hosts_do_not_make_up_for_those_of_the_hosts_asked_for() -> None:
    index = an_index([("a", 1200), ("a", 240), ("b", 2400)], unlabelled=1)
    for seed in range(20):
        splits = split(index, "sample", ("a",), seed)
        for part in PARTS:
            assert set(index.label[splits.windows(part)]) == {0, 1}, (seed, part)


def test_time_goes_forward() -> None:
    index = an_index([("a", 400), ("b", 100), ("a", 200), ("b", 300)])
    splits = split(index, "time", (), 0)
    for host in (0, 1):
        spans = [index.offset[splits.windows(part)] for part in PARTS]
        spans = [span[np.isin(span, index.offset[index.host == host])] for span in spans]
        assert spans[0].max() < spans[1].min()
        assert spans[1].max() < spans[2].min()
        shares = np.array([len(span) for span in spans]) / sum(map(len, spans))
        assert np.allclose(shares, (0.6, 0.2, 0.2), atol=0.06)


def test_train_hosts_restrict_the_other_recipes() -> None:
    index = an_index(some_hosts(3, 500))
    for recipe in ("time", "sample"):
        splits = split(index, recipe, ("h01",), 0)
        assert {index.hosts[host] for host in index.host[splits.part != PURGED]} == {"h01"}


@pytest.mark.parametrize(
    ("hosts", "recipe", "train_hosts", "message"),
    [
        (1, "host", (), "use the time recipe"),
        (2, "host", ("h00", "h01"), "leave some out of train_hosts"),
        (2, "host", ("h00", "pi"), "train_hosts: pi: no such host; the data has h00, h01"),
    ],
)
def test_a_split_that_cannot_be_is_refused(
    hosts: int, recipe: str, train_hosts: tuple[str, ...], message: str
) -> None:
    index = an_index(some_hosts(hosts))
    with pytest.raises(BadInputError) as refused:
        split(index, recipe, train_hosts, 0)
    assert message in str(refused.value)
