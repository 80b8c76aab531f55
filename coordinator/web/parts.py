"""Parts that the pages are made of.

Text goes in as text: a `Tag` shows what it is given, whatever is in it. Attributes are set one by
one, never parsed out of a string with somebody else's words in it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import Client, ui
from nicegui.elements.mixins.text_element import TextElement

from coordinator.ui.facts import Link, Moment, Value, in_text


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

    def say(self, text: str) -> None:
        """Show a text; nothing, where it is empty."""
        self.set_text(text)
        self.set_visibility(bool(text))


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


def card(title: str) -> Tag:
    """Return a section that begins with its title."""
    section = Tag("section", classes="card", aria_label=title)
    with section:
        Tag("h2", title)
    return section


def heading(text: str, small_id: str | None = None) -> Tag:
    """Make a heading; return the place for what is said beside it."""
    with Tag("h2", text):
        return Tag("small", "", id=small_id)


def table_card(title: str, small_id: str | None = None) -> tuple[Tag, Tag]:
    """Return a section for a table, and the place beside its title."""
    section = Tag("section", classes="card flush", aria_label=title)
    with section:
        return section, heading(title, small_id)


def fill(place: Tag, title: str) -> Tag:
    """Empty a card, but for its title; return it to be filled."""
    place.clear()
    with place:
        Tag("h2", title)
    return place


def search(placeholder: str, oninput: str, **attributes: Any) -> None:
    """Make a field for a text to look for. `oninput` is JavaScript: what is typed goes nowhere."""
    with Tag("label", classes="field wide"):
        Tag("span", "Search")
        Tag("input", type="search", placeholder=placeholder, oninput=oninput, **attributes)


def choice(
    label: str, options: Mapping[str, str], onchange: str, value: str = "", id_: str | None = None
) -> None:
    """Make a list of which one is chosen, `value` at first. `onchange` is JavaScript."""
    with Tag("label", classes="field"):
        Tag("span", label)
        with Tag("select", id=id_, onchange=onchange):
            for name, words in options.items():
                Tag("option", words, value=name, selected="" if name == value else None)


def ask(
    place: Tag, title: str, text: str, verb: str, act: Callable[[], Awaitable[None]],
    fields: Callable[[], None] | None = None, *, danger: bool = True,
) -> None:  # fmt: skip
    """Ask in a dialog; `act` follows if the answer is `verb`. `fields` makes what is to be chosen.

    The safe answer has the focus; Escape is the safe one, too.
    """
    # A new dialog for each question: a late message that the last one is closed closes none.
    place.clear()
    with place, ui.dialog() as dialog, Tag("div", classes="dialog"):
        dialog.props.update({
            "role": "alertdialog", "aria-labelledby": "question-title",
            "aria-describedby": "question-text", "transition-duration": "0",
        })  # fmt: skip
        Tag("h2", title, id="question-title")
        Tag("p", text, id="question-text")
        if fields is not None:
            fields()
        with Tag("div", classes="actions"):
            button("No, leave it", dialog.close, autofocus="")
            colour = "danger solid" if danger else "primary"
            yes = Tag("button", verb, f"button {colour}", type="button", id="confirm")

    async def do() -> None:
        if dialog.value:  # not on a second click
            dialog.close()
            await act()

    yes.on("click", do, args=[])
    dialog.open()


def show(value: Value) -> Tag:
    """Show one value."""
    if isinstance(value, Link):
        return Tag("a", value.text, href=value.path, download="" if value.download else None)
    if isinstance(value, tuple):
        with Tag("span") as several:
            for number, one in enumerate(value):
                Tag("span", ", " if number else "")
                show(one)
        return several
    if isinstance(value, Moment):
        return Tag("time", "", data_ms=value.at_ms, data_way=value.way)
    return Tag("span", "" if value is None else str(value))


class Facts:
    """Names and what they are. What has no value is hidden; what changes is changed in place."""

    def __init__(self) -> None:
        self._cells: dict[str, tuple[Tag, Tag]] = {}
        self._known: dict[str, Value] = {}
        self._list = Tag("dl", classes="facts")

    def tell(self, pairs: Mapping[str, Value]) -> None:
        """Show these."""
        for name, value in pairs.items():
            if name not in self._cells:
                with self._list:
                    self._cells[name] = (Tag("dt", name), Tag("dd"))
            elif self._known.get(name) == value:
                continue
            self._known[name] = value
            term, cell = self._cells[name]
            cell.clear()
            is_there = bool(in_text(value))
            for part in (term, cell):
                part.set_visibility(is_there)
            if is_there:
                with cell:
                    show(value)


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[Value]], caption: str, *, stacks: bool = False
) -> None:
    """Show a table. A column whose name starts with '>' is aligned to the right.

    Where it `stacks`, a phone shows the last column below the others, in the whole width.
    """
    with Tag("table", classes="plain stacks" if stacks else "plain"):
        Tag("caption", caption, "hidden-text")
        classes = ["number" if name.startswith(">") else "" for name in columns]
        with Tag("thead"), Tag("tr"):
            for name, kind in zip(columns, classes):
                Tag("th", name.lstrip(">"), kind, scope="col")
        with Tag("tbody"):
            for row in rows:
                with Tag("tr"):
                    for kind, value in zip(classes, row):
                        with Tag("td", classes=kind):
                            show(value)


def call(client: Client, function: str, *values: Any) -> None:
    """Call one of our functions in a browser; the values go as JSON, which is JavaScript too."""
    client.run_javascript(f"fleet.{function}({','.join(json.dumps(value) for value in values)})")


def notify(client: Client, text: str, *, bad: bool = False) -> None:
    """Say something that a screen reader says as well, and that goes away by itself."""
    with client:
        ui.notify(
            text, type="negative" if bad else None, position="bottom-right",
            timeout=12_000 if bad else 6_000,
        )  # fmt: skip
