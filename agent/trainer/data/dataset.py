"""Prepared data: the index of windows, the summary features, the raw series.

Each file is read only if its sha256 is the schema's: so it is whole, and fits the others. Only what
the mode may see is loaded: features by their columns, series by their files. The series stay
memory-mapped; a window is gathered with its batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.schema import (
    SUMMARY_FILE,
    TENSORS_DIR,
    TENSORS_INDEX_FILE,
    VALIDATION_FILE,
    FeatureSchema,
    TensorsIndex,
    read_json,
    readable,
)
from agent.trainer.data.seen_files import is_whole

UNLABELLED: Final = -1
_REMEDY: Final = "prepare the data anew"
_MAKE: Final = "python -m agent.trainer.prepare --raw FILE --schema FILE"


@dataclass(frozen=True)
class WindowIndex:
    """All windows: arrays (n,), `host` and `episode` as numbers into `hosts` and `episodes`.

    `offset` is the window's first row in the series, `start` the same counted from its episode's
    first window, `label` a class number or -1. All windows have `length` rows, `stride` rows lie
    between the starts of two, and `period_s` between two rows.
    """

    hosts: tuple[str, ...]
    episodes: tuple[str, ...]
    host: Ints
    episode: Ints
    offset: Ints
    start: Ints
    label: Ints
    length: int
    stride: int
    period_s: float

    def __len__(self) -> int:
        return len(self.label)

    @property
    def labelled(self) -> Bools:
        """Return which windows have a label."""
        return np.asarray(self.label != UNLABELLED)


@dataclass(frozen=True)
class Series:
    """The raw series that a mode may see: memory-mapped (rows, channels) float32 arrays."""

    channels: tuple[str, ...]
    parts: tuple[Floats, ...]


def load_schema(path: Path) -> FeatureSchema:
    """Read the feature schema. Raises BadInputError; where there is none, with the whole path."""
    if not path.is_file():
        remedy = f"name its folder by --data, or make it: {_MAKE} --out-dir {path.parent}"
        raise BadInputError.at(str(path.parent), path.name, "no prepared data is there", remedy)
    return read_json(path, FeatureSchema)


def load_index(path: Path, schema: FeatureSchema) -> WindowIndex:
    """Read the index of windows. Raises BadInputError."""
    _check_hash(path, VALIDATION_FILE, schema)
    with pq.ParquetFile(path) as file:
        table = file.read(use_threads=False)
    index = index_of(table, schema.window, schema.stride, schema.period_s)
    first = np.full(len(index.episodes), np.iinfo(np.int64).max)
    np.minimum.at(first, index.episode, index.start)
    return replace(index, start=index.start - first[index.episode])


def index_of(table: pa.Table, length: int, stride: int, period_s: float) -> WindowIndex:
    """Return the index of a table with a row a window, whose columns are the index's."""
    host, hosts = _codes(table["host"])
    pairs = pa.compute.binary_join_element_wise(table["host"], table["episode"], "\n")
    episode, episodes = _codes(pairs)
    rest = {name: table[name].to_numpy().astype(np.int64) for name in ("offset", "start", "label")}
    names = tuple(pair.split("\n")[1] for pair in episodes)
    return WindowIndex(
        hosts, names, host, episode, **rest, length=length, stride=stride, period_s=period_s
    )


def load_features(path: Path, schema: FeatureSchema, mode: str) -> Floats:
    """Read the features that `mode` may see: (windows, features) float32. Raises BadInputError."""
    _check_hash(path, SUMMARY_FILE, schema)
    names, at = schema.features_of(mode), 0
    out = np.empty((schema.windows, len(names)), dtype=np.float32)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):  # all of them at once would be there twice
            table = file.read_row_group(group, list(names), use_threads=False)
            for column, name in enumerate(names):
                out[at : at + len(table), column] = table[name].to_numpy()
            at += len(table)
    return out


def open_series(folder: Path, schema: FeatureSchema, mode: str) -> Series:
    """Map the series that `mode` may see into memory. Raises BadInputError."""
    index_path = folder / TENSORS_INDEX_FILE
    _check_hash(index_path, f"{TENSORS_DIR}/{TENSORS_INDEX_FILE}", schema)
    groups = [one for one in read_json(index_path, TensorsIndex).groups if mode in one.modes]
    parts = []
    for group in groups:
        path = folder / group.file
        _check_hash(path, f"{TENSORS_DIR}/{group.file}", schema)
        # Copy on write: torch wants memory that it may write to, though nobody does.
        parts.append(np.load(path, mmap_mode="c", allow_pickle=False))
    return Series(tuple(name for group in groups for name in group.channels), tuple(parts))


def _check_hash(path: Path, name: str, schema: FeatureSchema) -> None:
    """Raise BadInputError for a file that is not the one whose hash the schema has under `name`."""
    with readable(path, _REMEDY):
        whole = is_whole(path, schema.files.get(name, ""))
    if not whole:
        problem = "is not the file that the schema was written with: its sha256 is another"
        raise BadInputError.at(path, "file", problem, "copy or prepare the data anew")


def _codes(column: pa.ChunkedArray) -> tuple[Ints, tuple[str, ...]]:
    """Return the column as numbers into its sorted distinct values, and these."""
    values = tuple(sorted(column.unique().to_pylist()))
    codes = pa.compute.index_in(column, value_set=pa.array(values, pa.string()))
    return codes.to_numpy().astype(np.int64), values
