"""Jobs while they are waited for: a live table on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from rich.live import Live

from broker.errors import BadMessage
from broker.protocol.messages import PROGRESS, Progress, decode
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

    def show(
        self, rows: Sequence[Row], progress: Mapping[str, Progress], caption: str = ""
    ) -> None:
        """Show how the jobs are now; `progress` by their ids."""
        if self._live:
            room = max(1, min(MAX_ROWS, self._console.height - OTHER_ROWS))
            self._live.update(live_table(rows, progress, caption, room), refresh=True)
        elif not self._quiet:
            for row in rows:
                self._tell(row, _of_attempt(row, progress))

    def say(self, text: str) -> None:
        """Say something above the table, or on standard error."""
        if self._live:
            self._live.console.print(terminal.Line(text, indent=0))
        elif not self._quiet:
            say(terminal.told(text), err=True)

    def _tell(self, row: Row, now: Progress | None) -> None:
        where = f" on {row['host']}" if row["host"] else ""
        state = printable(f"{row['name']} {row['state']}{where}")
        job_id, now_s = row["job_id"], self._clock()
        if state != self._said.get(job_id, f"{row['name']} pending"):
            self._told_s[job_id] = now_s
            if row["state"] not in _UNTOLD:
                say(state, err=self._aside)
        elif now and now_s - self._told_s.get(job_id, now_s) >= TELL_EVERY_S:
            self._told_s[job_id] = now_s
            if words := _how_far(now):
                say(f"{state}: {words}", err=self._aside)
        self._said[job_id] = state


def note(progress: dict[str, Progress], job_id: str, payload: bytes) -> None:
    """Take what a trainer says of a job; garbage is overlooked."""
    progress.pop(job_id, None)
    try:
        if payload:
            progress[job_id] = decode(PROGRESS, payload)
    except BadMessage:
        return


def live_table(
    rows: Sequence[Row], progress: Mapping[str, Progress], caption: str, room: int
) -> Table:
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
    cells = []
    for row in shown:
        now = _of_attempt(row, progress)
        cells.append((
            row["name"],
            terminal.state_of(row),
            terminal.host(row),
            _bar(row, now),
            span(now.eta_s) if now and now.eta_s is not None else "",
            _loss(now),
            terminal.result(row, terminal.score(row["metrics"])),
            terminal.took(row),
        ))  # fmt: skip
    made = terminal.table(columns, cells)
    more = f", {len(rows) - room} more jobs not shown" if len(rows) > room else ""
    made.caption = f"{caption}{more}"
    return made


def _of_attempt(row: Row, progress: Mapping[str, Progress]) -> Progress | None:
    """Return the progress of a running job's own attempt; another is of an agent that died."""
    now = progress.get(row["job_id"]) if row["state"] == "running" else None
    return now if now and now.attempt == row["attempt"] else None


def _how_far(now: Progress) -> str:
    """Return how far a trainer is, by its own word; nothing where it has named no epochs."""
    if not now.epochs:
        return ""
    epoch = now.epoch or 0
    said = [f"{part_of(epoch, now.epochs):.0%}, epoch {epoch}/{now.epochs}"]
    said += [f"loss {loss}"] if (loss := _loss(now)) else []
    return ", ".join(said + ([] if now.eta_s is None else [f"{span(now.eta_s)} left"]))


def _loss(now: Progress | None) -> str:
    """Return the loss of the last epoch: on what is held out, where it is known."""
    values = (now.val_loss, now.train_loss) if now else ()
    return next((f"{value:.4f}" for value in values if value is not None), "")


def _bar(row: Row, now: Progress | None) -> str:
    if row["state"] == "completed":
        return "━" * _BAR
    if now is None or not now.epochs or now.epoch is None:
        return now.phase if now else ""
    filled = round(_BAR * min(1.0, now.epoch / now.epochs))
    text = "━" * filled + "╌" * (_BAR - filled)
    return f"{text} {now.phase}" if now.phase != "train" else f"{text} {now.epoch}/{now.epochs}"
