"""Waits and transfers, shown on a terminal while they last; elsewhere nothing is written.

All of it goes to standard error: what a verb says, it says on standard output.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from broker.sentences import span

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
        rich.TextColumn("{task.description}"),
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
def waiting(what: str, for_s: float | None = None) -> Iterator[None]:
    """Show that something is waited for, and how much is left of `for_s` seconds."""
    if not _is_shown():
        yield
        return
    from rich.live import Live
    from rich.spinner import Spinner

    from coordinator.ui import terminal

    begun_s = time.monotonic()
    spinner = Spinner("dots", style="cyan")

    def drawn() -> Spinner:
        gone_s = time.monotonic() - begun_s
        clock = span(gone_s) if for_s is None else f"{span(max(0.0, for_s - gone_s))} left"
        spinner.update(text=terminal.Text(f"{what}, {clock}", overflow="ellipsis", no_wrap=True))
        return spinner

    with Live(
        get_renderable=drawn,
        console=terminal.console(stderr=True),
        refresh_per_second=8,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield
