"""What a trainer reads: only what its mode may see, in the places that the index names."""

from __future__ import annotations

import json
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
    UNLABELLED,
    load_features,
    load_index,
    load_schema,
    open_series,
)
from agent.trainer.training.batches import FeatureBatches, WindowBatches

CPU = torch.device("cpu")


@pytest.fixture
def data(simulated: Path, tmp_path: Path) -> Path:
    """A copy of the simulated data that a test may spoil."""
    return Path(shutil.copytree(simulated, tmp_path / "data"))


def test_a_realistic_run_never_reads_a_privileged_column(simulated: Path, data: Path) -> None:
    """Take every privileged series and feature away: the realistic view is what it was."""
    schema = load_schema(simulated / "feature_schema_v1.json")
    (data / "tensor_window_v1" / "series_oracle.npy").unlink()
    table = pq.read_table(data / "features_window_v1.parquet")
    allowed = schema.features_of("realistic")
    pq.write_table(table.select(allowed), data / "features_window_v1.parquet")

    views = []
    for folder in (simulated, data):
        features = load_features(
            folder / "features_window_v1.parquet", schema, "realistic", schema.windows
        )
        series = open_series(folder / "tensor_window_v1", schema, "realistic")
        views.append((features, series))
    assert (views[0][0] == views[1][0]).all()
    assert views[0][1].channels == views[1][1].channels == schema.channels_of("realistic")
    assert "cpu" not in schema.channels_of("realistic")
    with pytest.raises(BadInputError):
        open_series(data / "tensor_window_v1", schema, "oracle")
    with pytest.raises(BadInputError, match="cpu__mean: column is missing"):
        load_features(data / "features_window_v1.parquet", schema, "oracle", schema.windows)


def test_a_gathered_window_is_the_rows_that_the_index_names(simulated: Path) -> None:
    """Batches hold each window's rows, channels side by side, without a copy of the series."""
    schema = load_schema(simulated / "feature_schema_v1.json")
    index = load_index(simulated / "validation_v1.parquet", schema)
    series = open_series(simulated / "tensor_window_v1", schema, "oracle")
    batches = WindowBatches(series, index, CPU)
    chosen = np.array([3, 0, len(index) - 1])
    gathered = batches.gather(torch.from_numpy(chosen)).numpy()
    for window, found in zip(chosen, gathered):
        at = index.offset[window]
        rows = np.concatenate([part[at : at + 30] for part in series.parts], axis=1)
        assert (found == rows).all()


def test_statistics_count_each_row_of_the_chosen_windows_once(simulated: Path) -> None:
    """Overlap does not weigh; rows of other windows do not count."""
    schema = load_schema(simulated / "feature_schema_v1.json")
    index = load_index(simulated / "validation_v1.parquet", schema)
    series = open_series(simulated / "tensor_window_v1", schema, "oracle")
    mean, deviation = WindowBatches(series, index, CPU).statistics(np.array([0, 1, 5]))
    rows = np.concatenate([*(part[0:40] for part in series.parts)], axis=1)
    later = np.concatenate([*(part[50:80] for part in series.parts)], axis=1)
    both = np.concatenate([rows, later]).astype(np.float64)
    assert mean == pytest.approx(both.mean(axis=0))
    assert deviation == pytest.approx(both.std(axis=0))


def test_feature_batches_are_rows_of_the_features() -> None:
    """A batch is the chosen windows' features, in the order in which they were chosen."""
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    gathered = FeatureBatches(features, CPU).gather(torch.tensor([2, 0]))
    assert gathered.tolist() == features[[2, 0]].tolist()


def _read_everything(data: Path) -> None:
    schema = load_schema(data / "feature_schema_v1.json")
    load_index(data / "validation_v1.parquet", schema)
    load_features(data / "features_window_v1.parquet", schema, "oracle", schema.windows)
    open_series(data / "tensor_window_v1", schema, "oracle")


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _nan(path: Path) -> None:
    table = pq.read_table(path)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    name = table.column_names[0]
    columns[name] = np.full(table.num_rows, np.nan, dtype=np.float32)
    pq.write_table(type(table).from_pydict(columns), path)


def _shorten(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(1), path)


