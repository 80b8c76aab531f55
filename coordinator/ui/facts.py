"""What there is to say of one thing: values with titles, which the terminals and the page draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

from broker.wrapping import printable
from coordinator.ui.terminal import Line
from coordinator.ui.words import ago


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a page of ours, or to a file to `download`, as a value."""

    text: str
    path: str
    download: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A time (ms since the epoch), which a browser tells in one of `page.js`'s ways."""

    at_ms: int | None
    way: str = "ago"


Value = str | int | float | Text | Link | Moment | tuple[Link, ...] | None
Fact = tuple[str, Value]  # with its title


def in_text(value: Value) -> Text:
    """Return a value as a terminal shows it; empty where there is none."""
    match value:
        case Text():
            return value
        case Link():
            return Text(printable(value.text))
        case Moment():
            at = None if value.at_ms is None else datetime.fromtimestamp(value.at_ms / 1000, UTC)
            return Text(ago(at.isoformat() if at else None))
        case tuple():
            return Text(", ").join(map(in_text, value))
        case _:
            return Text("" if value is None else printable(str(value)))


def in_lines(facts: Iterable[Fact]) -> Iterator[Line]:
    """Yield a line for each fact that has a value, its title before it."""
    shown = [(title, text) for title, value in facts if (text := in_text(value))]
    width = max((len(title) for title, _ in shown), default=0) + 2
    for title, text in shown:
        yield Line(Text.assemble((f"{title:<{width}}", "dim"), text), indent=width)
