"""Waits and transfers, shown on a terminal while they last; elsewhere nothing is written.

All of it goes to standard error: what a verb says, it says on standard output.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

BAR: Final = 20  # characters


def _is_shown() -> bool:
    return sys.stderr.isatty()


@contextlib.contextmanager
def transfer(what: str, size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of `size_bytes`; the function that is given takes how many more have come."""
    if not _is_shown():
        yield lambda _count: None
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
