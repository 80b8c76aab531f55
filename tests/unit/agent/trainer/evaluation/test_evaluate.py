"""Metrics agree with plain definitions, and what the data does not define is said to be so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn import metrics as skm

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.data.features import unweighted
from agent.trainer.evaluation.bootstrap import Draws, one_group, resampling_groups
from agent.trainer.evaluation.evaluate import (
    Evaluation,
    brier_of_base_rate,
    choose_thresholds,
    confusion,
    draws_of,
    evaluate,
    figures_of_hosts,
    judge,
    marks_of,
    over_hosts,
)
from agent.trainer.evaluation.metrics import OF_PROBABILITIES, Scored, called_by, measure
from agent.trainer.evaluation.report_schema import Thresholds
from tests.harness import windows

NONE = Thresholds(decision=None, alarm=None)
ANYWHERE = ("accuracy", *OF_PROBABILITIES)  # defined whatever classes there are
TWO = ("0", "1")


def evaluated(
    index: WindowIndex, validation: Scored, test: Scored, classes: Sequence[str] = TWO
) -> Evaluation:
    judged = [judge(validation, test, classes, 0.05)]
    return evaluate(judged, classes, draws_of(index, judged, 200, seed=0))


def an_index(n: int, episodes: int, hosts: int = 2) -> WindowIndex:
    """Return n windows that lie side by side, spread evenly over episodes and hosts."""
    rows = 10 * np.bincount(np.arange(n) * episodes // n)
    return windows.an_index(
        [(f"h{at % hosts}", int(one)) for at, one in enumerate(rows)], stride=10
    )


def a_part(n: int, seed: int, shift: float = 1.0) -> Scored:
    """Return n windows, about a third positive, whose scores are higher by `shift`."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.3).astype(np.int64)
    return Scored(np.arange(n), label, np.round(rng.normal(size=n) + shift * label, 1))


def by_sklearn(part: Scored, thresholds: Thresholds) -> dict[str, float]:
    """Return the metrics that are defined, each by its own plain definition."""
    label, score, found = part.label, part.score, {}
    if score.ndim == 2:
        called, k = score.argmax(axis=1), np.unique(label)
        found["accuracy"] = skm.accuracy_score(label, called)
        found["balanced_accuracy"] = np.mean([(called == label)[label == one].mean() for one in k])
        found["macro_f1"] = skm.f1_score(label, called, labels=k, average="macro")
        rest = [(label == one, score[:, one]) for one in k]
        found["auroc"] = np.mean([skm.roc_auc_score(*one) for one in rest])
        found["average_precision"] = np.mean([skm.average_precision_score(*one) for one in rest])
        return found
    some, all_of_it = label.any(), label.all()
    if some:
        called = score >= thresholds.decision
        found["f1"] = skm.f1_score(label, called)
        found["tpr_at_fpr"] = (score > thresholds.alarm)[label == 1].mean()
    if not all_of_it:
        found["fpr_realised"] = (score > thresholds.alarm)[label == 0].mean()
    if some and not all_of_it:
        found["auroc"] = skm.roc_auc_score(label, score)
        found["average_precision"] = skm.average_precision_score(label, score)
        found["balanced_accuracy"] = skm.balanced_accuracy_score(label, called)
    return found


def each_draw(draws: Draws, part: Scored, thresholds: Thresholds) -> list[dict[str, float]]:
    """Compute each metric anew from the part's windows, and from those of each resample."""
    found = []
    for times in draws.weights.astype(int):
        of_window = draws.groups.of_window
        drawn = np.repeat(np.arange(len(of_window)), times[of_window])
        sample = Scored(drawn, part.label[drawn], part.score[drawn])
        whole = part.score.ndim == 1 or set(sample.label) == set(part.label)
        found.append(by_sklearn(sample, thresholds) if len(drawn) and whole else {})
    return found


