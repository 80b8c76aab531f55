"""A job of folds reports what its folds report together; single folds give the same report."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.trainer.combine import combine, read_fold
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.schema import read_json
from agent.trainer.evaluation.page import render
from agent.trainer.evaluation.report_schema import Report
from tests.harness.trainers import report_in

QUICK = ("--split-recipe=folds", "--folds=3", "--n-resamples=40")
EPOCHS = {"gbt": "--epochs=20", "transformer_ssl": "--epochs=1"}
# What is told of the model of all hosts is the whole job's alone.
OF_THE_MODEL = (
    ("training",), ("thresholds",), ("pretraining",), ("split", "windows"), ("split", "hosts"),
    ("host_thresholds", "procedure"), ("importance", "gain"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["gbt", "transformer_ssl"])
def results(
    request: Any, simulated: Path, tmp_path_factory: pytest.TempPathFactory, run_job: Any
) -> Path:
    """The results of a job of three folds (`all`), and of three jobs of one fold each."""
    folder, model = tmp_path_factory.mktemp("folds"), request.param
    flags = (*QUICK, EPOCHS[model])
    run_job(model, simulated, folder / "all", *flags)
    for fold in (1, 2, 3):
        run_job(model, simulated, folder / str(fold), *flags, f"--fold={fold}")
    return folder


def test_single_folds_give_the_report_of_one_job(results: Path, tmp_path: Path) -> None:
    folds = [read_fold(results / fold) for fold in ("3", "1", "2")]
    metrics, files = combine(folds, tmp_path)
    ours, theirs = report_in(tmp_path), report_in(results / "all")
    assert {Path(file).suffix for file in files} == {".json"}
    assert metrics["auroc"] == pytest.approx(theirs["metrics"]["auroc"], abs=1e-6)
    assert ours["host_thresholds"]["procedure"] is ours["importance"]["gain"] is None
    for report in (ours, theirs):
        for *within, key in OF_THE_MODEL:
            part = report[within[0]] if within else report
            part.pop(key, None)
    assert ours == theirs
    assert "Alarms by each host" in render(read_json(tmp_path / Path(files[0]).name, Report))


def test_page_and_card_say_which_model_the_figures_are_of(results: Path, tmp_path: Path) -> None:
    """The stored model has seen all hosts; `combine` stores none; a single fold has a test part."""
    combine([read_fold(results / fold) for fold in ("1", "2", "3")], tmp_path)
    folders = {"all": results / "all", "combined": tmp_path, "one": results / "1"}
    paths = {name: next(folder.glob("*_train.json")) for name, folder in folders.items()}
    told = {name: render(read_json(path, Report)) for name, path in paths.items()}
    told |= {f"card of {name}": _card(results / at) for name, at in (("all", "all"), ("one", "1"))}
    for name, text in told.items():
        assert ("which the model has never seen" in text) == (name in {"one", "card of one"})
        assert ("made with all these hosts" in text) == (name in {"all", "card of all"})
        assert not re.search(r"\b0 (windows|to test|to validate)", text)
    windows = sum(one["windows"] for one in report_in(results / "all")["per_host"].values())
    for name in ("all", "combined"):
        assert f"{windows:,} windows, each tested in one of 3 folds." in told[name]
        hosts = ", ".join(report_in(results / "all")["per_host"])
        assert f"hosts tested on</th><td>{hosts}</td>" in told[name].replace('scope="row">', "")


def _card(folder: Path) -> str:
    return (folder / "MODEL_CARD.md").read_text("utf-8")


def test_alarms_and_events_are_those_of_every_fold(results: Path) -> None:
    report = report_in(results / "all")
    told = report["host_thresholds"]
    assert set(told["per_host"]) == set(report["per_host"])
    windows = sum(one["windows"] for one in told["per_host"].values())
    assert told["overall"]["windows"] == windows
    (own,) = (one for one in report["operating_points"] if one["target_fpr"] == 0.05)
    assert own["threshold"] is None
    assert own["fpr"] == report["metrics"]["fpr_realised"]
    assert report["events"]["alarm"]["events"] > 3


def test_the_report_has_each_host_once_and_the_floors(results: Path) -> None:
    report = report_in(results / "all")
    assert sorted(report["per_host"]) == [f"server-{number:02d}" for number in range(1, 6)]
    assert report["split"]["hosts"]["test"] == []
    tested = [host for fold in report["folds"] for host in fold["hosts"]["test"]]
    assert sorted(tested) == sorted(report["per_host"])
    assert report["over_hosts"]["auroc"]["hosts"] == 5
    windows = sum(one["windows"] for one in report["per_host"].values())
    assert windows == sum(fold["windows"]["test"] for fold in report["folds"])
    assert set(report["floors"]) == {"threshold", "logistic"}
    best = max(floor["auroc"] for floor in report["floors"].values())
    assert report["metrics"]["floor_auroc"] == best
    assert ("below_floor" in {mark["code"] for mark in report["marks"]}) == (
        round(report["metrics"]["auroc"], 3) < round(best, 3)
    )
    assert report["bootstrap"]["these_hosts_only"] is False


def test_a_ranking_is_the_mean_over_folds_by_their_hosts(results: Path) -> None:
    report = report_in(results / "all")
    hosts = [len(fold["hosts"]["test"]) for fold in report["folds"]]
    areas = [fold["metrics"]["auroc"] for fold in report["folds"]]
    assert sorted(hosts) == [1, 2, 2]
    assert report["metrics"]["auroc"] == pytest.approx(np.average(areas, weights=hosts), abs=2e-6)


def test_folds_that_do_not_belong_together_are_refused(
    results: Path, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    read = {fold: read_fold(results / fold) for fold in ("1", "2", "3")}
    with pytest.raises(BadInputError, match=r"split\.fold: of 3, these are missing: 2"):
        combine([read["1"], read["3"]], tmp_path)
    with pytest.raises(BadInputError, match=r"split\.fold: 1 is there twice"):
        combine([read["1"], read["1"], read["3"]], tmp_path)
    with pytest.raises(BadInputError, match=r"split\.fold: is no single fold"):
        read_fold(results / "all")
    other = tmp_path / "other"
    model = read["1"].report.model
    run_job(model, simulated, other, *QUICK, EPOCHS[model], "--fold=2", "--seed=1")
    with pytest.raises(BadInputError, match="seed: differs"):
        combine([read["1"], read_fold(other), read["3"]], tmp_path)
    with pytest.raises(BadInputError, match="--out-dir: "):
        combine([*read.values()], results / "1")
    shutil.copytree(results / "2", tmp_path / "torn")
    (tmp_path / "torn" / "test_scores.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInputError, match=r"test_scores\.parquet"):
        read_fold(tmp_path / "torn")
