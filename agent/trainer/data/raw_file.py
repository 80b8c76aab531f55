"""Raw telemetry, read as a stream: first its outline (order and labels), then its channels.

A raw file (parquet or CSV) has the columns host, episode, t, the schema's channels, and the
label. Rows of an episode lie together, t rises by one a row. Memory holds one batch of rows,
whatever the file's size, and the list of episodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.errors import BadInputError, plain
from agent.trainer.data.schema import EpisodeEntry, RawSchema

BATCH_ROWS: Final = 65_536
CSV_BLOCK_BYTES: Final = 8 << 20
READ_BUFFER_BYTES: Final = 1 << 20  # of a column, however large its row group is
MAX_CLASSES: Final = 1_000
UNLABELLED: Final = -1
_KEYS: Final = ("host", "episode", "t")
_MISSING: Final = tuple(pa_csv.ConvertOptions().null_values)  # labels that a CSV lacks


@dataclass(frozen=True)
class Outline:
    """What is known of a raw file after the first pass: its episodes and its label values."""

    episodes: tuple[EpisodeEntry, ...]
    labels: frozenset[str]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(entry.length for entry in self.episodes)


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one episode: values (n, channels) float32, labels (n,) class codes."""

    entry: EpisodeEntry
    values: Floats
    labels: Ints


class RawFile:
    """A raw file with its schema. Every fault of it raises BadInputError with the remedy."""

    def __init__(self, path: Path, schema: RawSchema, *, others: bool = False) -> None:
        """Check the columns; `others` than the schema's may be there, and are not read."""
        self.path = path
        self.schema = schema
        self._label = [] if schema.label is None else [schema.label]
        self._check_columns(others=others)

    def outline(self) -> Outline:
        """Read keys and labels once, check their order, and return the episodes and labels."""
        scan = _OutlineScan(self.path)
        labels: set[str] = set()
        for batch in self._batches([*_KEYS, *self._label]):
            scan.add(batch)
            labels.update(self._labels(batch).drop_null().unique().to_pylist())
            if len(labels) > MAX_CLASSES:
                raise self._fault(
                    self._label[0], f"more than {MAX_CLASSES} values", "name a column of classes"
                )
        return Outline(scan.finish(), frozenset(labels))

    def rows(self, outline: Outline, classes: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows in order, no more than a batch at a time, cut at the episodes' ends."""
        codes = pa.array(classes, pa.string())
        episodes = iter(outline.episodes)
        entry, left = None, 0
        for batch in self._batches([*_KEYS, *self.schema.channels, *self._label]):
            values = self._values(batch)
            found = pa.compute.index_in(self._labels(batch), value_set=codes)
            labels = found.fill_null(UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int16)
            at = 0
            while at < len(values):
                if left == 0:
                    entry = next(episodes)
                    left = entry.length
                assert entry is not None  # noqa: S101 - left is 0 at the start
                take = min(left, len(values) - at)
                yield Rows(entry, values[at : at + take], labels[at : at + take])
                at, left = at + take, left - take

    def _fault(self, key: str, problem: str, remedy: str) -> BadInputError:
        return BadInputError.at(self.path, key, problem, remedy)

    def _check_columns(self, *, others: bool) -> None:
        for name in (*_KEYS, *self._label):
            if name in self.schema.channels:
                # The label would be learnt from itself, and so would a t that faults follow.
                problem = "is no channel, but what the rows are told by"
                raise self._fault(name, problem, "take it out of the schema's channels")
        columns = self._column_names()
        wanted = [*_KEYS, *self.schema.channels, *self._label]
        for name in wanted:
            if name not in columns:
                # Whoever scores has no schema: the columns are those of the model.
                remedy = "add it: the model needs it" if others else "add it, or correct the schema"
                raise self._fault(name, "column is missing", remedy)
        for name in columns:
            if name not in wanted and not others:
                raise self._fault(
                    name, "column is in no schema", "add it to the schema's channels, or drop it"
                )

    def _column_names(self) -> list[str]:
        with self._readable():
            if _is_csv(self.path):
                with self._open_csv(None) as reader:
                    return list(reader.schema.names)
            return list(pq.read_schema(self.path).names)

    def _readable(self) -> _Readable:
        return _Readable(self.path)

    def _open_csv(self, columns: list[str] | None) -> Any:
        types = {"host": pa.string(), "episode": pa.string(), "t": pa.int64()}
        types |= dict.fromkeys(self.schema.channels, pa.float32())
        types |= dict.fromkeys(self._label, pa.string())
        return pa_csv.open_csv(
            self.path,
            read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            # Text is taken as it stands: a host may be called NA. What is no label is told below.
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=columns),
        )

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._readable():
            if _is_csv(self.path):
                with self._open_csv(columns) as reader:
                    yield from reader
            else:
                # Pre-buffering would keep every row group that was read until the file is closed.
                with pq.ParquetFile(
                    self.path, pre_buffer=False, buffer_size=READ_BUFFER_BYTES
                ) as file:
                    yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the labels as strings, null where a row is unlabelled."""
        name, unlabelled = self.schema.label, self.schema.unlabelled
        if name is None:
            return pa.nulls(batch.num_rows, pa.string())
        try:
            labels = _as_label_strings(batch.column(name))
            if _is_csv(self.path):
                labels = _without(labels, [one for one in _MISSING if one != str(unlabelled)])
        except pa.ArrowInvalid as error:
            raise self._fault(name, "is neither text nor whole numbers", "use classes") from error
        if unlabelled is None:
            return labels
        if labels.null_count:
            raise self._fault(
                name, "a label is missing", f"give unlabelled rows the label {unlabelled!r}"
            )
        return _without(labels, [str(unlabelled)])

    def _values(self, batch: pa.RecordBatch) -> Floats:
        """Return the channels as (rows, channels) float32, all finite."""
        out = np.empty((batch.num_rows, len(self.schema.channels)), dtype=np.float32)
        for at, name in enumerate(self.schema.channels):
            try:
                column = batch.column(name).cast(pa.float32(), safe=False)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise self._fault(name, "is not numeric", "make the channel a number") from error
            out[:, at] = column.to_numpy(zero_copy_only=False)
            if not np.isfinite(out[:, at]).all():
                row = int(np.flatnonzero(~np.isfinite(out[:, at]))[0])
                host, episode, t = (batch.column(key)[row].as_py() for key in _KEYS)
                raise self._fault(
                    name,
                    f"value at host {host}, episode {episode}, t {t} is missing or not finite",
                    "fill the gap or cut the episode there",
                )
        return out


def _is_csv(path: Path) -> bool:
    return path.suffix == ".csv"


def _without(labels: pa.Array, values: Sequence[str]) -> pa.Array:
    """Return labels with null for each that is among `values`."""
    among = pa.compute.is_in(labels, value_set=pa.array(values, pa.string()))
    return pa.compute.if_else(among, pa.scalar(None, pa.string()), labels)


def _as_label_strings(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type) or pa.types.is_floating(column.type):
        column = column.cast(pa.int64())
    # 1.0, as a CSV with gaps has it, is the class "1".
    return pa.compute.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)\.0+$", r"\1")


class _Readable:
    """Turns what the operating system or arrow says about a file into a BadInputError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
            raise BadInputError.at(self._path, "file", plain(error), "check the path") from error
        if isinstance(error, pa.ArrowException):
            raise BadInputError.at(
                self._path, "file", str(error), "is it whole, and parquet or CSV as it is named?"
            ) from error


