"""Scores of whole telemetry: the function for programs, and the blocks that a file is scored by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from agent.trainer.common.arguments import default_threads
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.raw_file import RawFile
from agent.trainer.data.raw_table import RawTable, table_of
from agent.trainer.data.schema import Channel, RawSchema, read_json
from agent.trainer.data.windows import Labelling, cut_windows
from agent.trainer.inference.stored_model import OutOfRangeError, StoredModel, load_model
from agent.trainer.inference.verdicts import Verdicts
from agent.trainer.models.description import Description

_BATCH: Final = 512  # windows


def score(bundle: Path | str | StoredModel, telemetry: Any, threads: int | None = None) -> pa.Table:
    """Return the scores of telemetry: a table with a row a window, as `--out` has it.

    `telemetry` is a path (.parquet or .csv), a pandas or polars data frame, an Arrow table, or an
    array (rows, channels) in the order of the model's `description.channels`. Whoever scores often
    loads the model once: `load_model(bundle, threads)`. Raises BadInputError.
    """
    model = bundle
    if not isinstance(model, StoredModel):
        model = load_model(Path(model), threads or default_threads())
    if not isinstance(telemetry, Path | str):
        telemetry = table_of(telemetry, model.description.channels)
    tables = list(predict(model, telemetry))
    return pa.concat_tables(tables)


def predict(model: StoredModel, raw: Path | str | pa.Table) -> Iterator[pa.Table]:
    """Yield a table of scores for each block of rows in `raw`. Raises BadInputError."""
    told = model.description
    file = _opened(told, raw)
    outline = file.outline()
    longest = max(entry.length for entry in outline.episodes)
    if longest < told.window:
        problem = f"no episode has the model's {told.window} rows"
        raise BadInputError.at(file.path, "episode", problem, "give it longer ones")
    rows, verdicts = file.rows(outline, ()), Verdicts(told)
    for block in cut_windows(rows, told.window, told.stride, Labelling("unlabelled", ())):
        if not len(block.windows):
            continue
        try:
            pieces = [
                model.score(np.ascontiguousarray(block.windows[at : at + _BATCH]))
                for at in range(0, len(block.windows), _BATCH)
            ]
        except OutOfRangeError:
            where = f"host {block.entry.host}, episode {block.entry.episode}"
            problem = f"{where} has values beyond the range of the model"
            raise BadInputError.at(file.path, "channels", problem, "mend or drop them") from None
        scores = {name: np.concatenate([one[name] for one in pieces]) for name in pieces[0]}
        count = len(block.windows)
        keys = {
            "host": pa.array([block.entry.host] * count),
            "episode": pa.array([block.entry.episode] * count),
            "start": pa.array(block.entry.start + block.starts),
        }
        yield pa.table(keys | scores | verdicts.of(block.entry.host, scores))


def _opened(told: Description, raw: Path | str | pa.Table) -> RawFile:
    channels = {name: Channel(name=name, modes=("oracle",)) for name in told.channels}
    schema = RawSchema(label=None, period_s=1, channels=channels)
    if isinstance(raw, pa.Table):
        return RawTable(raw, schema)
    path = Path(raw)
    _check_period(told, path)
    return RawFile(path, schema, others=True)


class _Period(BaseModel):
    """The part of a raw schema that is compared with the model's."""

    period_s: float | None = None


def _check_period(told: Description, raw: Path) -> None:
    """Raise BadInputError if a schema beside `raw` has another period than the model."""
    path = raw.with_suffix(".schema.json")
    period_s = read_json(path, _Period).period_s if path.is_file() else None
    if period_s is not None and not math.isclose(period_s, told.period_s, rel_tol=1e-6):
        problem = f"a row every {period_s:g} s, but the model was trained on one every"
        remedy = "resample the telemetry, or take a model that was trained on such"
        raise BadInputError.at(path, "period_s", f"{problem} {told.period_s:g} s", remedy)
