"""Telemetry in memory is scored as in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from agent.trainer.common.errors import BadInputError
from agent.trainer.inference.scoring import score
from agent.trainer.inference.stored_model import load_model


@pytest.fixture
def bundle(trained: Any) -> Path:
    return trained("mlp")


def test_a_table_is_scored_as_its_file(bundle: Path, telemetry: Path) -> None:
    by_path = score(str(bundle), telemetry, threads=1)
    assert score(load_model(bundle, 1), pq.read_table(telemetry)) == by_path
    assert {"host", "episode", "start", "score", "alarm", "host_alarm"} <= set(by_path.column_names)


def test_an_array_is_one_host(bundle: Path, telemetry: Path) -> None:
    model = load_model(bundle, 1)
    columns = pq.read_table(telemetry, columns=list(model.description.channels))[:500]
    array = np.column_stack([column.to_numpy() for column in columns])
    found = score(model, array)
    assert found == score(model, {name: columns[name] for name in columns.column_names})
    assert found["score"].to_pylist() == score(model, telemetry)["score"].to_pylist()[: len(found)]


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        (np.zeros((100, 3)), "channels: "),
        (np.zeros(100), "channels: "),
        (7, "type: "),
        ({"cpu": [1.0]}, "column is missing"),
    ],
)
def test_what_is_no_telemetry_is_refused(bundle: Path, telemetry: Any, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        score(load_model(bundle, 1), telemetry)
