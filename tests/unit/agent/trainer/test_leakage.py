"""Nothing that is held out for the test has a say in a model or in its thresholds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer.prepare import prepare
from agent.trainer.simulate import simulate
from tests.harness.trainers import report_in

TRAINED = "server-01,server-02,server-03,server-04"
QUICK = {
    "gbt": ("--epochs=20",),
    "mlp": ("--epochs=2", "--hidden=8"),
    "cnn": ("--epochs=2", "--hidden=4", "--layers=1"),
    "gru": ("--epochs=2", "--hidden=4"),
    "lstm": ("--epochs=2", "--hidden=4"),
    "transformer": ("--epochs=2", "--heads=1", "--head-width=4", "--layers=1"),
    "transformer_ssl": ("--epochs=2", "--heads=1", "--head-width=4", "--layers=1"),
}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same telemetry twice; in the second everything is other on the hosts that are tested."""
    made = []
    for name in ("as it was", "changed"):
        folder = tmp_path_factory.mktemp("twin")
        raw, schema = simulate(folder, hosts=5, episodes=3, rows=400, seed=0)
        if name == "changed":
            _change(raw, json.loads(schema.read_text()))
        prepare(raw, schema, folder / "data", window=30, stride=10, log=lambda _: None)
        made.append(folder / "data")
    return made


def _change(raw: Path, schema: dict[str, Any]) -> None:
    table = pq.read_table(raw)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    tested = ~np.isin(columns["host"].astype(str), TRAINED.split(","))
    assert 0 < tested.sum() < len(tested) / 2
    for name in schema["channels"]:
        columns[name] = np.where(tested, 100 - 3 * columns[name], columns[name])
    label = columns[schema["label"]]
    flipped = np.where(label >= 0, 1 - label, label)
    columns[schema["label"]] = np.where(tested, flipped, label).astype(label.dtype)
    pq.write_table(pa.table(columns), raw)


@pytest.mark.parametrize("model", QUICK)
def test_tested_hosts_have_no_say_in_weights_and_thresholds(
    model: str, twins: list[Path], tmp_path: Path, run_job: Any
) -> None:
    found = []
    for number, data in enumerate(twins):
        out = tmp_path / str(number)
        run_job(model, data, out, f"--train-hosts={TRAINED}", "--n-resamples=10", *QUICK[model])
        weights = (out / ("model.ubj" if model == "gbt" else "model.safetensors")).read_bytes()
        report = report_in(out)
        found.append((weights, report["thresholds"], report["metrics"]))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert found[0][2] != found[1][2]
