"""Jobs while they are waited for: a live table on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from rich.live import Live

from broker.sentences import printable, span
from coordinator.jobs.job_progress import part_of
from coordinator.ui import terminal
from coordinator.ui.columns import Table
from coordinator.ui.terminal import Column
from coordinator.ui.words import say

MAX_ROWS: Final = 60
OTHER_ROWS: Final = 5  # of the window: title, line, caption, and where the cursor stands
TELL_EVERY_S: Final = 20.0  # how far a job is, where no table is seen
_BAR: Final = 12
_ORDER: Final = ("running", "claimed", "failed", "pending", "completed", "cancelled")
_UNTOLD: Final = frozenset({"claimed"})  # it runs in a moment
Row = dict[str, Any]


class Board:
    """What is seen of some jobs. A table is on standard error; lines are too, if `aside`."""

    def __init__(
        self, *, quiet: bool = False, aside: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Show nothing yet; nothing at all if `quiet`."""
        self._console = terminal.console(stderr=True)
        self._quiet = quiet
        self._aside = aside
        self._clock = clock
        self._said: dict[str, str] = {}
        self._told_s: dict[str, float] = {}
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    @property
    def is_live(self) -> bool:
        """Whether there is a table, so that no change need be told."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, rows: Sequence[Row], caption: str = "") -> None:
        """Show how the jobs are now."""
        if self._live:
            room = max(1, min(MAX_ROWS, self._console.height - OTHER_ROWS))
            self._live.update(live_table(rows, caption, room), refresh=True)
        elif not self._quiet:
            for row in rows:
                self._tell(row)

    def say(self, text: str) -> None:
        """Say something above the table, or on standard error."""
        if self._live:
            self._live.console.print(terminal.Line(text, indent=0))
        elif not self._quiet:
            say(terminal.told(text), err=True)

    def _tell(self, row: Row) -> None:
        where = f" on {row['host']}" if row["host"] else ""
        state = printable(f"{row['name']} {row['state']}{where}")
        job_id, now_s = row["job_id"], self._clock()
        if state != self._said.get(job_id, f"{row['name']} pending"):
            self._told_s[job_id] = now_s
            if row["state"] not in _UNTOLD:
                say(state, err=self._aside)
        elif now_s - self._told_s.get(job_id, now_s) >= TELL_EVERY_S:
            self._told_s[job_id] = now_s
            if words := _how_far(_progress(row)):
                say(f"{state}: {words}", err=self._aside)
        self._said[job_id] = state


def live_table(rows: Sequence[Row], caption: str, room: int) -> Table:
    """Return the jobs with their progress, at most `room` of them: those that run come first."""
    columns = (
        Column("JOB", least=24),
        Column("STATE"),
        Column("HOST", rank=2, least=12),
        Column("PROGRESS"),
        Column("LEFT", rank=5, right=True),
        Column("LOSS", rank=4, right=True),
        Column("AUROC", rank=1, right=True),
        Column("TOOK", rank=3, right=True),
    )
    shown = rows
    if len(rows) > room:
        shown = sorted(rows, key=lambda row: _ORDER.index(row["state"]))[:room]
    made = terminal.table(columns, [_cells(row, _progress(row)) for row in shown])
    more = f", {len(rows) - room} more jobs not shown" if len(rows) > room else ""
    made.caption = f"{caption}{more}"
    return made


def _cells(row: Row, now: Row) -> tuple[Any, ...]:
    return (
        row["name"],
        terminal.state_of(row),
        terminal.host(row),
        _bar(row, now),
        "" if now.get("eta_s") is None else span(now["eta_s"]),
        _loss(now),
        terminal.result(row, terminal.score(row["metrics"])),
        terminal.took(row),
    )


def _progress(row: Row) -> Row:
    """Return what the trainer of a running job has said last."""
    return (row.get("progress") or {}) if row["state"] == "running" else {}


def _how_far(now: Row) -> str:
    """Return how far a trainer is, by its own word; nothing where it has named no epochs."""
    if not now.get("epochs"):
        return ""
    epoch = now.get("epoch") or 0
    said = [f"{part_of(epoch, now['epochs']):.0%}, epoch {epoch}/{now['epochs']}"]
    said += [f"loss {loss}"] if (loss := _loss(now)) else []
    said += [] if now.get("eta_s") is None else [f"{span(now['eta_s'])} left"]
    return ", ".join(said)


def _loss(now: Row) -> str:
    """Return the loss of the last epoch: on what is held out, where it is known."""
    values = (now.get("val_loss"), now.get("train_loss"))
    return next((f"{value:.4f}" for value in values if value is not None), "")


def _bar(row: Row, now: Row) -> str:
    if row["state"] == "completed":
        return "━" * _BAR
    phase = str(now.get("phase", ""))
    if not now.get("epochs") or now.get("epoch") is None:
        return phase
    filled = round(_BAR * min(1.0, now["epoch"] / now["epochs"]))
    text = "━" * filled + "╌" * (_BAR - filled)
    return f"{text} {phase}" if phase != "train" else f"{text} {now['epoch']}/{now['epochs']}"
