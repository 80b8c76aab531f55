"""Prepared data as a trainer sees it: the windows' index, the features, the raw series.

Only what the mode may see is ever read: features by their columns, series by their files. The
series stay memory-mapped; a window is a place in them, and is gathered when its batch is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.trainer.common.arrays import Bools, Floats, Ints
from agent.trainer.common.errors import BadInputError, plain
from agent.trainer.data.schema import (
    TENSORS_INDEX_FILE,
    FeatureSchema,
    TensorsIndex,
    read_json,
    sha256_of,
)

UNLABELLED: Final = -1
_CHUNK_ROWS: Final = 8_192
_REMEDY: Final = "prepare the data anew"
_MAKE: Final = "python -m agent.trainer.prepare --raw FILE --schema FILE"
_INDEX_COLUMNS: Final = ("host", "episode", "offset", "start", "length", "label")


@dataclass(frozen=True)
class WindowIndex:
    """All windows: arrays (n,), `host` and `episode` as numbers into `hosts` and `episodes`.

    `offset` is the window's first row in the series, `start` the same counted from its episode's
    first window, `label` a class number or -1. All windows have `length` rows.
    """

    hosts: tuple[str, ...]
    episodes: tuple[str, ...]
    host: Ints
    episode: Ints
    offset: Ints
    start: Ints
    label: Ints
    length: int

    def __len__(self) -> int:
        return len(self.label)

    @property
    def labelled(self) -> Bools:
        """Return which windows have a label."""
        return np.asarray(self.label != UNLABELLED)


def load_schema(path: Path) -> FeatureSchema:
    """Read the feature schema. Raises BadInputError; where there is none, with the whole path."""
    if not path.is_file():
        remedy = f"name its folder by --data, or make it: {_MAKE} --out-dir {path.parent}"
        raise BadInputError.at(str(path.parent), path.name, "no prepared data is there", remedy)
    return read_json(path, FeatureSchema)


def load_index(path: Path, schema: FeatureSchema) -> WindowIndex:
    """Read the windows' index and check it against the schema. Raises BadInputError."""
    with _readable(path):
        table = pq.read_table(path)
    for name in _INDEX_COLUMNS:
        if name not in table.column_names:
            raise BadInputError.at(path, name, "column is missing", _REMEDY)
    _check_count(path, table.num_rows, schema)
    host, hosts = _codes(table["host"])
    pairs = pa.compute.binary_join_element_wise(table["host"], table["episode"], "\n")
    episode, episodes = _codes(pairs)
    label = table["label"].to_numpy().astype(np.int64)
    if label.min() < UNLABELLED or label.max() >= len(schema.classes):
        raise BadInputError.at(path, "label", "names a class that the schema lacks", _REMEDY)
    if (table["length"].to_numpy() != schema.window).any():
        raise BadInputError.at(path, "length", "differs from the schema's window", _REMEDY)
    start = table["start"].to_numpy().astype(np.int64)
    first = np.full(len(episodes), np.iinfo(np.int64).max)
    np.minimum.at(first, episode, start)
    return WindowIndex(
        hosts=hosts,
        episodes=tuple(pair.split("\n")[1] for pair in episodes),
        host=host,
        episode=episode,
        offset=table["offset"].to_numpy().astype(np.int64),
        start=start - first[episode],
        label=label,
        length=schema.window,
    )


def load_features(path: Path, schema: FeatureSchema, mode: str, rows: int) -> Floats:
    """Read the features that `mode` may see: (windows, features) float32. Raises BadInputError."""
    names = list(schema.features_of(mode))
    with _readable(path):
        file = pq.ParquetFile(path)
    with file:
        for name in names:
            if name not in file.schema_arrow.names:
                raise BadInputError.at(path, name, "column is missing", _REMEDY)
        found = file.metadata.num_rows
        _check_count(path, found, schema)
        if found != rows:
            raise BadInputError.at(path, "file", f"has {found} rows, not {rows}", _REMEDY)
        out = np.empty((rows, len(names)), dtype=np.float32)
        with _readable(path):
            _fill(out, file, names)
    _check_finite(path, out, names)
    return out


