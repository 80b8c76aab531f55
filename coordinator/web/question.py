"""The dialog that asks whether something is meant, one on each page that has something to ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from coordinator.web.parts import Tag, button


class Question:
    """A dialog with two answers. The safe one has the focus; Escape is the safe one, too."""

    def __init__(self) -> None:
        """Make the place where it will be."""
        self._act: Callable[[], Awaitable[None]] | None = None
        self._dialog: ui.dialog | None = None
        self._place = Tag("div")

    def ask(self, title: str, text: str, verb: str, act: Callable[[], Awaitable[None]]) -> None:
        """Ask; `act` is done if the answer is `verb`."""
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
            with Tag("div", classes="actions"):
                button("No, leave it", self._dialog.close, autofocus="")
                button(verb, self._do, "button danger solid", id="confirm")
        self._dialog.open()

    async def _do(self) -> None:
        if self._dialog is not None:
            self._dialog.close()
        act, self._act = self._act, None
        if act is not None:  # a second click on its way finds nothing to do
            await act()
