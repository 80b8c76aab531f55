"""Small windows above the tables: a question, and the help; and the line for what to look for."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from coordinator.ui.terminal import Line

KEYS: Final = (
    ("Enter", "show what is selected: history, log, why"),
    ("c", "cancel the job"),
    ("r", "requeue the job"),
    ("d", "drain the host (no new jobs), or resume it"),
    ("Tab", "from the hosts to the jobs, and back"),
    ("up down  k j", "select;  PgUp PgDn Home End  in leaps"),
    ("/", "show only what bears a text; Escape: all again"),
    ("f", "show only what is in a state; again: the next"),
    ("s", "sort by something else; again: the next"),
    ("p", "programs and datasets"),
    ("t", "dark or light"),
    ("q  Ctrl-C", "quit"),
    ("", ""),
    ("1 2 3", "in a window: another page"),
    ("Escape  q", "close that window"),
)
NOTES: Final = """
A state with *, as completed*: the job is no longer in the manifest, and given to no host any \
more; a job of the same name may be the one that has taken its place.

The curve is the loss of each epoch, on what is held out where that is known, from its highest to \
its lowest value. Commands are asked for again, and need the rights of an operator."""


class Confirm(ModalScreen[bool]):
    """A question that is answered by yes or no; no, unless one says so."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
        Binding("left,right,h,l", "app.focus_next", "Other", show=False),
    ]

    def __init__(self, question: str, deed: str) -> None:
        """Ask `question`; `deed` is what yes would do, in a word or two."""
        super().__init__()
        self._question = question
        self._deed = deed

    def compose(self) -> ComposeResult:
        """A question with two buttons."""
        with Vertical(classes="dialog"):
            yield Static(Line(self._question, indent=0), id="question")
            with Horizontal(classes="buttons"):
                yield Button("No (n)", id="no", compact=True)
                yield Button(f"{self._deed} (y)", id="yes", variant="error", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Whichever it was."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Take the answer of a key."""
        self.dismiss(yes)


class Filter(Input):
    """The text to look for. While it is typed, every key but these two is part of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Keep it"),
        Binding("escape", "app.clear", "All again"),
    ]


class Help(ModalScreen[None]):
    """What the keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "Close")
    ]

    def compose(self) -> ComposeResult:
        """A page of text."""
        keys = Table.grid("", "", padding=(0, 2, 0, 0))
        keys.columns[0].no_wrap = True
        for key, deed in KEYS:
            keys.add_row(key, deed)
        with VerticalScroll(classes="dialog", id="help") as text:
            text.border_subtitle = "Escape closes it"
            yield Static(keys)
            yield Static(NOTES, markup=False)
