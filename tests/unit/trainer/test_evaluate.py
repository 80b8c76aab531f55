"""Metrics agree with plain definitions, and what the data does not define is said to be so."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from agent.trainer.bootstrap import auroc_interval, resampling_groups
from agent.trainer.data import WindowIndex
from agent.trainer.evaluate import Protocol, Scored, choose_thresholds, evaluate

PROTOCOL = Protocol(("0", "1"), target_fpr=0.05, n_resamples=200, seed=0)


def an_index(n: int, episodes: int, hosts: int = 2) -> WindowIndex:
    """Return n windows that lie side by side, spread evenly over episodes and hosts."""
    episode = np.arange(n) * episodes // n
    start = 10 * (np.arange(n) % (-(-n // episodes)))
    return WindowIndex(
        hosts=tuple(f"h{number}" for number in range(hosts)),
        episodes=tuple(map(str, range(episodes))),
        host=episode % hosts,
        episode=episode,
        offset=10 * np.arange(n),
        start=start,
        label=np.zeros(n, dtype=np.int64),
        length=10,
    )


def a_part(n: int, seed: int, shift: float = 1.0) -> Scored:
    """Return n windows, about a third positive, whose scores are higher by `shift`."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.3).astype(np.int64)
    return Scored(np.arange(n), label, np.round(rng.normal(size=n) + shift * label, 1))


def test_the_interval_is_that_of_resampled_episodes() -> None:
    """The matrix form equals computing the area of each resample from its windows, ties and all."""
    part, index = a_part(120, 1), an_index(120, 12)
    groups, what = resampling_groups(index, part.windows)
    assert what == "episode"
    positive = part.label[:, None] == 1
    found = auroc_interval(positive, part.score[:, None], groups, 50, seed=7)
    drawn = np.random.default_rng(7).multinomial(12, np.full(12, 1 / 12), 50)
    areas = []
    for times in drawn:
        windows = np.repeat(np.arange(120), times[groups])
        areas.append(roc_auc_score(part.label[windows], part.score[windows]))
    assert found == pytest.approx(np.quantile(areas, (0.025, 0.975)))


def test_few_episodes_are_resampled_by_blocks_of_time() -> None:
    """Two long episodes would make an interval of two points; blocks of them do not."""
    index = an_index(1000, 2)
    groups, what = resampling_groups(index, np.arange(1000))
    assert what == "block of 250 rows"
    assert len(np.unique(groups)) == 40
    for group in np.unique(groups):
        assert len(np.unique(index.episode[groups == group])) == 1


def test_a_thousand_resamples_take_about_a_second() -> None:
    """Intervals are cheap enough to be always there."""
    part, index = a_part(50_000, 2), an_index(50_000, 200)
    groups, _ = resampling_groups(index, part.windows)
    before = perf_counter()
    assert auroc_interval(part.label[:, None] == 1, part.score[:, None], groups, 1000, 0)
    assert perf_counter() - before < 3


def test_thresholds_come_from_validation_alone() -> None:
    """Another test part changes the metrics and not the thresholds; the alarm keeps its target."""
    validation, index = a_part(2000, 3), an_index(2000, 20)
    ours = choose_thresholds(validation, 0.05)
    negatives = validation.score[validation.label == 0]
    assert ours.alarm is not None
    assert (negatives > ours.alarm).mean() <= 0.05
    results = [evaluate(index, validation, a_part(2000, seed), PROTOCOL) for seed in (4, 5)]
    assert results[0].thresholds == results[1].thresholds == ours
    assert results[0].metrics != results[1].metrics
    assert results[0].metrics["fpr_realised"] == pytest.approx(0.05, abs=0.02)


def test_the_decision_threshold_is_the_best_one_of_validation() -> None:
    """No other threshold has a better F1 on the windows that it was chosen on."""
    part = a_part(300, 6)
    chosen = choose_thresholds(part, 0.05).decision
    assert chosen is not None

    def f1(threshold: float) -> float:
        called, true = part.score >= threshold, part.label == 1
        return float(2 * (called & true).sum() / (called.sum() + true.sum()))

    assert f1(chosen) == pytest.approx(max(map(f1, np.unique(part.score))))


def test_metrics_that_are_undefined_are_none_with_the_reason() -> None:
    """A test part without anomalies has a false-positive rate and nothing else."""
    test = a_part(100, 7)
    normal = replace(test, label=np.zeros(100, dtype=np.int64))
    found = evaluate(an_index(100, 10), a_part(100, 8), normal, PROTOCOL)
    defined = {name for name, value in found.metrics.items() if value is not None}
    assert defined == {"fpr_realised"}
    assert found.undefined["auroc"] == "the test part has no window of class 1"
    assert set(found.undefined) == set(found.metrics) - defined


def test_each_host_is_measured_by_itself() -> None:
    """A host's metrics are those of its windows, whatever the other host is like."""
    index, test = an_index(400, 20), a_part(400, 9)
    found = evaluate(index, a_part(400, 10), test, PROTOCOL)
    of_h1 = index.host == 1
    expected = roc_auc_score(test.label[of_h1], test.score[of_h1])
    assert found.per_host["h1"]["auroc"] == pytest.approx(expected)
    assert sum(map(sum, found.confusion)) == 400


def test_several_classes_are_measured_one_against_the_rest() -> None:
    """A perfect classifier of three classes scores one throughout; a constant one, chance."""
    index, label = an_index(300, 15), np.arange(300) % 3
    protocol = Protocol(("a", "b", "c"), 0.05, 200, 0)
    sure = Scored(np.arange(300), label, np.eye(3)[label])
    perfect = evaluate(index, sure, sure, protocol).metrics
    assert perfect.pop("auroc_ci") == [1, 1]
    assert set(perfect.values()) == {1.0}
    dull = replace(sure, score=np.tile([0.5, 0.3, 0.2], (300, 1)))
    chance = evaluate(index, dull, dull, protocol).metrics
    assert chance["accuracy"] == chance["balanced_accuracy"] == pytest.approx(1 / 3)
    assert chance["auroc"] == 0.5


def test_a_class_without_test_windows_does_not_count() -> None:
    """What cannot be measured neither helps nor harms the averages."""
    index, label = an_index(200, 10), np.arange(200) % 2
    part = Scored(np.arange(200), label, np.eye(3)[label])
    metrics = evaluate(index, part, part, Protocol(("a", "b", "c"), 0.05, 100, 0)).metrics
    assert metrics["balanced_accuracy"] == metrics["macro_f1"] == metrics["auroc"] == 1
