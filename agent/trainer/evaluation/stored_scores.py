"""What is known of a fold's model after its test, as a file of its bundle: `combine` reads it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.data.dataset import WindowIndex, index_of
from agent.trainer.evaluation.evaluate import MODEL, Judged
from agent.trainer.evaluation.metrics import Scored
from agent.trainer.evaluation.report_schema import Thresholds
from agent.trainer.evaluation.results import Tested
from agent.trainer.evaluation.thresholds import Track

SCORES_FILE: Final = "test_scores.parquet"
_META: Final = b"scores"
_OF_TRACKS: Final = ("score", "own")
_KEYS: Final = ("window", "host", "episode", "offset", "start", "label")


class Scorer(BaseModel):
    """A scorer: its columns, of one score or one a class, and what else `Judged` has."""

    columns: tuple[str, ...]
    probable: bool
    thresholds: Thresholds
    lacks: tuple[str, ...]


class Meta(BaseModel):
    """What else the file says: how windows are cut, the scorers, and what else `Tested` has."""

    length: int
    stride: int
    period_s: float
    scorers: dict[str, Scorer]
    targets: dict[float, float]
    falls: dict[str, float]
    windows: int


def scores_of(index: WindowIndex, tested: Tested) -> bytes:
    """Return the file: a row a window, with a column for each score.

    Where the task has an alarm it has the test part's windows without a label, too.
    """
    tracks = tested.tracks
    scored = [one.test.windows for one in tested.judged.values()]
    windows = np.unique(np.concatenate([*scored, *(track.windows for track in tracks)]))

    def column(its: Ints, values: Floats) -> Floats:
        found = np.full(len(windows), np.nan)
        found[np.searchsorted(windows, its)] = values
        return found

    columns: dict[str, Any] = {
        "window": windows,
        "host": np.array(index.hosts)[index.host[windows]],
        "episode": np.array(index.episodes)[index.episode[windows]],
        **{name: getattr(index, name)[windows] for name in _KEYS[3:]},
    }
    scorers = {}
    for name, one in tested.judged.items():
        score = one.test.score
        rows = {name: score} if score.ndim == 1 else {
            f"{name}_{k}": score[:, k] for k in range(score.shape[1])
        }  # fmt: skip
        columns |= {row: column(one.test.windows, values) for row, values in rows.items()}
        scorers[name] = Scorer(
            columns=tuple(rows),
            probable=one.test.probable,
            thresholds=one.thresholds,
            lacks=one.lacks,
        )
    if tracks:
        its = np.concatenate([track.windows for track in tracks])
        for name in _OF_TRACKS:
            values = np.concatenate([getattr(track, name) for track in tracks])
            columns[name] = column(its, values)
    meta = Meta(
        length=index.length,
        stride=index.stride,
        period_s=index.period_s,
        scorers=scorers,
        targets=tested.targets,
        falls=tested.falls,
        windows=tested.windows,
    )
    table = pa.table(columns).replace_schema_metadata({_META: meta.model_dump_json()})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def read_scores(content: bytes) -> tuple[pa.Table, Meta]:
    """Return the table and what it says of itself. Raises ValueError where it is no such file."""
    table = pq.read_table(io.BytesIO(content))
    try:
        return table, Meta.model_validate_json((table.schema.metadata or {})[_META])
    except (KeyError, ValidationError) as error:
        raise ValueError("is no file of scores") from error


def joined(folds: Sequence[tuple[pa.Table, Meta]]) -> tuple[WindowIndex, list[Tested]]:
    """Return the index of all windows of these files, in the data's order, and what each has."""
    meta = folds[0][1]
    every = pa.concat_tables([table.select(list(_KEYS)) for table, _ in folds]).sort_by("window")
    index = index_of(every, meta.length, meta.stride, meta.period_s)
    order = every["window"].to_numpy()
    return index, [
        _tested_of(table, meta, np.searchsorted(order, table["window"].to_numpy()))
        for table, meta in folds
    ]


def _tested_of(table: pa.Table, meta: Meta, windows: Ints) -> Tested:
    """Return what was stored; `windows` are the table's, by their numbers in the index."""
    label = table["label"].to_numpy()
    known, judged = label >= 0, {}
    for name, one in meta.scorers.items():
        columns = [table[column].to_numpy() for column in one.columns]
        score = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        test = Scored(windows[known], label[known], score[known], one.probable)
        judged[name] = Judged(test, one.thresholds, one.lacks)
    tracks = _tracks(table, windows, judged[MODEL].thresholds)
    return Tested(judged, None, tracks, meta.targets, meta.falls, meta.windows)


def _tracks(table: pa.Table, windows: Ints, thresholds: Thresholds) -> tuple[Track, ...]:
    """Return the track of each host; none where the task has no alarm."""
    if _OF_TRACKS[0] not in table.column_names:
        return ()
    levels = [np.nan if one is None else one for one in (thresholds.alarm, thresholds.decision)]
    values = [table[name].to_numpy() for name in ("label", *_OF_TRACKS)]
    host = np.array(table["host"].to_pylist())
    return tuple(
        Track(str(one), windows[host == one], *(of[host == one] for of in values), *levels)
        for one in np.unique(host)
    )
