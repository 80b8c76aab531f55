"""Columns that fit the window, bars and curves made of characters: values in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from rich.cells import cell_len, set_cell_size

Row = TypeVar("Row")
Cell = tuple[str, str]  # text, and what it means: one of GOOD to DIM, or nothing

GOOD: Final = "good"
BUSY: Final = "busy"
WARN: Final = "warn"
BAD: Final = "bad"
DIM: Final = "dim"
PLAIN: Final = ""
NOTHING: Final[Cell] = ("-", DIM)

_LEVELS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column. `cell` is given a row and the column's width in characters.

    It is shown in windows of at least `since` characters, and where not even those columns fit,
    the highest `rank` goes first (0: it stays). Of the room that is left it takes shares by
    `grows`, until it has `most` characters. `left_out`: a row's remark stands in its place.
    """

    title: str
    width: int
    cell: Callable[[Row, int], Cell]
    right: bool = False
    since: int = 0
    grows: int = 0
    most: int = 1000
    left_out: bool = False
    rank: int = 0


def fit(columns: Sequence[Column[Row]], window: int) -> list[tuple[Column[Row], int]]:
    """Return the columns that a window of so many characters has room for, with their widths."""
    shown = [column for column in columns if column.since <= window]
    for column in sorted(shown, key=lambda one: -one.rank):
        if column.rank and _used([one.width for one in shown], window) > window:
            shown.remove(column)
    widths = [column.width for column in shown]
    left = window - sum(widths) - gap(window) * (len(shown) - 1)
    if left < 0:
        widths[-1] = max(1, widths[-1] + left)
    growing = [index for index, column in enumerate(shown) if column.grows]
    while left > 0 and growing:
        total = sum(shown[index].grows for index in growing)
        for index in growing:
            share = max(1, left * shown[index].grows // total)
            room = min(share, shown[index].most - widths[index], window - _used(widths, window))
            widths[index] += max(0, room)
        growing = [index for index in growing if widths[index] < shown[index].most]
        left = window - _used(widths, window)
    return list(zip(shown, widths))


def gap(window: int) -> int:
    """Return how many characters are between two columns."""
    return 1 if window < 100 else 2


def _used(widths: Sequence[int], window: int) -> int:
    return sum(widths) + gap(window) * (len(widths) - 1)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text of exactly so many characters' room; what is cut off is replaced by `…`."""
    have = cell_len(text)
    if have > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width else ""
    return " " * (width - have) + text if right else text + " " * (width - have)


def bar(share: float, width: int) -> str:
    """Return a bar that is filled by a share between 0 and 1."""
    filled = round(width * min(1.0, max(0.0, share)))
    return "━" * filled + "╌" * (width - filled)


def meter(percent: float | None, width: int) -> Cell:
    """Return a percentage, with a bar before it where there is room for one."""
    if percent is None:
        return NOTHING
    figure = f"{min(percent, 999):3.0f}%"
    style = BUSY if percent >= 50 else PLAIN
    if width < 9:
        return figure, style
    return f"{bar(percent / 100, width - 5)} {figure}", style


def spark(values: Sequence[float], width: int) -> str:
    """Return a curve of at most `width` characters, from its lowest to its highest value."""
    if not values or width < 1:
        return ""
    if len(values) > width:
        step = (len(values) - 1) / max(1, width - 1)
        values = [values[round(index * step)] for index in range(width)]
    values = [value / 2 for value in values]  # how far apart two are may be beyond a float
    low, high = min(values), max(values)
    if high <= low:
        return _LEVELS[0] * len(values)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round((value - low) / (high - low) * top)] for value in values)


def used(free_bytes: int | None, total_bytes: int | None) -> Cell:
    """Return how much memory is taken, of how much, in GiB: `9.6/32G`."""
    if not total_bytes or free_bytes is None:
        return NOTHING
    taken = max(0, total_bytes - free_bytes) / 2**30
    total = total_bytes / 2**30
    style = WARN if taken > 0.9 * total else PLAIN
    return f"{taken:.1f}/{total:.0f}G" if taken < 10 else f"{taken:.0f}/{total:.0f}G", style