class _OutlineScan:
    """Collects episodes batch by batch and checks that each is whole, together and in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: list[EpisodeEntry] = []
        self._seen: set[tuple[str, str]] = set()
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        hosts, episodes = (self._strings(batch, key) for key in ("host", "episode"))
        t = self._steps(batch)
        change = (hosts[1:] != hosts[:-1]) | (episodes[1:] != episodes[:-1])
        bounds = [0, *(np.flatnonzero(change) + 1).tolist(), len(t)]
        for start, stop in itertools.pairwise(bounds):
            self._segment(str(hosts[start]), str(episodes[start]), t[start:stop])
        self._rows += len(t)

    def finish(self) -> tuple[EpisodeEntry, ...]:
        if not self._entries:
            raise BadInputError.at(self._path, "file", "holds no rows", "give it some telemetry")
        return tuple(self._entries)

    def _strings(self, batch: pa.RecordBatch, key: str) -> Any:
        column = batch.column(key).cast(pa.string())
        lacks = _is_csv(self._path) and pa.compute.any(pa.compute.equal(column, "")).as_py()
        if column.null_count or lacks:
            raise BadInputError.at(self._path, key, "a value is missing", "name it in every row")
        return column.to_numpy(zero_copy_only=False)

    def _steps(self, batch: pa.RecordBatch) -> Ints:
        column = batch.column("t")
        if column.null_count or not pa.types.is_integer(column.type):
            raise BadInputError.at(self._path, "t", "is not a whole number", "count steps by one")
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)

    def _segment(self, host: str, episode: str, t: Ints) -> None:
        last = self._entries[-1] if self._entries else None
        if last is not None and (last.host, last.episode) == (host, episode):
            self._check_steps(host, episode, np.concatenate([[last.start + last.length - 1], t]))
            grown = last.model_copy(update={"length": last.length + len(t)})
            self._entries[-1] = grown
            return
        if (host, episode) in self._seen:
            raise BadInputError.at(
                self._path,
                "episode",
                f"rows of host {host}, episode {episode} lie apart",
                "sort by host, episode, t",
            )
        self._check_steps(host, episode, t)
        self._seen.add((host, episode))
        offset = last.offset + last.length if last else 0
        self._entries.append(
            EpisodeEntry(host=host, episode=episode, offset=offset, length=len(t), start=int(t[0]))
        )

    def _check_steps(self, host: str, episode: str, t: Ints) -> None:
        steps = np.diff(t)
        if (steps == 1).all():
            return
        at = int(np.flatnonzero(steps != 1)[0])
        before, after = int(t[at]), int(t[at + 1])
        where = f"host {host}, episode {episode}"
        if after == before:
            problem, remedy = f"{where} has t {after} twice", "keep one row a step"
        elif after < before:
            problem, remedy = f"{where} goes from t {before} back to {after}", "sort by t"
        else:
            problem = f"{where} jumps from t {before} to {after}"
            remedy = "fill the gap or begin a new episode after it"
        raise BadInputError.at(self._path, "t", problem, remedy)
