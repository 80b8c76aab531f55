"""Writes what `prepare` makes, a block at a time: the series, and tables of windows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.trainer.common.arrays import Floats
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.features import STATISTICS, summarise
from agent.trainer.data.raw_file import Outline
from agent.trainer.data.schema import (
    TENSORS_INDEX_FILE,
    EpisodeEntry,
    RawSchema,
    SeriesGroup,
    TensorsIndex,
    write_json,
)
from agent.trainer.data.windows import Block

GROUP_WINDOWS: Final = 8_192  # windows in a row group of parquet
CHUNK_WINDOWS: Final = 256  # windows summarised at once
INDEX: Final = pa.schema({
    "window": pa.int64(), "host": pa.string(), "episode": pa.string(), "offset": pa.int64(),
    "start": pa.int64(), "length": pa.int32(), "label": pa.int16(),
})  # fmt: skip


class SeriesWriter:
    """Writes the raw series: per group of channels one .npy file of (rows, channels) float32.

    Channels with the same modes are a group: a mode reads no file that it may not see.
    """

    def __init__(self, folder: Path, schema: RawSchema, outline: Outline) -> None:
        by_modes: dict[tuple[str, ...], list[str]] = {}
        for name, channel in schema.channels.items():
            by_modes.setdefault(tuple(sorted(channel.modes)), []).append(name)
        groups = tuple(
            SeriesGroup(file=f"series_{'_'.join(modes)}.npy", channels=names, modes=modes)
            for modes, names in sorted(by_modes.items())
        )
        order = list(schema.channels)
        self.files = [group.file for group in groups]
        self._columns = [[order.index(name) for name in group.channels] for group in groups]
        folder.mkdir(parents=True, exist_ok=True)
        index = TensorsIndex(rows=outline.rows, groups=groups, episodes=outline.episodes)
        write_json(folder / TENSORS_INDEX_FILE, index)
        self._open = [(folder / name).open("wb") for name in self.files]
        for file, columns in zip(self._open, self._columns):
            shape = (outline.rows, len(columns))
            head = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open:
            file.close()

    def append(self, values: Floats) -> None:
        """Append rows (n, channels), channels in the schema's order."""
        for file, columns in zip(self._open, self._columns):
            file.write(np.ascontiguousarray(values[:, columns], dtype="<f4").data)


class SeriesHashes:
    """Finds a series that is there under two names: it would be trained on and tested on.

    By the sha256 of each episode's values, labels aside; rows come in order, episode by episode.
    """

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._entry: EpisodeEntry | None = None
        self._hash = hashlib.sha256()
        self._known: dict[bytes, EpisodeEntry] = {}

    def append(self, entry: EpisodeEntry, values: Floats) -> None:
        """Take the next rows (n, channels) of an episode. Raises BadInputError."""
        if entry != self._entry:
            self.finish()
            self._entry, self._hash = entry, hashlib.sha256()
        self._hash.update(np.ascontiguousarray(values, dtype="<f4").data)

    def finish(self) -> None:
        """Take the last episode as whole. Raises BadInputError."""
        if self._entry is None:
            return
        first = self._known.setdefault(self._hash.digest(), self._entry)
        if first != self._entry:
            this, other = (
                f"host {one.host}, episode {one.episode}" for one in (self._entry, first)
            )
            problem = f"{this} is the same series as {other}"
            remedy = "drop one of them, or correct what wrote the file"
            raise BadInputError.at(self._raw, "episode", problem, remedy)


class TableWriter:
    """Writes windows into row groups of a fixed size, whatever sizes they come in."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # Every job reads the features: zstd, or a dictionary of floats, takes twice as long to.
        texts = [field.name for field in schema if field.type == pa.string()]
        self._writer = pq.ParquetWriter(path, schema, compression="lz4", use_dictionary=texts)
        self._schema = schema
        self._waiting = schema.empty_table()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._waiting.num_rows:
            self._writer.write_table(self._waiting)
        self._writer.close()

    def append(self, columns: Sequence[object]) -> None:
        """Append windows, an array (n,) a column."""
        fresh = pa.table(columns, schema=self._schema)
        self._waiting = pa.concat_tables([self._waiting, fresh])
        while self._waiting.num_rows >= GROUP_WINDOWS:
            table = self._waiting.combine_chunks()
            self._writer.write_table(table.slice(0, GROUP_WINDOWS))
            self._waiting = table.slice(GROUP_WINDOWS)


def index_of(block: Block, first: int, length: int) -> list[object]:
    """Return the columns of `INDEX` for a block's windows, which are numbered from `first`."""
    count = len(block.starts)
    return [
        np.arange(first, first + count),
        pa.array([block.entry.host] * count, pa.string()),
        pa.array([block.entry.episode] * count, pa.string()),
        block.entry.offset + block.starts,
        block.entry.start + block.starts,
        np.full(count, length, dtype=np.int32),
        block.labels,
    ]


def feature_names(schema: RawSchema) -> Iterator[tuple[str, str, str]]:
    """Yield (feature, channel, statistic) in the order of storage."""
    for channel in schema.channels:
        for statistic in STATISTICS:
            yield f"{channel}__{statistic}", channel, statistic


def features_of(block: Block, raw: Path) -> Iterator[list[Floats]]:
    """Yield columns (n,) of summary features, some windows at a time. Raises BadInputError."""
    for at in range(0, len(block.starts), CHUNK_WINDOWS):
        with np.errstate(over="ignore", invalid="ignore"):  # refused below, in words
            features = summarise(block.windows[at : at + CHUNK_WINDOWS])
        columns = np.ascontiguousarray(features.reshape(len(features), -1).T)
        if not np.isfinite(columns).all():
            where = f"host {block.entry.host}, episode {block.entry.episode}"
            problem = f"{where} has values whose features are beyond the range of float32"
            raise BadInputError.at(raw, "channels", problem, "use larger units")
        yield list(columns)
