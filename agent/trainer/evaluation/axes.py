"""A small writer of line drawings as SVG. Colours are CSS variables of the page around it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Final

INK: Final = "var(--ink)"
FAINT: Final = "var(--faint)"
DASHED: Final = "6 4"
DOTTED: Final = "2 3"
_WIDTH: Final = 460
_RIGHT: Final = _WIDTH - 12
_BELOW: Final = 44  # for the scale and its name
_LETTER: Final = 6.6  # about the width of one
_ROW: Final = 18  # of the legend
_LONGEST: Final = 24

Range = tuple[float, float]


class Axes:
    """A rectangle with scales, and what is drawn in it; `legend` has (name, colour) of lines.

    With `names` the vertical axis has these at 0, 1, 2 and so on, not a scale.
    """

    def __init__(
        self,
        x: Range,
        y: Range,
        labels: tuple[str, str],
        *,
        height: int = 340,
        legend: Sequence[tuple[str, str]] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._x, self._y = x, y
        self._parts: list[str] = []
        self._left = 24 + _LETTER * max((len(short(name)) for name in names), default=5)
        self._top = self._legend(legend)
        self._bottom = self._top + height - _BELOW
        for value in ticks(*x):
            across = self._across(value)
            self._path([(across, self._top), (across, self._bottom)], FAINT, 0.5)
            self._text(across, self._bottom + 15, f"{value:g}", "middle")
        marks = enumerate(map(short, names)) if names else ((one, f"{one:g}") for one in ticks(*y))
        for at, text in marks:
            up = self._up(at)
            if not names:
                self._path([(self._left, up), (_RIGHT, up)], FAINT, 0.5)
            self._text(self._left - 6, up + 4, text, "end")
        corner = (self._left, self._bottom)
        self._path([(self._left, self._top), corner, (_RIGHT, self._bottom)], FAINT, 1)
        self._text((self._left + _RIGHT) / 2, self._bottom + 34, labels[0], "middle")
        middle = (self._top + self._bottom) / 2
        turn = f' transform="rotate(-90 12 {middle:.1f})"'
        self._text(12, middle, labels[1], "middle", turn)

    def line(
        self,
        points: Iterable[tuple[float, float | None]],
        colour: str,
        width: float = 1.6,
        dashes: str = "",
    ) -> None:
        """Draw a line through points; it is broken where one has no height."""
        for is_there, run in groupby(points, lambda point: point[1] is not None):
            if is_there:
                places = [(self._across(x), self._up(y)) for x, y in run if y is not None]
                self._path(places, colour, width, dashes)

    def dot(self, x: float, y: float, colour: str, radius: float) -> None:
        """Draw a dot."""
        place = f'cx="{self._across(x):.1f}" cy="{self._up(y):.1f}"'
        self._parts.append(f'<circle {place} r="{radius:.1f}" style="fill: {colour}"/>')

    def box(self, x: Range, y: Range, colour: str, opacity: float = 1.0) -> None:
        """Fill a rectangle."""
        (left, right), (one, other) = map(self._across, x), map(self._up, y)
        self._parts.append(
            f'<rect x="{left:.1f}" y="{min(one, other):.1f}" width="{right - left:.1f}" '
            f'height="{abs(other - one):.1f}" style="fill: {colour}; opacity: {opacity:g}"/>'
        )

    def note(self, x: float, y: float, text: str) -> None:
        """Write a text to the right of a place."""
        self._text(self._across(x) + 6, self._up(y) + 4, text, "start")

    def svg(self, name: str) -> str:
        """Return the drawing; an element `NAME-title` of the page has its title."""
        height = self._bottom + _BELOW
        head = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        return "\n".join([f'{head}aria-labelledby="{name}-title">', *self._parts, "</svg>\n"])

    def _legend(self, entries: Sequence[tuple[str, str]]) -> float:
        """Write what each line is, in rows, and return where the rectangle begins."""
        x, y = self._left, 14.0
        for name, colour in entries:
            text = short(name)
            width = 30 + _LETTER * len(text)
            if x + width > _RIGHT and x > self._left:
                x, y = self._left, y + _ROW
            self._path([(x, y - 4), (x + 16, y - 4)], colour, 3)
            self._text(x + 20, y, text, "start")
            x += width
        return y + 8 if entries else 10.0

    def _across(self, x: float) -> float:
        low, high = self._x
        return self._left + (x - low) / (high - low) * (_RIGHT - self._left)

    def _up(self, y: float) -> float:
        low, high = self._y
        return self._bottom - (y - low) / (high - low) * (self._bottom - self._top)

    def _path(
        self, places: Sequence[tuple[float, float]], colour: str, width: float, dashes: str = ""
    ) -> None:
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        style = f"fill: none; stroke: {colour}; stroke-width: {width:g}"
        style += f"; stroke-dasharray: {dashes}" if dashes else ""
        self._parts.append(f'<path d="M{way}" style="{style}"/>')

    def _text(self, x: float, y: float, text: str, anchor: str, more: str = "") -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" '
            f'style="fill: {INK}"{more}>{escape(text)}</text>'
        )


def ticks(low: float, high: float) -> list[float]:
    """Return about six round values between two others."""
    rough = abs(high - low) / 6
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * one for one in (1, 2, 5, 10) if unit * one >= rough)
    first, last = math.ceil(min(low, high) / step), math.floor(max(low, high) / step)
    return [at * step for at in range(first, last + 1)]


def around(values: Iterable[float]) -> Range:
    """Return a range that has all values, and some room around them."""
    known = list(values)
    low, high = min(known), max(known)
    room = 0.04 * (high - low) or 0.5
    return low - room, high + room


def short(name: str) -> str:
    """Return a name, its end left out where it is long."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
