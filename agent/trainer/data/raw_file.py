"""Raw telemetry, read as a stream: first its outline (order and labels), then its channels.

Rows of an episode lie together, t rises by one a row. Memory holds one batch of rows, whatever the
file's size, and the list of episodes.
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
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.schema import EpisodeEntry, RawSchema, readable

BATCH_ROWS: Final = 65_536
CSV_BLOCK_BYTES: Final = 8 << 20
READ_BUFFER_BYTES: Final = 1 << 20  # of a column, however large its row group is
MAX_CLASSES: Final = 1_000
UNLABELLED: Final = -1
_KEYS: Final = ("host", "episode", "t")
_MISSING: Final = tuple(pa_csv.ConvertOptions().null_values)  # no labels, in a CSV
_REMEDY: Final = "check that it is there, whole, and parquet or CSV as it is named"

_Entries = dict[tuple[str, str], EpisodeEntry]  # by host and episode, in the file's order


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
        self._is_csv = path.suffix == ".csv"
        self._label = [] if schema.label is None else [schema.label]
        self._check_columns(others=others)

    def outline(self) -> Outline:
        """Read keys and labels once, check their order, and return the episodes and labels."""
        entries: _Entries = {}
        labels: set[str] = set()
        for batch in self._batches([*_KEYS, *self._label]):
            self._add_episodes(entries, batch)
            labels.update(self._labels(batch).drop_null().unique().to_pylist())
            if len(labels) > MAX_CLASSES:
                problem = f"more than {MAX_CLASSES} values"
                raise self._fault(self._label[0], problem, "name a column of classes")
        if not entries:
            raise self._fault("file", "holds no rows", "give it some telemetry")
        return Outline(tuple(entries.values()), frozenset(labels))

    def rows(self, outline: Outline, classes: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows in order, no more than a batch at a time, cut at the episodes' ends."""
        codes = pa.array(classes, pa.string())
        episodes = iter(outline.episodes)
        entry = next(episodes)
        left = entry.length
        for batch in self._batches([*_KEYS, *self.schema.channels, *self._label]):
            values = self._values(batch)
            found = pa.compute.index_in(self._labels(batch), value_set=codes)
            labels = found.fill_null(UNLABELLED).to_numpy(zero_copy_only=False).astype(np.int16)
            at = 0
            while at < len(values):
                if left == 0:
                    entry = next(episodes)
                    left = entry.length
                take = min(left, len(values) - at)
                yield Rows(entry, values[at : at + take], labels[at : at + take])
                at, left = at + take, left - take

    def _fault(self, key: str, problem: str, remedy: str) -> BadInputError:
        return BadInputError.at(self.path, key, problem, remedy)

    def _check_columns(self, *, others: bool) -> None:
        reserved, channels = [*_KEYS, *self._label], self.schema.channels
        # The label would be learnt from itself, and so would a t that faults follow.
        for name in filter(channels.__contains__, reserved):
            problem = "is the label or one of the keys, and cannot be a channel"
            raise self._fault(name, problem, "take it out of the schema's channels")
        names = self._columns()
        columns, wanted = {*names}, {*reserved, *channels}
        for name in sorted(columns & wanted):
            if names.count(name) > 1:
                raise self._fault(name, "column is there twice", "drop one of them")
        for name in sorted(wanted - columns):
            # With `others` the columns are those of a model: its user has no schema.
            remedy = "add it: the model needs it" if others else "add it, or correct the schema"
            raise self._fault(name, "column is missing", remedy)
        for name in () if others else sorted(columns - wanted):
            remedy = "add it to the schema's channels, or drop it"
            raise self._fault(name, "column is in no schema", remedy)

    def _columns(self) -> list[str]:
        with readable(self.path, _REMEDY):
            if self._is_csv:
                with self._open_csv(None) as reader:
                    return list(reader.schema.names)
            return list(pq.read_schema(self.path).names)

    def _open_csv(self, columns: list[str] | None) -> Any:
        types = {"host": pa.string(), "episode": pa.string(), "t": pa.int64()}
        types |= dict.fromkeys(self.schema.channels, pa.float32())
        types |= dict.fromkeys(self._label, pa.string())
        return pa_csv.open_csv(
            self.path,
            read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            # Arrow keeps text as it is: a host may be called NA. `_labels` knows missing labels.
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=columns),
        )

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with readable(self.path, _REMEDY):
            if self._is_csv:
                with self._open_csv(columns) as reader:
                    yield from reader
                return
            # Pre-buffering would keep every row group that was read until the file is closed.
            options: Any = {"pre_buffer": False, "buffer_size": READ_BUFFER_BYTES}
            with pq.ParquetFile(self.path, **options) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the labels as strings, null where a row is unlabelled."""
        name, unlabelled = self.schema.label, self.schema.unlabelled
        if name is None:
            return pa.nulls(batch.num_rows, pa.string())
        try:
            labels = _as_label_strings(batch.column(name))
        except pa.ArrowInvalid as error:
            raise self._fault(name, "is neither text nor whole numbers", "use classes") from error
        if self._is_csv:
            labels = _without(labels, [one for one in _MISSING if one != str(unlabelled)])
        if unlabelled is None:
            return labels
        if labels.null_count:
            remedy = f"give unlabelled rows the label {unlabelled!r}"
            raise self._fault(name, "a label is missing", remedy)
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
            wrong = np.flatnonzero(~np.isfinite(out[:, at]))
            if len(wrong):
                host, episode, t = (batch.column(key)[int(wrong[0])].as_py() for key in _KEYS)
                where = f"value at host {host}, episode {episode}, t {t}"
                problem = f"{where} is missing, not finite or beyond the range of float32"
                raise self._fault(name, problem, "correct it, or cut the episode there")
        return out

    def _add_episodes(self, entries: _Entries, batch: pa.RecordBatch) -> None:
        """Add the episodes of a batch to `entries`, or extend the last one."""
        if batch.num_rows == 0:
            return
        hosts, episodes = self._strings(batch, "host"), self._strings(batch, "episode")
        t = batch.column("t")
        if t.null_count or not pa.types.is_integer(t.type):
            raise self._fault("t", "is not a whole number", "count steps by one")
        steps = t.to_numpy(zero_copy_only=False).astype(np.int64)
        change = (hosts[1:] != hosts[:-1]) | (episodes[1:] != episodes[:-1])
        bounds = [0, *(np.flatnonzero(change) + 1).tolist(), len(steps)]
        for begin, end in itertools.pairwise(bounds):
            self._add_steps(entries, str(hosts[begin]), str(episodes[begin]), steps[begin:end])

    def _strings(self, batch: pa.RecordBatch, key: str) -> Any:
        column = batch.column(key).cast(pa.string())
        lacks = self._is_csv and pa.compute.any(pa.compute.equal(column, "")).as_py()
        if column.null_count or lacks:
            raise self._fault(key, "a value is missing", "name it in every row")
        return column.to_numpy(zero_copy_only=False)

    def _add_steps(self, entries: _Entries, host: str, episode: str, t: Ints) -> None:
        last = next(reversed(entries.values()), None)
        entry = EpisodeEntry(
            host=host,
            episode=episode,
            offset=last.offset + last.length if last else 0,
            length=len(t),
            start=int(t[0]),
        )
        key = (host, episode)
        if last is not None and key == (last.host, last.episode):
            t = np.concatenate([[last.start + last.length - 1], t])
            entry = last.model_copy(update={"length": last.length + entry.length})
        elif key in entries:
            problem = f"rows of host {host}, episode {episode} lie apart"
            raise self._fault("episode", problem, "sort by host, episode, t")
        self._check_steps(host, episode, t)
        entries[key] = entry

    def _check_steps(self, host: str, episode: str, t: Ints) -> None:
        wrong = np.flatnonzero(np.diff(t) != 1)
        if len(wrong):
            before, after = t[wrong[0]], t[wrong[0] + 1]
            problem = f"host {host}, episode {episode} goes from t {before} to {after}"
            remedy = "sort by t, keep one row a step, and begin a new episode after a gap"
            raise self._fault("t", problem, remedy)


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
