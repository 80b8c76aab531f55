"""What a trainer reads: only what its mode may see, in the places that the index names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from agent.trainer.common.errors import BadInputError
from agent.trainer.data.dataset import (
    Series,
    WindowIndex,
    load_features,
    load_index,
    load_schema,
    open_series,
)
from agent.trainer.data.schema import FeatureSchema, sha256_of
from agent.trainer.training.batches import WindowBatches

CPU = torch.device("cpu")


@pytest.fixture
def data(simulated: Path, tmp_path: Path) -> Path:
    """A copy of the simulated data that a test may spoil."""
    return Path(shutil.copytree(simulated, tmp_path / "data"))


def rehashed(data: Path) -> FeatureSchema:
    """Return the schema with the hashes of the files as they are now."""
    schema = load_schema(data / "feature_schema_v1.json")
    there = {name for name in schema.files if (data / name).exists()}
    files = {name: sha256_of(data / name) for name in there}
    return schema.model_copy(update={"files": files})


def opened(data: Path) -> tuple[WindowIndex, Series]:
    """Return the index and the series that oracle sees."""
    schema = load_schema(data / "feature_schema_v1.json")
    index = load_index(data / "validation_v1.parquet", schema)
    return index, open_series(data / "tensor_window_v1", schema, "oracle")


def test_a_realistic_run_never_reads_a_privileged_column(simulated: Path, data: Path) -> None:
    whole = load_schema(simulated / "feature_schema_v1.json")
    (data / "tensor_window_v1" / "series_oracle.npy").unlink()
    features = data / "features_window_v1.parquet"
    pq.write_table(pq.read_table(features).select(whole.features_of("realistic")), features)
    schema = rehashed(data)
    views = [
        (
            load_features(folder / features.name, of, "realistic"),
            open_series(folder / "tensor_window_v1", of, "realistic"),
        )
        for folder, of in ((simulated, whole), (data, schema))
    ]
    assert (views[0][0] == views[1][0]).all()
    assert views[0][1].channels == views[1][1].channels == schema.channels_of("realistic")
    assert "cpu" not in schema.channels_of("realistic")
    with pytest.raises(BadInputError):
        open_series(data / "tensor_window_v1", schema, "oracle")


def test_a_gathered_window_is_the_rows_that_the_index_names(simulated: Path) -> None:
    index, series = opened(simulated)
    batches = WindowBatches(series, index, CPU)
    chosen = np.array([3, 0, len(index) - 1])
    gathered = batches.gather(torch.from_numpy(chosen)).numpy()
    for window, found in zip(chosen, gathered):
        at = index.offset[window]
        rows = np.concatenate([part[at : at + 30] for part in series.parts], axis=1)
        assert (found == rows).all()


def test_statistics_count_each_row_of_the_chosen_windows_once(simulated: Path) -> None:
    index, series = opened(simulated)
    mean, deviation = WindowBatches(series, index, CPU).statistics(np.array([0, 1, 5]))
    rows = np.concatenate([*(part[0:40] for part in series.parts)], axis=1)
    later = np.concatenate([*(part[50:80] for part in series.parts)], axis=1)
    both = np.concatenate([rows, later]).astype(np.float64)
    assert mean == pytest.approx(both.mean(axis=0))
    assert deviation == pytest.approx(both.std(axis=0))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _louder(path: Path) -> None:
    table = pq.read_table(path)
    name = table.column_names[0]
    pq.write_table(table.set_column(0, name, pa.array(table[name].to_numpy() + 1)), path)


def _louder_series(path: Path) -> None:
    np.save(path, np.load(path) + 1)


@pytest.mark.parametrize(
    ("model", "file", "spoil", "message"),
    [
        ("mlp", "validation_v1.parquet", _truncate, "validation_v1.parquet: file: "),
        ("gbt", "features_window_v1.parquet", _louder, "copy or prepare"),
        ("mlp", "features_window_v1.parquet", Path.unlink, "file: No such file or directory; "),
        ("gru", "tensor_window_v1/series_oracle.npy", _louder_series, "copy or prepare"),
        ("transformer_ssl", "tensor_window_v1/index.json", _truncate, "copy or prepare"),
        ("gbt", "feature_schema_v1.json", _truncate, "feature_schema_v1.json: "),
    ],
)
def test_a_run_reads_no_file_but_those_of_its_schema(
    model: str, file: str, spoil: Callable[[Path], None], message: str, data: Path,
    tmp_path: Path, run_job: Any,
) -> None:  # fmt: skip
    spoil(data / file)
    with pytest.raises(BadInputError) as told:
        run_job(model, data, tmp_path / "out", "--epochs", "1", "--n-resamples", "0")
    assert str(told.value).startswith(Path(file).name)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
