"""The dialog that asks whether something is meant, one on each page that has something to ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from coordinator.web.parts import Tag, button


class Question:
    """A dialog with two answers. The safe one has the focus; Escape is the safe one, too."""

    def __init__(self) -> None:
        """Make it, closed."""
        self._act: Callable[[], Awaitable[None]] | None = None
        with ui.dialog() as self._dialog, Tag("div", classes="dialog"):
            for name, value in (
                ("role", "alertdialog"),
                ("aria-labelledby", "question-title"),
                ("aria-describedby", "question-text"),
                ("transition-duration", "0"),
            ):
                self._dialog.props[name] = value
            self._title = Tag("h2", "", id="question-title")
            self._text = Tag("p", "", id="question-text")
            with Tag("div", classes="actions"):
                button("No, leave it", self._dialog.close, autofocus="")
                self._yes = button("", self._do, "button danger solid", id="confirm")

    def ask(self, title: str, text: str, verb: str, act: Callable[[], Awaitable[None]]) -> None:
        """Ask; `act` is done if the answer is `verb`."""
        self._title.set_text(title)
        self._text.set_text(text)
        self._yes.set_text(verb)
        self._act = act
        self._dialog.open()

    async def _do(self) -> None:
        self._dialog.close()
        act, self._act = self._act, None
        if act is not None:  # a second click on its way finds nothing to do
            await act()
