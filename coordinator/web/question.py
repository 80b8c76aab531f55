"""The dialog that asks whether something is meant, one on each page that has something to ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from coordinator.web.parts import Tag, button

# What was chosen in the dialog's fields, by their names: words of a browser's, to be judged.
Answers = Mapping[str, Any]


class Question:
    """A dialog with two answers. The safe one has the focus; Escape is the safe one, too."""

    def __init__(self) -> None:
        """Make the place where it will be."""
        self._act: Callable[[Answers], Awaitable[None]] | None = None
        self._dialog: ui.dialog | None = None
        self._place = Tag("div")

    def ask(
        self, title: str, text: str, verb: str, act: Callable[[Answers], Awaitable[None]],
        fields: Callable[[], None] | None = None, *, danger: bool = True,
    ) -> None:  # fmt: skip
        """Ask; `act` is done if the answer is `verb`. `fields` makes what is to be chosen."""
        self._act = act
        # A new dialog for each question: what a browser still has to say of the last one, that it
        # is closed, does not close this one.
        self._place.clear()
        with self._place, ui.dialog() as self._dialog, Tag("div", classes="dialog"):
            for name, value in (
                ("role", "alertdialog"),
                ("aria-labelledby", "question-title"),
                ("aria-describedby", "question-text"),
                ("transition-duration", "0"),
            ):
                self._dialog.props[name] = value
            Tag("h2", title, id="question-title")
            Tag("p", text, id="question-text")
            if fields is not None:
                fields()
            with Tag("div", classes="actions"):
                button("No, leave it", self._dialog.close, autofocus="")
                colour = "danger solid" if danger else "primary"
                yes = Tag("button", verb, f"button {colour}", type="button", id="confirm")
                yes.on("click", self._do, js_handler="() => emit(fleet.answers())")
        self._dialog.open()

    async def _do(self, event: Any) -> None:
        if self._dialog is not None:
            self._dialog.close()
        act, self._act = self._act, None
        if act is not None:  # a second click on its way finds nothing to do
            await act(event.args if isinstance(event.args, dict) else {})


def choices(legend: str, name: str, options: Mapping[str, str]) -> None:
    """Make one choice of several, by the value of each; the first is chosen."""
    with Tag("fieldset", classes="choices"):
        Tag("legend", legend)
        for index, (value, text) in enumerate(options.items()):
            with Tag("label"):
                checked = "" if index == 0 else None
                Tag("input", type="radio", name=name, value=value, checked=checked)
                Tag("span", text)


def tick(text: str, name: str) -> None:
    """Make something that may be ticked."""
    with Tag("label", classes="tick"):
        Tag("input", type="checkbox", name=name)
        Tag("span", text)
