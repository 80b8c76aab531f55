"""On real telemetry, scores are where honest ones are: above chance, and far below leakage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.trainer.prepare import prepare

DATA = Path(__file__).parents[5] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="needs the real telemetry beside the checkout"),
]


def _prepared(name: str, folder: Path) -> Path:
    raw = DATA / f"{name}.parquet"
    schema = DATA / f"{name}.schema.json"
    prepare(raw, schema, folder, window=60, stride=10, log=lambda _: None)
    return folder


def test_servers_never_seen_are_hard_and_a_split_by_host_says_so(
    tmp_path: Path, run_job: Any
) -> None:
    """A random split of overlapping windows reaches .97 here; an honest one cannot."""
    data = _prepared("servers", tmp_path / "data")
    for recipe in ("host", "time", "sample"):
        flags = ("--split-recipe", recipe)
        metrics = run_job("gbt", data, tmp_path / recipe, *flags)[-1]["metrics"]
        assert 0.55 < metrics["auroc"] < 0.96
        assert 0.1 < metrics["average_precision"] < 0.85


def test_movements_of_people_never_seen_are_told_apart(tmp_path: Path, run_job: Any) -> None:
    """Published figures for people left out are .87 to .91; the phone helps."""
    data = _prepared("motion", tmp_path / "data")
    accuracy = {
        mode: run_job("gbt", data, tmp_path / mode, mode=mode)[-1]["metrics"]["accuracy"]
        for mode in ("realistic", "oracle")
    }
    assert 0.8 < accuracy["realistic"] < accuracy["oracle"] < 0.96