def check(index: WindowIndex, part: Scored, thresholds: Thresholds) -> None:
    """Check every draw of every metric, and where it is not defined."""
    draws = Draws(resampling_groups(index, part.windows), 30, seed=7)
    found = measure(called_by(thresholds, part), draws)
    for at, expected in enumerate(each_draw(draws, part, thresholds)):
        for name in found.keys() - set(ANYWHERE):
            assert found[name][at] == pytest.approx(expected.get(name, np.nan), nan_ok=True), name


@given(n=st.integers(24, 150), episodes=st.integers(10, 14), seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_every_draw_has_the_metrics_of_its_windows(n: int, episodes: int, seed: int) -> None:
    part = a_part(n, seed)
    part = replace(part, score=1 / (1 + np.exp(-part.score)))
    if part.label.any() and not part.label.all():
        check(an_index(n, episodes), part, choose_thresholds(part, 0.2))


@given(n=st.integers(40, 150), seed=st.integers(0, 10_000))
@example(n=47, seed=113)  # a resample without a class that is called all the same
@settings(max_examples=12)
def test_several_classes_are_averaged_in_every_draw(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    score = rng.dirichlet(np.ones(3), n).round(2)
    part = Scored(np.arange(n), label, (score + 0.3 * np.eye(3)[label]) / 1.3)
    check(an_index(n, 10), part, NONE)


def test_brier_and_calibration_are_as_defined() -> None:
    two = Scored(np.arange(4), np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.62, 0.64]))
    found = measure(called_by(NONE, two), Draws(one_group(4)))
    assert found["brier"] == pytest.approx((0.01 + 0.01 + 0.38**2 + 0.64**2) / 4)
    assert found["calibration_error"] == pytest.approx((0.1 + 0.1 + abs(1.26 - 1)) / 4)
    three = Scored(np.arange(2), np.array([0, 2]), np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]]))
    found = measure(called_by(NONE, three), Draws(one_group(2)))
    assert found["brier"] == pytest.approx((0.09 + 0.04 + 0.01 + 0.25 + 0.09 + 0.64) / 2)
    assert found["calibration_error"] == pytest.approx((0.3 + 0.5) / 2)


def test_class_weights_are_taken_back() -> None:
    """What a weighted loss teaches is divided by its weights: the odds are those of the data."""
    true = np.array([[0.9, 0.1], [0.5, 0.5]])
    weights = np.array([0.5, 4.5])
    learnt = true * weights / (true * weights).sum(axis=1, keepdims=True)
    assert unweighted(learnt, weights) == pytest.approx(true)


def test_few_episodes_are_resampled_by_blocks_of_time() -> None:
    """Two long episodes would make an interval of two points; blocks of them do not."""
    index = an_index(1000, 2)
    groups = resampling_groups(index, np.arange(1000))
    assert groups.what == "block of 125 rows"
    assert groups.host.tolist() == [0] * 40 + [1] * 40
    for group in range(80):
        mine = groups.of_window == group
        assert len(np.unique(index.episode[mine])) == 1
        assert set(index.host[mine]) == {groups.host[group]}


@pytest.mark.parametrize("hosts", [4, 5])
def test_hosts_are_resampled_first_if_there_are_five(hosts: int) -> None:
    index = an_index(12 * hosts, 12 * hosts, hosts)
    draws = Draws(resampling_groups(index, np.arange(12 * hosts)), 200, seed=0)
    of_host = np.stack([
        draws.weights[:, draws.groups.host == host].sum(axis=1) for host in range(hosts)
    ])  # fmt: skip
    assert (of_host.sum(axis=0) == 12 * hosts).all()
    assert set(np.unique(of_host % 12)) == {0}
    assert (of_host == 12).all() == (hosts < 5)
    assert draws.weights[1:].max() > 1


def test_scores_of_different_folds_are_not_ranked_together() -> None:
    """Each fold has its own model, whose scores may lie anywhere."""
    index, test = an_index(400, 20), a_part(400, 9)
    folds = [test.of(index.host == host) for host in (0, 1)]
    moved = replace(folds[1], score=folds[1].score + 100)
    judged = [judge(one, one, TWO, 0.05) for one in (folds[0], moved)]
    found = evaluate(judged, TWO, draws_of(index, judged, 50, seed=0)).metrics
    alone = [skm.roc_auc_score(one.label, one.score) for one in folds]
    assert found["auroc"] == pytest.approx(np.mean(alone))
    assert found["fpr_realised"] <= 0.05  # by each fold's own threshold


