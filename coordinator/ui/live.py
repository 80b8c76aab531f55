"""Verbs that show something: once, or with `--watch` until Ctrl-C; for people, or as JSON.

A verb says how to read what it shows and how to draw it (`View`); `viewing` does the rest, alike
for every verb that asks the coordinator, and `watching` for the others. `until` is the loop under
all that goes on: `--watch`, `--follow`, `run --wait` and `up --until-idle`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.wrapping import printable
from coordinator.client.contact import Unreachable
from coordinator.ui.options import OperatorClient, client_options, flag
from coordinator.ui.words import is_json, print_json, say

if TYPE_CHECKING:
    from rich.console import RenderableType

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
        from coordinator.ui import terminal  # loads rich, which completion does not need

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
    from coordinator.ui.live_output import OnePerChange, OnTerminal  # likewise

    with OnTerminal() if sys.stdout.isatty() and not is_json() else OnePerChange() as shown:
        back = BACK if shown.tells_return else ""
        until(lambda: shown.show(view.read(), view), wait, shown.tell, back=back)
    return 0


def hear(client: OperatorClient) -> None:
    """Wait until a message comes, whatever it is, for as long as nothing need be looked at."""
    for _ in client.messages(POLL_S):
        pass
