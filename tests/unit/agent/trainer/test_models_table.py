"""The table of models that is published: by folds over hosts, each model beside its floors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import main


@pytest.mark.system  # the benchmark starts a trainer
def test_each_model_stands_beside_its_floors(
    simulated: Path, tmp_path: Path, run_job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gbt_oracle_folds_0"
    flags = ("--split-recipe=folds", "--folds=5", "--n-resamples=40", "--epochs=2")
    run_job("gbt", simulated, out, *flags)
    missing = str(tmp_path / "no data")  # for the other mode
    main([missing, "--folds=5", "--models=gbt", f"--out={tmp_path}"])
    told = capsys.readouterr()
    assert "5 folds over 5 hosts, one left out at a time" in told.out
    assert "label: that of any anomalous row" in told.out
    assert "the 5 hosts are resampled" in told.out
    assert "gbt, realistic, seed 0" in told.err
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in told.out.splitlines()]
    head, *rows = [row for row in rows if len(row) > 3 and row[0] != "---"]
    by_name = {(row[0], row[1]): dict(zip(head, row)) for row in rows}
    report = json.loads((out / "gbt_oracle_train.json").read_text())
    metrics, ours = report["metrics"], by_name["gbt", "oracle"]
    figures = [metrics["auroc"], *metrics["auroc_ci"]]
    assert ours["AUROC"] == "{} [{}, {}]".format(*(f"{one:.3f}"[1:] for one in figures))
    assert ours["better floor"] == f"{metrics['floor_auroc']:.3f}"[1:]
    floors = [by_name[name, "oracle"]["AUROC"][:4] for name in ("threshold", "logistic")]
    assert ours["better floor"] == max(floors)
    assert ("below floor" in ours["mark"]) == (metrics["auroc"] < metrics["floor_auroc"])
    assert by_name["gbt", "realistic"]["AUROC"] == "none"
    with pytest.raises(SystemExit, match=r"split\.folds: 5, not 3"):
        main([missing, "--folds=3", "--models=gbt", f"--out={tmp_path}"])