def test_a_fold_of_one_class_is_left_out_of_rankings() -> None:
    index, test = an_index(400, 20), a_part(400, 9)
    both, one = (test.of(index.host == host) for host in (0, 1))
    one = replace(one, label=np.ones_like(one.label))
    judged = [judge(part, part, TWO, 0.05) for part in (both, one)]
    found = evaluate(judged, TWO, draws_of(index, judged, 50, seed=0)).metrics
    alone = skm.average_precision_score(both.label, both.score)
    assert found["average_precision"] == pytest.approx(alone)
    assert found["auroc"] == pytest.approx(skm.roc_auc_score(both.label, both.score))


def test_a_draw_of_one_class_defines_no_ranking() -> None:
    index, part = an_index(100, 50, hosts=5), a_part(100, 3)
    label = (index.host > 0).astype(np.int64)
    draws = Draws(resampling_groups(index, part.windows), 50, seed=0)
    part = replace(part, label=label)
    found = measure(called_by(NONE, part), draws)
    without = np.isnan(found["auroc"])
    assert without.any()
    assert (np.isnan(found["average_precision"]) == without).all()


def test_a_ranking_against_a_class_that_one_group_holds_is_none() -> None:
    """Windows that overlap are one observation, and a perfect order of it is no evidence."""
    index = an_index(60, 2)
    label = np.zeros(60, dtype=np.int64)
    label[:2] = 1
    perfect = Scored(np.arange(60), label, label.astype(float))
    found = evaluated(index, perfect, perfect)
    assert (found.metrics["auroc"], found.metrics["average_precision"]) == (None, None)
    least = "2 are the least, and a group is one block of 20 rows"
    assert found.undefined["auroc"] == f"a class is in too few groups; {least}"


def test_a_rate_at_its_end_has_an_exact_bound() -> None:
    """Of 0 alarms in n independent groups, the upper end is that of Clopper and Pearson."""
    index, part = an_index(200, 20), a_part(200, 3)
    silent = replace(part, score=np.zeros(200))
    found = evaluated(index, part, silent)
    assert found.metrics["fpr_realised"] == found.metrics["tpr_at_fpr"] == 0
    low, high = found.metrics["fpr_realised_ci"]
    assert (low, high) == (0, pytest.approx(binomtest(0, 20).proportion_ci().high))


def test_thresholds_come_from_validation_alone() -> None:
    validation, index = a_part(2000, 3), an_index(2000, 20)
    ours = choose_thresholds(validation, 0.05)
    negatives = validation.score[validation.label == 0]
    assert ours.alarm is not None
    assert (negatives > ours.alarm).mean() <= 0.05
    tests = [a_part(2000, seed) for seed in (4, 5)]
    assert {judge(validation, test, TWO, 0.05).thresholds for test in tests} == {ours}
    results = [evaluated(index, validation, test) for test in tests]
    assert results[0].metrics != results[1].metrics
    assert results[0].metrics["fpr_realised"] == pytest.approx(0.05, abs=0.02)


def test_the_decision_threshold_is_the_best_one_of_validation() -> None:
    part = a_part(300, 6)
    chosen = choose_thresholds(part, 0.05).decision
    assert chosen is not None

    def f1(threshold: float) -> float:
        called, true = part.score >= threshold, part.label == 1
        return float(2 * (called & true).sum() / (called.sum() + true.sum()))

    assert f1(chosen) == pytest.approx(max(map(f1, np.unique(part.score))))


def test_metrics_that_are_undefined_are_none_with_the_reason() -> None:
    test = a_part(100, 7)
    normal = replace(test, label=np.zeros(100, dtype=np.int64))
    found = evaluated(an_index(100, 10), a_part(100, 8), normal)
    defined = {name for name, value in found.metrics.items() if value is not None}
    assert defined == {
        f"{name}{ci}"
        for name in ("fpr_realised", "brier", "calibration_error")
        for ci in ("", "_ci")
    }
    assert found.undefined["auroc"] == "the test part has no window of class 1"
    assert set(found.undefined) == set(found.metrics) - defined


