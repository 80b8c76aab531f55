"""Too little data, odd values and odd names: a clear error, or a right figure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.trainer.common.errors import BadInputError
from tests.harness.trainers import report_in

QUICK = ("--epochs=5", "--n-resamples=20")


def prepared(raw: Any, hosts: Iterable[str], rows: int, labels: Any, **more: float) -> Path:
    """Prepare an episode of each host; `labels(host, row)` is a row's label."""

    def change(row: dict[str, Any]) -> None:
        row["hidden"] += 100 * row["label"]
        row |= {name: row[name] * value for name, value in more.items()}

    return raw.of_hosts({host: [labels(host, at) for at in range(rows)] for host in hosts}, change)


@pytest.mark.parametrize(
    ("recipe", "hosts"),
    [("host", "ab"), ("time", "ab"), ("folds", "ab"), ("host", "abcdefgh"), ("time", "abcdefgh")],
)
def test_three_windows_a_host_are_too_few(
    recipe: str, hosts: str, raw: Any, tmp_path: Path, run_job: Any
) -> None:
    data = prepared(raw, hosts, 20, lambda _, at: int(at >= 12))
    with pytest.raises(
        BadInputError, match=r" part has .*; give (more hosts|longer episodes), or prepare"
    ):
        run_job("gbt", data, tmp_path / "out", *QUICK, f"--split-recipe={recipe}")


def test_a_fold_has_ten_windows_to_train_and_to_validate(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    """A fold of two hosts validates by blocks of a single one."""
    data = prepared(raw, "ab", 120, lambda _, at: at // 10 % 2)
    with pytest.raises(BadInputError, match="the validation part of fold 1 has 7 labelled"):
        run_job("gbt", data, tmp_path / "out", *QUICK, "--split-recipe=folds")


def test_validation_needs_ten_windows_and_a_folds_test_part_does_not(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    data = prepared(raw, "abcdefgh", 45, lambda _, at: int(at >= 25))  # eight windows a host
    with pytest.raises(BadInputError, match="the validation part has 8 labelled windows; 10 are"):
        run_job("gbt", data, tmp_path / "host", *QUICK, "--train-hosts=a,b,c")
    run_job("gbt", data, tmp_path / "folds", *QUICK, "--split-recipe=folds", "--folds=8")
    folds = report_in(tmp_path / "folds")["folds"]
    assert {one["windows"]["test"] for one in folds} == {8}


def test_a_perfect_ranking_of_few_hosts_has_its_bound(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    """Five windows of each of eight hosts, ranked without a fault, are eight observations."""
    data = prepared(raw, "abcdefgh", 30, lambda _, at: int(at >= 22))
    flags = ("--split-recipe=folds", "--min-child-weight=0")
    metrics = run_job("gbt", data, tmp_path, *QUICK, *flags)[-1]["metrics"]
    assert metrics["auroc"] == 1
    assert metrics["auroc_ci"][0] == pytest.approx(0.025 ** (1 / 8), abs=1e-6)


def test_a_single_anomaly_is_no_perfect_ranking(raw: Any, tmp_path: Path, run_job: Any) -> None:
    """Its windows overlap: they are one observation."""
    data = prepared(raw, "abcd", 200, lambda host, at: int(host in "ab" and 50 <= at < 90))
    flags = ("--train-hosts=a,c", "--min-child-weight=0", "--colsample=0.5")
    metrics = run_job("gbt", data, tmp_path, *QUICK, *flags)[-1]["metrics"]
    assert metrics["auroc"] > 0.99
    assert metrics["auroc_ci"] is None or metrics["auroc_ci"][0] < 0.5


def test_one_class_is_an_error_in_training_and_none_in_the_test(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    data = prepared(raw, "abcde", 300, lambda host, at: int(host < "d" and at // 20 % 2))
    with pytest.raises(BadInputError, match="label: all windows to train on are of class normal"):
        run_job("gbt", data, tmp_path / "one", *QUICK, "--train-hosts=d")
    run_job("gbt", data, tmp_path / "two", *QUICK, "--train-hosts=a,b,c")
    report = report_in(tmp_path / "two")
    assert report["metrics"]["auroc"] is None
    assert report["undefined"]["auroc"] == "the test part has no window of class anomaly"
    assert report["metrics"]["tpr_at_fpr"] is None
    assert {one["counts"][1] for one in report["per_host"].values()} == {0}


@pytest.mark.parametrize("model", ["gbt", "mlp", "cnn"])
@pytest.mark.parametrize("factor", [1e14, 1e-30])
def test_extreme_values_are_learnt_from_like_others(
    model: str, factor: float, raw: Any, tmp_path: Path, run_job: Any
) -> None:
    data = prepared(raw, "abcde", 200, lambda _, at: at // 20 % 2, hidden=factor, seen=factor)
    metrics = run_job(model, data, tmp_path / model, *QUICK)[-1]["metrics"]
    assert metrics["auroc"] > 0.8
    assert metrics["auroc_ci"][0] < 1


@pytest.mark.parametrize("factor", [1e19, 1e36])
def test_values_whose_spread_float32_cannot_hold_are_refused(factor: float, raw: Any) -> None:
    with pytest.raises(
        BadInputError, match=r"raw\.parquet: channels: host a, episode 1 has values"
    ):
        prepared(raw, ["a", "b"], 60, lambda _, at: at // 20 % 2, hidden=factor)


def test_a_host_may_have_a_comma_in_its_name(raw: Any, tmp_path: Path, run_job: Any) -> None:
    """In `--train-hosts` it stands in quotes, as in CSV; without them the names are unknown."""
    names = ["rack 1, unit 2", 'the "old" one', "c", "d"]
    data = prepared(raw, names, 200, lambda _, at: at // 20 % 2)
    hosts = '--train-hosts="rack 1, unit 2","the ""old"" one"'
    run_job("gbt", data, tmp_path / "out", *QUICK, hosts)
    report = report_in(tmp_path / "out")
    assert report["split"]["train_hosts"] == names[:2]
    assert report["split"]["hosts"]["test"] == ["c", "d"]
    with pytest.raises(BadInputError, match="train_hosts: rack 1: no such host; the data has"):
        run_job("gbt", data, tmp_path / "out", *QUICK, "--train-hosts=rack 1, unit 2")
