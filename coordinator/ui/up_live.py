"""What `fleet up` shows while it runs, and at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.live import Live

from broker.errors import BadMessage, LocalError
from broker.protocol.messages import PROGRESS, AskStatus, Progress, decode
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.sentences import HANG, counted
from broker.system.address import parse_addresses, text_of
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.jobs.set_aside import chance_words
from coordinator.ui import terminal, up_summary
from coordinator.ui.exit_codes import EXIT_NOTHING_RAN, EXIT_REFUSED
from coordinator.ui.progress import waiting
from coordinator.ui.terminal import Column

if TYPE_CHECKING:
    from coordinator.ui.processes import Fleet

POLL_S: Final = 1.0
TIMEOUT_S: Final = 30.0
MAX_ROWS: Final = 60
ASIDE_ROWS: Final = 5  # of the window: title, line, caption, and where the cursor stands
FACT: Final = 13  # characters, of what a line is about
_BAR: Final = 12
_FIRST: Final = ("running", "claimed", "failed", "pending", "completed", "cancelled")


def until_stopped(
    fleet: Fleet, settings: BrokerSettings, state: Path, lacks: Collection[str]
) -> int:
    """Say where things are and what is lacking, then watch over the children until interrupted."""
    address = text_of(parse_addresses(settings.url))  # without a password, should it have one
    click.echo(f"broker       {address}")
    click.echo(f"state        {state}")
    click.echo(f"logs         {state / 'logs'}")
    for lack in lacks:
        terminal.say(lack, indent=FACT)
    click.echo(f"\nLook at it:  export FLEET_BROKER={address}")
    click.echo("             fleet status | fleet list | fleet workers | fleet why JOB")
    terminal.say("Ctrl-C stops everything.")
    while True:
        fleet.check()
        time.sleep(POLL_S)


def watch_until_idle(
    fleet: Fleet, settings: BrokerSettings, hosts: Collection[str], *, as_json: bool
) -> int:
    """Show progress until nothing is left that could run on `hosts` or others, then the results.

    Return 0, `EXIT_REFUSED` where a job failed, or `EXIT_NOTHING_RAN` where none could be done.
    """
    topics = Topics(settings.topic_root)
    watch = [topics.progress("+", "+")]
    with OperatorClient(settings, TIMEOUT_S, watch=watch, patient=True) as client:
        screen = _Screen(live=sys.stdout.isatty() and not as_json, aside=as_json)
        with waiting("waiting for the coordinator to hear of every agent"):
            _meet(fleet, client, hosts)
        with screen:
            rows = _wait(fleet, client, screen)
        left = up_summary.ask(client, rows)
        if as_json:
            terminal.print_json(up_summary.to_list(rows, left))
        else:
            _results(rows, fleet.state)
        _tell_left_over(client, rows, left, aside=as_json)
    states = {row["state"] for row in rows}
    if "failed" in states:
        return EXIT_REFUSED
    return EXIT_NOTHING_RAN if "pending" in states and "completed" not in states else 0


def _tell_left_over(
    client: OperatorClient,
    rows: list[dict[str, Any]],
    left: list[up_summary.LeftOver],
    *,
    aside: bool,
) -> None:
    """Say which jobs are left, why, and what would help; what a program reads is not disturbed."""
    count = sum(row["state"] == "pending" for row in rows)
    if not count:
        return
    out = terminal.console(stderr=aside)
    if count == len(rows):
        out.print("Nothing could run.", style="yellow")
    out.print()
    terminal.put(out, up_summary.in_words(client, left, count))


def _meet(fleet: Fleet, client: OperatorClient, hosts: Collection[str]) -> None:
    """Wait until the coordinator knows what each host is: before, nothing could seem to run."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        fleet.check()
        known = {
            row["host"]
            for row in client.list_workers()
            if row["status"] == "online" and row["capability"] is not None
        }
        unknown = sorted({*hosts} - known)
        if not unknown:
            return
        if time.monotonic() > deadline_s:
            names = ", ".join(unknown)
            raise LocalError(f"the coordinator has not heard of {names} in {TIMEOUT_S:g} s")
        time.sleep(POLL_S / 10)


def _wait(fleet: Fleet, client: OperatorClient, screen: _Screen) -> list[dict[str, Any]]:
    progress: dict[str, Progress] = {}
    idle_polls = 0
    next_poll_s = 0.0
    while True:
        fleet.check()
        for topic, payload in client.messages(POLL_S / 4):
            if topic.kind is Kind.PROGRESS:
                _note(progress, topic.job_id, payload)
        if time.monotonic() < next_poll_s:
            continue
        next_poll_s = time.monotonic() + POLL_S
        status = client.ask(AskStatus(id=new_id()))
        rows = client.list_jobs()
        screen.update(rows, progress, status)
        screen.stand_still(client, rows, status)
        busy = status["active"] or status["runnable"]
        # Twice, a second apart: between two jobs there is a moment in which nothing is assigned.
        idle_polls = 0 if busy else idle_polls + 1
        if idle_polls >= 2:
            return rows


def _note(progress: dict[str, Progress], job_id: str, payload: bytes) -> None:
    if not payload:
        progress.pop(job_id, None)
        return
    try:
        progress[job_id] = decode(PROGRESS, payload)
    except BadMessage:
        return


