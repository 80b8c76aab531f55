"""Verbs that show something: once, or with `--watch` until Ctrl-C; for people, or as JSON.

A verb says how to read what it shows and how to draw it (`View`); `viewing` does the rest, alike
for every verb that asks the coordinator, and `watching` for the others. `until` is the loop under
all that goes on: `--watch`, `--follow`, `run --wait` and `up --until-idle`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from broker.wrapping import printable
from coordinator.client.contact import Unreachable
from coordinator.ui import terminal
from coordinator.ui.options import OperatorClient, client_options, flag
from coordinator.ui.words import is_json, print_json, print_json_line, say

F = TypeVar("F", bound=Callable[..., Any])
POLL_S: Final = 2.0
CALM_S: Final = 0.3  # at least so long between two looks, however much happens
BACK: Final = "it is back"

watch_option = flag(
    "--watch -w", "Show it again whenever it changes, until Ctrl-C; with --json an object a line."
)


@dataclass(frozen=True, slots=True)
class View:
    """What a verb shows: `read` asks for it, `draw` makes renderables or plain lines of it.

    `code` is the exit code that what was read comes to, where it is shown once; `to_json` makes
    JSON values of it. `complain` makes lines of what is wrong with it: for standard error, and
    below the rest where it is watched.
    """

    read: Callable[[], Any]
    draw: Callable[[Any], Iterable[RenderableType]]
    code: Callable[[Any], int] = lambda _: 0
    to_json: Callable[[Any], Any] = lambda data: data
    complain: Callable[[Any], Iterable[str]] = lambda _: ()

    def whole(self, data: Any) -> list[RenderableType]:
        """Return all that is shown of it."""
        return [*self.draw(data), *self.complain(data)]


def viewing(function: F) -> F:
    """Add `--json`, `--watch` and the options of the connection to a verb that returns a `View`.

    It is handed a connected client, and may return none when it has said everything itself.
    """

    @functools.wraps(function)
    def wrapped(client: OperatorClient, *args: Any, watch: bool, **kwargs: Any) -> int:
        view: View = function(client, *args, **kwargs)
        return watching(view, lambda: hear(client)) if watch else show_once(view)

    return watch_option(client_options(wrapped))  # type: ignore[return-value] # likewise


def show_once(view: View) -> int:
    """Show a view; return its exit code."""
    data = view.read()
    if is_json():
        print_json(view.to_json(data))
    else:
        terminal.put(terminal.console(), view.draw(data))
        for text in view.complain(data):
            say(printable(text), err=True)
    return view.code(data)


def until(
    look: Callable[[], object], wait: Callable[[], object], tell: Callable[[str], None], *,
    misses: float = math.inf, back: str = BACK,
) -> bool:  # fmt: skip
    """Call `look` again and again until it returns a true value; return false at Ctrl-C.

    `wait` returns when something may have changed. While nobody answers it goes on, and `tell` is
    told why, once for each of those that may be missing, and then that somebody is `back`, unless
    that is empty; after so many `misses` it raises `Unreachable`.
    """
    missed, told = 0, ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            begun_s = time.monotonic()
            try:
                is_over = look()
                if missed and back:
                    tell(back)
                missed, told = 0, ""
                if is_over:
                    return True
            except Unreachable as error:
                missed += 1
                if missed >= misses:
                    raise
                if error.what != told:
                    tell(f"{error.wrong}; still trying")
                told = error.what
            wait()
            time.sleep(max(0.0, CALM_S - (time.monotonic() - begun_s)))
    return False


def watching(view: View, wait: Callable[[], object]) -> int:
    """Show a view again and again until Ctrl-C, whose exit code is 0."""
    with _Window() if sys.stdout.isatty() and not is_json() else _Lines() as shown:
        until(lambda: shown.show(view.read(), view), wait, shown.tell, back=shown.back)
    return 0


def hear(client: OperatorClient) -> None:
    """Wait until a message comes, whatever it is, for as long as nothing need be looked at."""
    for _ in client.messages(POLL_S):
        pass


class _Lines:
    """Where a view is shown again and again: lines of JSON, or texts one below the other."""

    back = BACK

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


class _Window(_Lines):
    """The whole window, drawn again at every look; the last of it stays behind at the end."""

    back = ""  # what is drawn shows it

    def __init__(self) -> None:
        from rich.live import Live

        super().__init__()
        self._console = terminal.console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._title = shlex.join(["fleet", *sys.argv[1:]])
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
