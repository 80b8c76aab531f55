"""Where a view is shown again and again: in a terminal's window, or one text below the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from broker.wrapping import quoted
from coordinator.ui import terminal
from coordinator.ui.words import is_json, print_json_line, say

if TYPE_CHECKING:
    from coordinator.ui.live import View


class OnePerChange:
    """Shows a view when it has changed: lines of JSON, or texts one below the other."""

    tells_return = True  # of whoever did not answer

    def __init__(self) -> None:
        self._shown: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, data: Any, view: View) -> None:
        """Show what is there now, if it is new."""
        shown = view.to_json(data)
        if shown == self._shown:
            return
        if is_json():
            print_json_line(shown)
        else:
            if self._shown is not None:
                click.echo()
            terminal.put(terminal.console(), view.whole(data))
            sys.stdout.flush()
        self._shown = shown

    def tell(self, text: str) -> None:
        """Say that nobody answers, or somebody again."""
        say(text, err=True)


class OnTerminal(OnePerChange):
    """The whole window, drawn again at every look; the last of it stays behind at the end."""

    tells_return = False  # what is drawn shows it

    def __init__(self) -> None:
        super().__init__()
        self._console = terminal.console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._title = " ".join(map(quoted, ["fleet", *sys.argv[1:]]))
        self._parts: list[Any] = []
        self._as_of = ""

    def __enter__(self) -> Self:
        self._live.start()
        self._draw("looking …", "dim")
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        terminal.put(self._console, self._parts)

    def show(self, data: Any, view: View) -> None:
        """Draw it, changed or not: times that are relative go on."""
        drawn = view.whole(data)
        self._parts = [terminal.Line(part) if isinstance(part, str) else part for part in drawn]
        self._as_of = time.strftime("%H:%M:%S")
        self._draw(f"{self._as_of}, Ctrl-C ends", "dim")

    def tell(self, text: str) -> None:
        """Say it above what was there last, and of when that is."""
        old = f"; this is as of {self._as_of}" if self._as_of else ""
        self._draw(f"{text}{old}", "red")

    def _draw(self, words: str, style: str) -> None:
        self._live.update(Window(self._title, words, style, self._parts), refresh=True)


class Window:
    """A line on top with what it is and how it stands (`words`, in a style), then the parts."""

    def __init__(
        self, title: str, words: str, style: str, parts: Sequence[RenderableType]
    ) -> None:  # fmt: skip
        self._head = Text(title, "bold").append(f"  {words}", style)
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many lines as fit, and how many do not."""
        yield self._head
        yield Text()
        inner = options.update(height=None)
        lines = console.render_lines(Group(*self._parts), inner, pad=False)
        taken = len(console.render_lines(self._head, inner, pad=False)) + 1
        room = max(1, (options.height or console.height) - taken)
        shown = lines if len(lines) <= room else lines[: room - 1]
        for line in shown:
            yield from line
            yield Segment.line()
        if more := len(lines) - len(shown):
            yield Text(f"… {more} more lines; a higher window shows them", "dim", no_wrap=True)