class _Screen:
    """A live table on a terminal; elsewhere one line for each change of a job's state.

    With `aside` these are on standard error: standard output is for what a program reads.
    """

    def __init__(self, *, live: bool, aside: bool) -> None:
        self._console = terminal.console()
        self._live = Live(console=self._console, auto_refresh=False) if live else None
        self._aside = aside
        self._states: dict[str, str] = {}
        self._counted = False
        self._still = False  # and it was said why

    def __enter__(self) -> None:
        if self._live:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.update(terminal.Text(""), refresh=True)
            self._live.stop()

    def update(
        self, rows: list[dict[str, Any]], progress: dict[str, Progress], status: dict[str, Any]
    ) -> None:
        """Show how things stand."""
        if self._live:
            room = max(1, min(MAX_ROWS, self._console.height - ASIDE_ROWS))
            self._live.update(live_table(rows, progress, status, room), refresh=True)
            return
        if not self._counted:
            self._counted = True
            self._count(status)
        for row in rows:
            before = self._states.get(row["job_id"], "pending")
            self._states[row["job_id"]] = row["state"]
            if row["state"] != before and row["state"] != "claimed":
                where = f" on {row['host']}" if row["host"] else ""
                terminal.say(f"{row['name']:<26} {row['state']}{where}", err=self._aside)

    def _count(self, status: dict[str, Any]) -> None:
        """Say what there is to do, and on how many hosts."""
        counts = ", ".join(f"{count} {name}" for name, count in status["jobs"].items() if count)
        online = status["hosts"]["online"]
        hosts = f"{counted(online, 'host')} {'is' if online == 1 else 'are'} online"
        terminal.say(f"{counts or 'no jobs'}; {hosts}", err=self._aside)

    def stand_still(
        self, client: OperatorClient, rows: list[dict[str, Any]], status: dict[str, Any]
    ) -> None:
        """Say once why nothing runs, until something has run again."""
        if self._live or status["active"] or self._still:
            self._still = self._still and not status["active"]
            return
        words = up_summary.held_up(client, rows) if status["runnable"] else ""
        if words:
            self._still = True
            terminal.say(terminal.told(words), err=self._aside, indent=HANG)


def live_table(
    rows: list[dict[str, Any]], progress: dict[str, Progress], status: dict[str, Any], room: int
) -> Any:
    """Return the jobs with their progress, at most `room` of them: those that run come first."""
    columns = (
        Column("JOB", least=24),
        Column("STATE"),
        Column("HOST", rank=2, least=12),
        Column("PROGRESS"),
        Column("LOSS", rank=4, right=True),
        Column("AUROC", rank=1, right=True),
        Column("TOOK", rank=3, right=True),
    )
    shown = rows
    if len(rows) > room:
        shown = sorted(rows, key=lambda row: _FIRST.index(row["state"]))[:room]
    cells = []
    for row in shown:
        now = progress.get(row["job_id"]) if row["state"] == "running" else None
        if now is not None and now.attempt != row["attempt"]:
            now = None  # of an agent that died
        cells.append(
            (
                row["name"],
                terminal.state_of(row),
                terminal.host(row),
                _bar(row, now),
                _loss(now),
                terminal.result(row, terminal.score(row["metrics"])),
                terminal.took(row),
            )
        )
    made = terminal.table(columns, cells)
    counts = ", ".join(f"{count} {name}" for name, count in status["jobs"].items() if count)
    more = f", {len(rows) - room} more jobs not shown" if len(rows) > room else ""
    made.caption = f"{counts}{more}"
    made.caption_justify = "left"
    return made


def _loss(now: Progress | None) -> str:
    """Return the loss of the last epoch: on what is held out, where it is known."""
    values = (now.val_loss, now.train_loss) if now else ()
    return next((f"{value:.4f}" for value in values if value is not None), "")


def _bar(row: dict[str, Any], now: Progress | None) -> str:
    if row["state"] == "completed":
        return "━" * _BAR
    if now is None or not now.epochs or now.epoch is None:
        return now.phase if now else ""
    filled = round(_BAR * min(1.0, now.epoch / now.epochs))
    text = "━" * filled + "╌" * (_BAR - filled)
    return f"{text} {now.phase}" if now.phase != "train" else f"{text} {now.epoch}/{now.epochs}"


def _results(rows: list[dict[str, Any]], state: Path) -> None:
    out = terminal.console()
    if not rows:
        out.print("nothing to do: the manifest has no jobs, or --manifest was not given")
        return
    done = [row for row in rows if row["state"] != "pending"]
    columns = (
        Column("JOB", least=24),
        Column("HOST", rank=2, least=8),
        Column("AUROC [95 % CI]"),
        Column("AP", rank=4, right=True),
        Column("F1", rank=5, right=True),
        Column("TOOK", rank=1, right=True),
        Column("ARTIFACT", rank=3, least=8),
    )
    if not done:
        return
    out.print(terminal.table(columns, [_result(row) for row in done]))
    for row in done:
        if row.get("below_chance"):
            said = f"\n{row['name']} is {chance_words(row['metrics'])}"
            terminal.put(out, [terminal.Line(said, style="yellow")])
        if row["error"]:
            words = terminal.Line(f"\n{row['name']} failed: {row['error']}", style="red")
            terminal.put(out, [words])
    stored = sum(row["state"] == "completed" for row in rows)
    terminal.put(out, [f"\n{counted(stored, 'artifact')} in {state / 'coordinator' / 'models'}"])


def _result(row: dict[str, Any]) -> tuple[Any, ...]:
    metrics = row["metrics"] or {}
    f1 = "f1" if "f1" in metrics else "macro_f1"
    return (
        row["name"],
        terminal.host(row),
        terminal.result(row, terminal.figure(metrics, "auroc"))
        if metrics
        else terminal.state_of(row),
        terminal.figure({"ap": metrics.get("average_precision")}, "ap"),
        terminal.figure({"f1": metrics.get(f1)}, "f1"),
        terminal.took(row),
        terminal.short(row["artifact_id"]),
    )