def test_anomalies_alone_define_no_ranking() -> None:
    test = replace(a_part(100, 7), label=np.ones(100, dtype=np.int64))
    found = evaluated(an_index(100, 10), a_part(100, 8), test)
    for name in ("auroc", "average_precision"):
        assert found.metrics[name] is None
        assert found.undefined[name] == "the test part has no window of class 0"


def test_each_host_is_measured_by_itself() -> None:
    index, test = an_index(400, 20), a_part(400, 9)
    found = evaluated(index, a_part(400, 10), test)
    of_h1 = index.host == 1
    expected = skm.roc_auc_score(test.label[of_h1], test.score[of_h1])
    per_host = figures_of_hosts(index, found, TWO)
    figures = per_host["h1"]
    assert figures.metrics["auroc"] == pytest.approx(expected)
    positives = int(test.label[of_h1].sum())
    assert (figures.windows, figures.counts) == (200, [200 - positives, positives])
    both = [per_host[host].metrics["auroc"] for host in ("h0", "h1")]
    over = over_hosts(per_host)["auroc"]
    assert (over.hosts, over.least, over.most) == (2, min(both), max(both))
    assert (over.mean, over.deviation) == pytest.approx((np.mean(both), np.std(both, ddof=1)))
    assert sum(map(sum, confusion(found, TWO))) == 400


def test_several_classes_are_measured_one_against_the_rest() -> None:
    index, label = an_index(300, 20), np.arange(300) % 3
    sure = Scored(np.arange(300), label, np.eye(3)[label])
    perfect = evaluated(index, sure, sure, "abc").metrics
    bound = binomtest(20, 20).proportion_ci().low  # 20 episodes, each with all classes
    for name in (
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "auroc",
        "average_precision",
        *OF_PROBABILITIES,
    ):
        best = 0.0 if name in OF_PROBABILITIES else 1.0
        assert perfect[name] == best
        ends = [bound, 1.0] if best else [0.0, 1 - bound]
        assert perfect[f"{name}_ci"] == pytest.approx(ends)
    dull = replace(sure, score=np.tile([0.5, 0.3, 0.2], (300, 1)))
    chance = evaluated(index, dull, dull, "abc").metrics
    assert chance["accuracy"] == chance["balanced_accuracy"] == pytest.approx(1 / 3)
    assert chance["auroc"] == 0.5


def test_what_is_below_its_floor_or_above_the_base_rate_is_marked() -> None:
    label = np.array([1] + [0] * 9)
    test = Scored(np.arange(10), label, np.zeros(10))
    assert brier_of_base_rate(test) == pytest.approx(0.09)
    (mark,) = marks_of({"auroc": None, "brier": 0.1}, test)
    assert (mark.code, mark.metric, mark.value) == ("brier_above_base_rate", "brier", 0.1)
    assert mark.limit == pytest.approx(0.09)
    for brier in (0.08, None):
        assert marks_of({"auroc": None, "brier": brier}, test) == ()
    assert marks_of({"auroc": 0.9449, "floor_auroc": 0.9451}, test) == (), "both are shown as 0.945"
    assert len(marks_of({"auroc": 0.944, "floor_auroc": 0.945}, test)) == 1
    normal = replace(test, label=np.zeros_like(label))
    assert marks_of({"auroc": None, "brier": 0.1}, normal) == (), "one class: its base rate is sure"


def test_of_several_classes_the_base_rates_score_is_over_all() -> None:
    label = np.array([0, 1, 2, 2])
    test = Scored(np.arange(4), label, np.full((4, 3), 1 / 3))
    given = np.array([0.25, 0.25, 0.5])
    by_hand = np.mean([((np.eye(3)[k] - given) ** 2).sum() for k in label])
    assert brier_of_base_rate(test) == pytest.approx(by_hand)
