"""Scores telemetry row by row, as it comes: many hosts in one stream, a line a row.

A window of a host is scored with the row that completes it, so a score is as old as its last row.
What a file and a stream give for the same rows is the same.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.common.errors import BadInputError
from agent.trainer.inference.stored_model import OutOfRangeError, StoredModel
from agent.trainer.inference.verdicts import Verdicts

MAX_LINE_BYTES: Final = 1 << 20
MAX_HOSTS: Final = 10_000  # each has a window of rows in memory
_MOST: Final = float(np.finfo(np.float32).max)
_HOST: Final = "host"  # of rows that name none


class BadRowError(Exception):
    """A row that cannot be scored; it is left out."""


@dataclass
class _Rows:
    """The newest rows of a host: a ring (steps, channels), and how many rows it has seen.

    `lost` of them could not be read since the last one that could.
    """

    values: Floats
    episode: str = ""
    first: int = 0
    count: int = 0
    lost: int = 0

    def window(self) -> Floats:
        """Return the rows in order, as a window (1, channels, steps)."""
        order = np.roll(self.values, -(self.count % len(self.values)), axis=0)
        return np.ascontiguousarray(order.T[None])


class Stream:
    """Takes rows; gives a score for each that completes a window."""

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        self._told = model.description
        self._verdicts = Verdicts(model.description)
        self._hosts: dict[str, _Rows] = {}

    def push(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the score of the window that `row` completes, or None. Raises BadRowError.

        `row` has the model's channels; `host`, `episode` and `t` if there are such. A step in `t`
        that is not one, another episode, or without `t` a row that could not be read begins anew:
        no window spans a gap.
        """
        host, episode = str(row.get("host", _HOST)), str(row.get("episode", ""))
        rows = self._rows_of(host)
        following = rows.first + rows.count + rows.lost
        rows.lost += 1  # until all of it is known to be right
        values = _values(row, self._told.channels)
        t = _step(row.get("t"), following)
        if (t, episode) == (rows.first + rows.count - 1, rows.episode) and rows.count:
            raise BadRowError(f"t: {t} of host {host} came twice")
        if (t, episode) != (rows.first + rows.count, rows.episode):
            rows.first, rows.count, rows.episode = t, 0, episode
        rows.lost, steps = 0, len(rows.values)
        rows.values[rows.count % steps] = values
        rows.count += 1
        if rows.count < steps or (rows.count - steps) % self._told.stride:
            return None
        try:
            scores = self._model.score(rows.window())
        except OutOfRangeError:
            rows.first, rows.count = t + 1, 0  # one complaint, not one a window
            problem = f"t: the window of host {host} that ends at {t} has values"
            raise BadRowError(f"{problem} beyond the range of the model") from None
        found = scores | self._verdicts.of(host, scores)
        keys = {"host": host, "episode": episode, "start": rows.first + rows.count - steps}
        return keys | {name: one[0].item() for name, one in found.items()}

    def lose(self) -> None:
        """Take note of a row that could not be read: it may have been any host's."""
        for rows in self._hosts.values():
            rows.lost += 1

    def _rows_of(self, host: str) -> _Rows:
        if host not in self._hosts:
            if len(self._hosts) == MAX_HOSTS:
                raise BadRowError(f"host: more than {MAX_HOSTS} hosts")
            shape = (self._told.window, len(self._told.channels))
            self._hosts[host] = _Rows(np.zeros(shape, dtype=np.float32))
        return self._hosts[host]


def _values(row: Mapping[str, Any], channels: tuple[str, ...]) -> list[float]:
    found = []
    for name in channels:
        try:
            found.append(float(row[name]))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadRowError(f"{name}: is missing or no number") from None
        if not abs(found[-1]) <= _MOST:  # NaN neither
            raise BadRowError(f"{name}: is not finite")
    return found


def _step(t: Any, following: int) -> int:
    if t is None or t == "":
        return following
    try:
        return int(t)
    except (TypeError, ValueError, OverflowError):
        raise BadRowError("t: is no whole number") from None


def rows_of(
    source: IO[bytes], channels: tuple[str, ...], complain: Callable[[str], None]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each row of JSON lines, or of CSV with a header, and its line. Raises BadInputError.

    A header has the `channels`. A line that is no row is left out, with a complaint.
    """
    header: list[str] | None = None  # empty: the lines are JSON
    for number, line in enumerate(_lines(source), 1):
        text = line.decode("utf-8", errors="replace").strip()
        if not text:
            continue
        if header is None:
            header = [] if text.startswith("{") else _header(text, channels)
            if header:
                continue
        try:
            yield number, _row(text, header)
        except (BadRowError, ValueError, RecursionError, csv.Error) as error:
            complain(f"line {number}: {error}; it is left out")


def _header(text: str, channels: tuple[str, ...]) -> list[str]:
    try:
        names = next(csv.reader([text]))
    except csv.Error as error:
        problem, remedy = str(error), "send JSON lines, or CSV with a header"
        raise BadInputError.at("standard input", "header", problem, remedy) from None
    for name in names:
        if names.count(name) > 1:
            problem = f"column {name!r} is there twice"
            raise BadInputError.at("standard input", "header", problem, "drop one of them")
    if missing := [name for name in channels if name not in names]:
        problem, remedy = f"has no {', '.join(missing)}", "send every channel of the model"
        raise BadInputError.at("standard input", "header", problem, remedy)
    return names


def _row(text: str, header: list[str]) -> Mapping[str, Any]:
    if not header:
        row = json.loads(text)
        if not isinstance(row, dict):
            raise BadRowError("is no JSON object")
        return row
    cells = next(csv.reader([text]))
    if len(cells) != len(header):
        raise BadRowError(f"has {len(cells)} cells, the header {len(header)}")
    return dict(zip(header, cells))


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            problem = f"is longer than {MAX_LINE_BYTES} bytes"
            raise BadInputError.at("standard input", "line", problem, "send a row a line")
        yield line
