"""Small parts that pages are put together of.

Text goes in as text: a `Tag` shows what it is given, whatever is in it. Attributes are set one by
one, never parsed out of a string with somebody else's words in it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import Client
from nicegui.elements.mixins.text_element import TextElement


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


def state(word: str) -> Tag:
    """Return a state in its colour and shape."""
    return Tag("span", word, f"state {css_word(word)}")


def css_word(word: str) -> str:
    """Return a word that may be a class; `unknown` for any other."""
    return word if word.isascii() and word.replace("-", "").isalpha() else "unknown"


def facts(pairs: list[tuple[str, Any]]) -> None:
    """Show names and what they are; a value that is none or empty is left out.

    A value may be a function that makes elements.
    """
    with Tag("dl", classes="facts"):
        for name, value in pairs:
            if value is None or value == "":
                continue
            Tag("dt", name)
            if callable(value):
                with Tag("dd"):
                    value()
            else:
                Tag("dd", str(value))


def plain_table(columns: list[str], rows: list[list[Any]], caption: str) -> None:
    """Show a table. A column whose name starts with '>' is aligned to the right."""
    with Tag("table", classes="plain"):
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
                            _cell(value)


def _cell(value: Any) -> None:
    if callable(value):
        value()
    else:
        Tag("span", "" if value is None else str(value))


def ago(at_ms: int | None) -> Tag:
    """Return a moment, which the browser tells relative to now."""
    return Tag("time", "", data_ms=at_ms) if at_ms is not None else Tag("span", "never")


def call(client: Client, function: str, *values: Any) -> None:
    """Call one of our functions in a browser; the values go as JSON, which is JavaScript too."""
    client.run_javascript(f"fleet.{function}({','.join(json.dumps(value) for value in values)})")


def notify(client: Client, text: str, *, bad: bool = False) -> None:
    """Say something that a screen reader says as well, and that goes away by itself."""
    call(client, "notice", text, bad)


def size(count_bytes: float | None) -> str:
    """Return a number of bytes in binary units, nothing for none."""
    if count_bytes is None:
        return ""
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
