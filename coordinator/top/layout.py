"""Columns that fit the window, bars and curves made of characters: values in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from coordinator.client.rows import Row

Cell = tuple[str, str]  # text, and what it means: one of GOOD to DIM, or nothing

GOOD: Final = "good"
BUSY: Final = "busy"
WARN: Final = "warn"
BAD: Final = "bad"
DIM: Final = "dim"
PLAIN: Final = ""
NOTHING: Final[Cell] = ("-", DIM)
GIB: Final = 2**30

_LEVELS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `cell` is given a row and the column's width in characters.

    Where not all columns fit, the highest `rank` goes first (0: it stays). A column grows from its
    `width` up to `most`. `left_out`: a row's remark stands in its place.
    """

    title: str
    width: int
    cell: Callable[[Row, int], Cell]
    right: bool = False
    most: int = 0
    left_out: bool = False
    rank: int = 0


def fit(columns: Sequence[Column], window: int) -> list[tuple[Column, int]]:
    """Return the columns that a window of so many characters has room for, with their widths."""
    shown = list(columns)
    for column in sorted(columns, key=lambda one: -one.rank):
        if column.rank and _left([one.width for one in shown], window) < 0:
            shown.remove(column)
    widths = [column.width for column in shown]
    left = _left(widths, window)
    if left < 0:
        widths[-1] = max(1, widths[-1] + left)
    for _ in range(left):
        growing = [index for index, column in enumerate(shown) if widths[index] < column.most]
        if growing:
            widths[min(growing, key=lambda index: widths[index] / shown[index].most)] += 1
    return list(zip(shown, widths))


def gap(window: int) -> int:
    """Return how many characters are between two columns."""
    return 1 if window < 100 else 2


def _left(widths: Sequence[int], window: int) -> int:
    return window - sum(widths) - gap(window) * (len(widths) - 1)


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
    return (f"{bar(percent / 100, width - 5)} {figure}" if width >= 9 else figure), style


def spark(values: Sequence[float], width: int) -> str:
    """Return a curve of at most `width` characters, from its lowest to its highest value."""
    if not values or width < 1:
        return ""
    if len(values) > width:
        step = (len(values) - 1) / max(1, width - 1)
        values = [values[round(index * step)] for index in range(width)]
    values = [value / 2 for value in values]  # how far apart two are may be beyond a float
    low, high = min(values), max(values)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] for value in values)


def used(taken_bytes: int | None, total_bytes: int | None) -> Cell:
    """Return how much memory is taken, of how much, in GiB: `9.6/32G`."""
    if not total_bytes or taken_bytes is None:
        return NOTHING
    taken, total = taken_bytes / GIB, total_bytes / GIB
    style = WARN if taken > 0.9 * total else PLAIN
    return f"{taken:.{1 if taken < 10 else 0}f}/{total:.0f}G", style