def _fill(out: Floats, file: pq.ParquetFile, names: Sequence[str]) -> None:
    """Copy columns (rows,) into `out` (rows, columns), one column of one row group at a time."""
    at = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        for column, name in enumerate(names):
            table = file.read_row_group(group, columns=[name], use_threads=False)
            out[at : at + rows, column] = table[name].to_numpy()
        at += rows


@dataclass(frozen=True)
class Series:
    """The raw series that a mode may see: memory-mapped (rows, channels) float32 arrays.

    `files` are what was read of the folder.
    """

    channels: tuple[str, ...]
    parts: tuple[Floats, ...]
    files: tuple[str, ...] = ()


def open_series(folder: Path, schema: FeatureSchema, mode: str) -> Series:
    """Map the series that `mode` may see into memory. Raises BadInputError."""
    index = read_json(folder / TENSORS_INDEX_FILE, TensorsIndex)
    groups = [group for group in index.groups if mode in group.modes]
    channels = tuple(name for group in groups for name in group.channels)
    if sorted(channels) != sorted(schema.channels_of(mode)):
        raise BadInputError.at(
            folder / TENSORS_INDEX_FILE, "groups", f"not the schema's channels of {mode}", _REMEDY
        )
    parts = []
    for group in groups:
        path = folder / group.file
        with _readable(path):
            # Copy on write: torch wants memory that it may write to, though nobody does.
            part = np.load(path, mmap_mode="c", allow_pickle=False)
        if part.shape != (schema.rows, len(group.channels)) or part.dtype != np.float32:
            raise BadInputError.at(
                path, "shape", f"is {part.dtype}{part.shape}, not what the schema says", _REMEDY
            )
        for at in range(0, len(part), _CHUNK_ROWS):
            _check_finite(path, part[at : at + _CHUNK_ROWS], group.channels)
        parts.append(part)
    files = (TENSORS_INDEX_FILE, *(group.file for group in groups))
    return Series(channels, tuple(parts), files)


def check_whole(path: Path, name: str, schema: FeatureSchema) -> None:
    """Raise BadInputError for a file that is not the one whose hash the schema has under `name`.

    It may fit in every other way: of another preparation, say, or half copied over an older one.
    """
    with _readable(path):
        found = sha256_of(path)
    if found != schema.files.get(name):
        problem = "is not the file that the schema was written with: its sha256 is another"
        raise BadInputError.at(path, "file", problem, "copy or prepare the data anew")


def _check_finite(path: Path, values: Floats, names: Sequence[str]) -> None:
    """Raise BadInputError for a column of `values` (n, names) that is not finite throughout."""
    finite = np.isfinite(values.sum(axis=0, dtype=np.float64))  # such sums overflow last of all
    if not finite.all():
        name = names[int(np.flatnonzero(~finite)[0])]
        raise BadInputError.at(path, name, "holds values that are not finite", _REMEDY)


def _codes(column: pa.ChunkedArray) -> tuple[Ints, tuple[str, ...]]:
    """Return the column as numbers into its sorted distinct values, and these."""
    values = tuple(sorted(column.unique().to_pylist()))
    codes = pa.compute.index_in(column, value_set=pa.array(values, pa.string()))
    return codes.to_numpy().astype(np.int64), values


def _check_count(path: Path, rows: int, schema: FeatureSchema) -> None:
    if rows == 0:
        raise BadInputError.at(path, "file", "holds no windows", _REMEDY)
    if rows != schema.windows:
        raise BadInputError.at(
            path, "file", f"holds {rows} windows, the schema says {schema.windows}", _REMEDY
        )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what arrow, numpy or the operating system says about a file into a BadInputError."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise BadInputError.at(path, "file", plain(error), _REMEDY) from error
