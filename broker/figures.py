"""Figures as text: `2 jobs`, `0.945`, `1.5 GiB`, `3 min`."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

_SPAN: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)([smhdw])")
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def counted(number: float, noun: str) -> str:
    """Return a number of things: `1 job`, `2 jobs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int, count: int | None = None) -> str:
    """Return the first names of so many (`count`; else of these): `a, b and 3 more`."""
    more = (len(names) if count is None else count) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def rounded(value: float) -> str:
    """Return an integer as it is, a score to three decimals; a large one in as few characters."""
    size = abs(value)
    if isinstance(value, int) and size < 1e9:
        return str(value)
    return f"{value:.3f}" if size < 1000 else f"{value:.{6 if size < 1e6 else 3}g}"


def is_figure(value: object) -> TypeGuard[float]:
    """Tell whether it is a number, no boolean, that a float can hold; JSON has larger integers."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max


def in_toml(value: Any) -> str:
    """Return a value as a manifest has it: `true`, `0.5`, `"a"`, `[1, 2]`."""
    return json.dumps(value, ensure_ascii=False, default=str)


def how_ended(code: int | None) -> str:
    """Return how a process ended, by its exit code, which is negative for a signal."""
    try:
        return f"was ended by {signal.Signals(-(code or 0)).name}"
    except ValueError:
        return f"ended with exit code {code}"


def size(count_bytes: float) -> str:
    """Return a number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def span(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `45 s`, `3 min`, `2.5 h`, `4 d`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"


def span_s(text: str) -> float | None:
    """Return the seconds of a duration as people type it, `90s` or `2d`; none for none."""
    found = _SPAN.fullmatch(text)
    return float(found[1]) * _UNITS_S[found[2]] if found else None
