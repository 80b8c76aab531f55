"""Small parts that pages are put together of.

Text goes in as text: a `Tag` shows what it is given, whatever is in it. Attributes are set one by
one, never parsed out of a string with somebody else's words in it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import Client
from nicegui.elements.mixins.text_element import TextElement

from broker import sentences


class Tag(TextElement):
    """One HTML element with text, classes and attributes; a context manager for what is in it."""

    def __init__(self, tag: str, text: str = "", classes: str = "", **attributes: Any) -> None:
        """Make it. An attribute that is none is left out; `_` in its name stands for `-`."""
        super().__init__(tag=tag, text=text)
        if classes:
            self.classes(classes)
        for name, value in attributes.items():
            if value is not None:
                self.props[name.rstrip("_").replace("_", "-")] = value


def link(text: str, path: str, classes: str = "") -> Tag:
    """Return a link to a page of ours."""
    return Tag("a", text, classes, href=path)


def button(
    text: str, act: Callable[[], Awaitable[None] | None], classes: str = "button", **attributes: Any
) -> Tag:
    """Return a button."""
    made = Tag("button", text, classes, type="button", **attributes)
    made.on("click", lambda _: act(), args=[])
    return made


def css_word(word: str) -> str:
    """Return a word that may be a class; `unknown` for any other."""
    return word if word.isascii() and word.replace("-", "").isalpha() else "unknown"


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a page of ours, or to a file to `download`, as a value of a table."""

    text: str
    path: str
    download: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be copied rather than read, such as an id: every character as wide as the next."""

    text: str


@dataclass(frozen=True, slots=True)
class Moment:
    """A time (ms since the epoch), which the browser tells relative to now.

    What is `ahead` is never said to be past: it was a guess. What is `exact` is told by the clock.
    """

    at_ms: int | None
    ahead: bool = False
    exact: bool = False


Value = str | int | float | Code | Link | Moment | None


class Facts:
    """Names and what they are. What has no value is hidden; what changes is changed in place."""

    def __init__(self, pairs: Mapping[str, Value]) -> None:
        """Make it, with its first values."""
        self._cells: dict[str, tuple[Tag, Tag]] = {}
        self._known: dict[str, Value] = {}
        self._list = Tag("dl", classes="facts")
        self.tell(pairs)

    def tell(self, pairs: Mapping[str, Value]) -> None:
        """Show these."""
        for name, value in pairs.items():
            if name not in self._cells:
                with self._list:
                    self._cells[name] = (Tag("dt", name), Tag("dd"))
            elif self._known.get(name) == value:
                continue
            term, cell = self._cells[name]
            there = value not in (None, "") and not (
                isinstance(value, Moment) and value.at_ms is None
            )
            term.set_visibility(there)
            cell.set_visibility(there)
            cell.clear()
            if there:
                with cell:
                    show(value)
            self._known[name] = value


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[Value]], caption: str, *, stacks: bool = False
) -> None:
    """Show a table. A column whose name starts with '>' is aligned to the right.

    Where it `stacks`, a phone shows the last column below the others, in the whole width.
    """
    with Tag("table", classes="plain stacks" if stacks else "plain"):
        Tag("caption", caption, "hidden-text")
        with Tag("thead"), Tag("tr"):
            for name in columns:
                right = name.startswith(">")
                Tag("th", name.lstrip(">"), "number" if right else "", scope="col")
        with Tag("tbody"):
            for row in rows:
                with Tag("tr"):
                    for name, value in zip(columns, row):
                        with Tag("td", classes="number" if name.startswith(">") else ""):
                            show(value)


def show(value: Value) -> Tag:
    """Show one value."""
    if isinstance(value, Link):
        if value.download:
            return Tag("a", value.text, href=value.path, download="")
        return link(value.text, value.path)
    if isinstance(value, Code):
        return Tag("span", value.text, "mono")
    if isinstance(value, Moment):
        ahead, exact = ("1" if yes else None for yes in (value.ahead, value.exact))
        return Tag("time", "", data_ms=value.at_ms, data_ahead=ahead, data_exact=exact)
    return Tag("span", "" if value is None else str(value))


def call(client: Client, function: str, *values: Any) -> None:
    """Call one of our functions in a browser; the values go as JSON, which is JavaScript too."""
    client.run_javascript(f"fleet.{function}({','.join(json.dumps(value) for value in values)})")


def notify(client: Client, text: str, *, bad: bool = False) -> None:
    """Say something that a screen reader says as well, and that goes away by itself."""
    call(client, "notice", text, bad)


def size(count_bytes: float | None) -> str:
    """Return a number of bytes in binary units, nothing for none."""
    return "" if count_bytes is None else sentences.size(count_bytes)
