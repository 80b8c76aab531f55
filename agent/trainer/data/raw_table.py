"""Raw telemetry that is in memory: a table, a data frame, or an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from agent.trainer.common.errors import BadInputError
from agent.trainer.data.raw_file import BATCH_ROWS, RawFile
from agent.trainer.data.schema import RawSchema

_PLACE: Final = Path("telemetry")


class RawTable(RawFile):
    """A table with the columns of a raw file; every fault of it raises BadInputError."""

    def __init__(self, table: pa.Table, schema: RawSchema) -> None:
        self._table = table
        super().__init__(_PLACE, schema, others=True)

    def _columns(self) -> list[str]:
        return list(self._table.column_names)

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(columns).to_batches(max_chunksize=BATCH_ROWS)


def table_of(telemetry: Any, channels: Sequence[str]) -> pa.Table:
    """Return a data frame, a dictionary of columns, or an array (rows, channels) as a table.

    Rows that name no host, episode or t are consecutive rows of one. Raises BadInputError.
    """
    if isinstance(telemetry, np.ndarray):
        if telemetry.ndim != 2 or telemetry.shape[1] != len(channels):
            problem = f"is of the shape {telemetry.shape}, and the model has {len(channels)}"
            raise BadInputError.at(_PLACE, "channels", problem, "give it (rows, channels)")
        telemetry = dict(zip(channels, telemetry.T))
    try:
        table = pa.table(telemetry)
    except (TypeError, ValueError) as error:
        remedy = "give a path, a data frame, or an array (rows, channels)"
        raise BadInputError.at(_PLACE, "type", str(error), remedy) from error
    rows = len(table)
    for name, column in {
        "host": pa.array(["host"] * rows),
        "episode": pa.array([""] * rows, pa.string()),
        "t": pa.array(np.arange(rows)),
    }.items():
        if name not in table.column_names:
            table = table.append_column(name, column)
    return table