@pytest.mark.parametrize(
    ("file", "spoil", "message"),
    [
        ("validation_v1.parquet", _truncate, "validation_v1.parquet: file: "),
        ("validation_v1.parquet", Path.unlink, "validation_v1.parquet: file: "),
        ("validation_v1.parquet", _shorten, "windows, the schema says"),
        ("features_window_v1.parquet", _truncate, "features_window_v1.parquet: file: "),
        ("features_window_v1.parquet", Path.unlink, "file: No such file or directory; "),
        ("tensor_window_v1/series_oracle.npy", Path.unlink, "file: No such file or directory; "),
        ("features_window_v1.parquet", _nan, "net_in__mean: holds values that are not finite"),
        ("features_window_v1.parquet", _shorten, "windows, the schema says"),
        ("tensor_window_v1/series_oracle.npy", _truncate, "series_oracle.npy: file: "),
        ("tensor_window_v1/index.json", _truncate, "index.json: "),
        ("feature_schema_v1.json", _truncate, "feature_schema_v1.json: "),
    ],
)
def test_damaged_data_is_named_with_the_remedy(
    data: Path, file: str, spoil: object, message: str
) -> None:
    """Whatever is wrong with prepared data, one line names the file."""
    assert callable(spoil)
    spoil(data / file)
    with pytest.raises(BadInputError) as refused:
        _read_everything(data)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def _relabelled(path: Path) -> None:
    table = pq.read_table(path)
    label = table["label"].to_numpy().copy()
    first = int(np.flatnonzero(label == 0)[0])
    label[first] = 1
    place = table.column_names.index("label")
    pq.write_table(table.set_column(place, "label", pa.array(label)), path)


def _louder(path: Path) -> None:
    table = pq.read_table(path)
    name = table.column_names[0]
    pq.write_table(table.set_column(0, name, pa.array(table[name].to_numpy() + 1)), path)


def _louder_series(path: Path) -> None:
    np.save(path, np.load(path) + 1)


@pytest.mark.parametrize(
    ("model", "file", "exchange"),
    [
        ("gbt", "validation_v1.parquet", _relabelled),
        ("gbt", "features_window_v1.parquet", _louder),
        ("gru", "tensor_window_v1/series_oracle.npy", _louder_series),
        ("transformer_ssl", "tensor_window_v1/series_oracle.npy", _louder_series),
    ],
)
def test_a_run_reads_no_file_but_those_of_its_schema(
    model: str, file: str, exchange: Callable[[Path], None], data: Path, tmp_path: Path,
    run_job: Any,
) -> None:  # fmt: skip
    """Its report names the data by the schema: what fits only in form is of another preparation."""
    exchange(data / file)
    with pytest.raises(BadInputError, match=r"file: is not the file .*; copy or prepare") as told:
        run_job(model, data, tmp_path / "out", "--epochs", "1", "--n-resamples", "0")
    assert str(told.value).startswith(Path(file).name)


def test_a_series_with_a_hole_is_refused_before_training(data: Path) -> None:
    """A value that is not finite would only show as a diverged loss, hours later."""
    schema = load_schema(data / "feature_schema_v1.json")
    path = data / "tensor_window_v1" / "series_oracle.npy"
    series = np.load(path)
    series[5, 1] = np.nan
    np.save(path, series)
    with pytest.raises(
        BadInputError, match=r"oracle\.npy: memory: holds values that are not finite"
    ):
        open_series(data / "tensor_window_v1", schema, "oracle")


def test_labels_beyond_the_schemas_classes_are_refused(data: Path) -> None:
    """An index and a schema of different preparations do not pass for one."""
    schema_path = data / "feature_schema_v1.json"
    schema = json.loads(schema_path.read_text())
    schema["classes"] = ["0"]
    schema_path.write_text(json.dumps(schema))
    with pytest.raises(BadInputError, match="label: names a class that the schema lacks"):
        load_index(data / "validation_v1.parquet", load_schema(schema_path))


def test_unlabelled_windows_are_told_apart(simulated: Path) -> None:
    """The first episode of each simulated host is unlabelled."""
    schema = load_schema(simulated / "feature_schema_v1.json")
    index = load_index(simulated / "validation_v1.parquet", schema)
    assert (index.label == UNLABELLED).sum() == schema.unlabelled_windows > 0
    assert {index.episodes[e][-2:] for e in index.episode[~index.labelled]} == {"/0"}
