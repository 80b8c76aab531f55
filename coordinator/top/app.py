"""The full-screen view of the fleet: two tables that follow what the fleet publishes.

The watcher's thread takes messages as they come; the screen looks at its copy a few times a second
and draws what is in sight, so that a thousand jobs cost no more than those that are seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import Footer, Input, Static

from broker.errors import FleetError
from broker.protocol.messages import AskCancel, AskDrain, AskRequeue, AskResume, Command
from broker.system.machine import new_id, system_clock
from broker.wrapping import printable
from coordinator.client.contact import Outage, Unreachable
from coordinator.client.rows import Row, Tables
from coordinator.client.watcher import Watcher
from coordinator.jobs.causes import in_words, set_aside
from coordinator.jobs.reason_words import words
from coordinator.jobs.reasons import RESUMED
from coordinator.top import headline, host_table, job_table
from coordinator.top.detail import Detail, HostDetail, JobDetail, PushedDetail
from coordinator.top.dialogs import Confirm, Filter, Help
from coordinator.top.keys import OneKeyAtATime
from coordinator.top.table import ABOVE, FleetTable
from coordinator.ui.fleet_columns import BAD, BUSY, DIM, GOOD, WARN, Cell
from coordinator.ui.terminal import Line

EVERY_S: Final = 0.5
IDLE_EVERY_S: Final = 5.0  # while nothing is heard: ages go on
DARK: Final = "textual-dark"
LIGHT: Final = "textual-light"
COLOURS: Final = {
    GOOD: "text-success", BUSY: "text-primary", WARN: "text-warning", BAD: "text-error",
}  # fmt: skip


class Top(OneKeyAtATime):
    """`fleet top`. `watcher` has been started; it is the caller's to stop."""

    CSS_PATH = "top.tcss"
    TITLE = "fleet top"
    ENABLE_COMMAND_PALETTE = False
    # A narrow window shows the first of them.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("c", "cancel", "Cancel"),
        Binding("r", "requeue", "Requeue"),
        Binding("d", "drain", "Drain"),
        Binding("slash", "filter", "Find", key_display="/"),
        Binding("f", "state", "State"),
        Binding("s", "sort", "Sort"),
        Binding("p", "programs", "Programs"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab,shift+tab", "other", show=False),
        Binding("escape", "clear", show=False),
        Binding("t", "theme", show=False),
    ]

    def __init__(self, watcher: Watcher, *, light: bool = False, every_s: float = EVERY_S) -> None:
        """Show what `watcher` knows, at most every so many seconds anew."""
        super().__init__()
        self.watcher = watcher
        self.tables = Tables()
        self.hosts, self.jobs = FleetTable(host_table.TABLE), FleetTable(job_table.TABLE)
        self.theme = LIGHT if light else DARK
        self._lines = {name: Static(id=name, markup=False) for name in ("where", "counts")}
        self._banners = {name: Static(id=name, markup=False) for name in ("banner", "pause")}
        self._entry = Filter(id="filter", placeholder="text to look for", compact=True)
        self._filtered = self.jobs
        self._every_s = every_s
        self._drawn: tuple[int, Outage | None] | None = None
        self._drawn_s = 0.0

    def compose(self) -> ComposeResult:
        """Two lines, perhaps what is not as usual, two tables, keys."""
        yield from self._lines.values()
        yield from self._banners.values()
        yield self.hosts
        yield self.jobs
        yield self._entry
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begin to follow."""
        self._entry.display = False
        self.jobs.focus()
        self.draw()
        self.set_interval(self._every_s, self._draw_what_is_new)

    @property
    def table(self) -> FleetTable:
        """The table that the keys are for: the one that had the focus last."""
        return self.hosts if self.screen_stack[0].focused is self.hosts else self.jobs

    # Drawing

    def _draw_what_is_new(self) -> None:
        now = (self.watcher.version, self.watcher.outage)
        if now != self._drawn or time.monotonic() - self._drawn_s >= IDLE_EVERY_S:
            self.draw()

    def draw(self) -> None:
        """Draw how things are; nothing, when the screen is being taken down."""
        with contextlib.suppress(NoMatches):
            self._draw()

    def _draw(self) -> None:
        outage, seen = self.watcher.outage, self.watcher.snapshot()
        self._drawn, self._drawn_s = (seen.version, outage), time.monotonic()
        self.tables.update(seen, system_clock())
        colours = {style: self.theme_variables[name] for style, name in COLOURS.items()}
        colours[DIM] = "dim"
        width = self.size.width - 2  # a blank on either side
        for line, cells in zip(
            self._lines.values(),
            (headline.where(seen, self.watcher, width), headline.counts(self.tables, width)),
        ):
            line.update(_text(cells, colours))
        troubles = (headline.trouble(seen, outage, self._drawn_s), headline.pause(seen))
        for banner, trouble in zip(self._banners.values(), troubles):
            banner.display = bool(trouble)
            banner.update(Line(trouble, indent=0))
        self.hosts.colours = self.jobs.colours = colours
        self.hosts.show(self.tables.hosts.rows.values())
        rows = self.tables.jobs.rows.values()
        self.jobs.show([job_table.with_losses(row, seen) for row in rows])
        self._share_the_height()
        if isinstance(self.screen, Detail):
            self.screen.refresh_facts()

    def _share_the_height(self) -> None:
        """Few hosts leave their room to the jobs; many have two fifths of the window."""
        most = max(ABOVE + 2, self.size.height * 2 // 5)
        self.hosts.styles.height = min(len(self.hosts.shown) + ABOVE, most)

    def on_resize(self, _event: events.Resize) -> None:
        """Share the height anew, and say in the first lines what fits."""
        if self.jobs.is_mounted:
            self.draw()

    # Looking

    def on_data_table_row_selected(self) -> None:
        """A row was clicked that was selected before."""
        self.action_show()

    def action_show(self) -> None:
        """Open the window of what is selected."""
        if row := self.table.selected:
            kind = JobDetail if self.table is self.jobs else HostDetail
            self.push_screen(kind(self.watcher, self.tables, row["id"]))

    def action_programs(self) -> None:
        """Open the window of programs and datasets."""
        self.push_screen(PushedDetail(self.watcher, self.tables, ""))

    def action_help(self) -> None:
        """Say what the keys do."""
        self.push_screen(Help())

    def action_other(self) -> None:
        """Go to the other table."""
        self.screen.set_focus(self.jobs if self.table is self.hosts else self.hosts)

    def action_state(self) -> None:
        """Show what is in the next state alone."""
        self.table.next_kind()
        self._share_the_height()

    def action_sort(self) -> None:
        """Sort by the next way."""
        self.table.next_order()

    def action_theme(self) -> None:
        """Dark becomes light, and the other way round."""
        self.theme = DARK if self.theme == LIGHT else LIGHT
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the search key while the search text is typed."""
        if action == "filter" and self.focused is self._entry:
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Ask for the text to look for, in the table that has the focus."""
        self._filtered = self.table
        self._entry.value = self._filtered.text
        self._entry.display = True
        self.screen.set_focus(self._entry)  # at once: what is typed next is for it

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what is there so far."""
        if self._entry.display:
            self._filtered.look_for(event.value)

    def on_input_submitted(self) -> None:
        """Go back to the table."""
        self._entry.display = False
        self.screen.set_focus(self._filtered)

    def action_clear(self) -> None:
        """Show everything again."""
        table = self._filtered if self._entry.display else self.table
        self._entry.display = False
        table.show_all()
        self.screen.set_focus(table)

    # Changing something

    def action_cancel(self) -> None:
        """Cancel the job that is selected, after a question."""
        if (row := self._job()) is None:
            return
        name = printable(row["name"])
        at = f" It is {row['state']} on {row['host']}." if row["host"] else ""
        command = AskCancel(id=new_id(), job=row["id"])
        self._confirm(f"Cancel {name}?{at}", "Cancel it", f"{name} is cancelled", command)

    def action_requeue(self) -> None:
        """Put the job that is selected back into the queue, after a question."""
        if (row := self._job()) is None:
            return
        if (job := self.watcher.snapshot().jobs.get(row["id"])) is None:
            return
        name = printable(job.name)
        left = set_aside(job.state, job.host, row["share"], job.metrics, job.artifact_id)
        lost = in_words(left)
        at = f" {lost[0].upper()}{lost[1:]}." if lost else ""
        if lost and job.state == "completed":
            at += " It is kept for a while: `fleet show` says how it is fetched."
        command = AskRequeue(id=new_id(), job=job.job_id)
        done = f"{name} is in the queue again"
        self._confirm(printable(f"Requeue {name}?{at}"), "Requeue it", done, command)

    def action_drain(self) -> None:
        """Drain the host that is selected, or resume it, after a question."""
        row = self.table.selected
        name = row and row["id" if self.table is self.hosts else "host"]
        host = self.watcher.snapshot().hosts.get(name or "")
        if host is None:
            self.notify("no host is selected; Tab leads to the hosts", severity="warning")
        elif lifted := [one for one in host.row.get("barred") or () if one["code"] in RESUMED]:
            why = "\n".join(printable(words(one, remedy=False)) for one in lifted)
            question = f"Give {name} jobs again? It is\n{why}"
            command: Command = AskResume(id=new_id(), host=host.name)
            self._confirm(question, "Resume it", f"{name} is given jobs again", command)
        else:
            question = f"Drain {name}? It gets no new jobs; what it runs is finished there."
            command = AskDrain(id=new_id(), host=host.name)
            self._confirm(question, "Drain it", f"{name} is drained", command)

    def _job(self) -> Row | None:
        if self.table is self.jobs and self.jobs.selected:
            return self.jobs.selected
        way = "Escape shows them all" if self.table is self.jobs else "Tab leads to the jobs"
        self.notify(f"no job is selected; {way}", severity="warning")
        return None

    def _confirm(self, question: str, deed: str, done: str, command: Command) -> None:
        def take(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._command(command, done))

        self.push_screen(Confirm(question, deed), take)

    async def _command(self, command: Command, done: str) -> None:
        """Have something done; whatever comes of it is said."""
        try:
            await asyncio.wrap_future(self.watcher.send(command))  # type: ignore[arg-type] # each is
        except FleetError as error:
            title = "No answer" if isinstance(error, Unreachable) else "Not done"
            # No markup: "[broker]" in it is text.
            said = printable(str(error))
            self.notify(said, title=title, severity="error", timeout=12, markup=False)
        else:
            self.notify(done)
            self.draw()


def _text(cells: Sequence[Cell], colours: dict[str, str]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for said, style in cells:
        text.append(printable(said), colours.get(style, ""))
    return text
