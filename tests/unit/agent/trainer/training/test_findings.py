"""What a report says beyond metrics is what a user of the model will see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from agent.trainer.inference.scoring import score
from tests.harness.trainers import report_in

Found = tuple[dict[str, Any], Path]


@pytest.fixture(scope="module")
def found(simulated: Path, tmp_path_factory: pytest.TempPathFactory, run_job: Any) -> Found:
    """The report of a `gbt`, and where it lies; tests only read it."""
    folder = tmp_path_factory.mktemp("model")
    run_job("gbt", simulated, folder, "--epochs", "30", "--n-resamples", "20")
    return report_in(folder), folder


def test_the_report_judges_the_alarms_that_predict_raises(
    found: Found, simulated: Path, telemetry: Path
) -> None:
    """Both thresholds on the same windows: a host's first ones are used without labels."""
    report, folder = found
    table, index = score(folder, telemetry, 1), pq.read_table(simulated / "validation_v1.parquet")
    label, host = index["label"].to_numpy(), np.array(table["host"].to_pylist())
    needed = report["host_thresholds"]["procedure"]["needed"]
    for name, told in report["host_thresholds"]["per_host"].items():
        mine = np.flatnonzero(host == name)[needed:]
        mine = mine[label[mine] >= 0]
        assert told["windows"] == len(mine)
        for column, kind in (("host_alarm", ""), ("alarm", "_pooled")):
            alarm = table[column].to_numpy(zero_copy_only=False)[mine]
            assert told[f"fpr{kind}"] == pytest.approx(alarm[label[mine] == 0].mean(), abs=1e-5)
            assert told[f"tpr{kind}"] == pytest.approx(alarm[label[mine] == 1].mean(), abs=1e-5)
    assert set(report["host_thresholds"]["per_host"]) == set(report["split"]["hosts"]["test"])


def test_the_points_and_events_are_there(found: Found) -> None:
    report, _ = found
    points = report["operating_points"]
    assert [one["target_fpr"] for one in points] == sorted(one["target_fpr"] for one in points)
    for name in ("threshold", "fpr", "recall"):
        values = [one[name] for one in points]
        assert values == sorted(values, reverse=name == "threshold")
    (own,) = (one for one in points if one["target_fpr"] == report["target_fpr"])
    assert own["fpr"] == report["metrics"]["fpr_realised"]
    assert own["recall"] == report["metrics"]["tpr_at_fpr"]
    assert set(report["events"]) == {"called", "alarm", "host_alarm"}
    assert len({one["events"] for one in report["events"].values()}) == 1


def test_what_a_fault_shows_in_matters_most(found: Found) -> None:
    report, _ = found
    importance = report["importance"]
    assert sum(importance["gain"].values()) == pytest.approx(1, abs=1e-3)
    falls = importance["permutation"]
    assert len(falls) == 11
    assert list(falls.values()) == sorted(falls.values(), reverse=True)
    assert max(falls.values()) > 0.03


def test_the_card_says_what_the_model_is(found: Found) -> None:
    report, folder = found
    card = (folder / "MODEL_CARD.md").read_text()
    auroc = report["metrics"]["auroc"]
    for words in (
        "# gbt, oracle",
        report["data"],
        "label: that of any anomalous row",
        f"| AUROC | {auroc:.3f} |",
        f"test: {report['split']['windows']['test']} windows of",
        "simulated: no real machine was measured",
        "normal, anomaly",
    ):
        assert words in card
