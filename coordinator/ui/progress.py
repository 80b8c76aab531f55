"""Waits and transfers, shown on a terminal while they last.

Elsewhere a transfer that takes long says so now and then, and nothing else is written.

All of it goes to standard error: what a verb says, it says on standard output.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from broker.figures import size
from coordinator.ui.words import is_json, say

BAR: Final = 20  # characters
FIRST_S: Final = 3.0  # after which a transfer is told of where there is no terminal
MOST_S: Final = 60.0


def _is_shown() -> bool:
    return sys.stderr.isatty()


@contextlib.contextmanager
def transfer(what: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of `size_bytes`; the function that is given takes how many more have come.

    It is called with 0 while nothing comes.
    """
    if not _is_shown():
        yield _in_lines(what, size_bytes)
        return
    from rich import progress as rich

    from coordinator.ui import terminal

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(BAR),
        rich.DownloadColumn(binary_units=True),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    console = terminal.console(stderr=True)
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(terminal.printable(what), total=size_bytes)
        yield lambda count: bar.advance(task, count)


def _in_lines(what: str, size_bytes: int) -> Callable[[int], None]:
    """Return a function that is told what has come, and says it ever more seldom."""
    done, wait_s, told_s = 0, FIRST_S, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, wait_s, told_s
        done += count
        if time.monotonic() - told_s >= wait_s and not is_json():
            say(f"{what}: {size(done)} of {size(size_bytes)}", err=True)
            wait_s, told_s = min(2 * wait_s, MOST_S), time.monotonic()

    return advance


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show that something is waited for, and for how long by now."""
    if not _is_shown():
        yield
        return
    from rich import progress as rich

    from coordinator.ui import terminal

    columns = (
        rich.SpinnerColumn("dots", style="cyan"),
        rich.TextColumn("{task.description}", markup=False),
        rich.TimeElapsedColumn(),
    )
    console = terminal.console(stderr=True)
    with rich.Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        bar.add_task(terminal.printable(what), total=None)
        yield
