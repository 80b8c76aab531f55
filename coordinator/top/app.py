"""The full-screen view of the fleet: two tables that follow what the fleet publishes.

The watcher's thread takes messages as they come; the screen looks at its copy a few times a second
and draws what is in sight, so that a thousand jobs cost no more than those that are seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import Input, Static

from broker.errors import FleetError
from broker.protocol.messages import AskCancel, AskDrain, AskRequeue, AskResume, Command
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.client.contact import Outage, Unreachable
from coordinator.client.watcher import Watcher
from coordinator.jobs.set_aside import set_aside
from coordinator.top import headline, host_table, job_table
from coordinator.top.detail import Detail, HostDetail, JobDetail
from coordinator.top.dialogs import Confirm, Filter, Help
from coordinator.top.host_table import HostLine
from coordinator.top.job_table import JobLine
from coordinator.top.keys import Keys, OneKeyAtATime
from coordinator.top.layout import BAD, BUSY, DIM, GOOD, WARN, Cell
from coordinator.top.table import ABOVE, HOSTS, JOBS, FleetTable
from coordinator.ui.terminal import Line
from coordinator.ui.words import told

EVERY_S: Final = 0.5
IDLE_EVERY_S: Final = 5.0  # while nothing is heard: ages go on
DARK: Final = "textual-dark"
LIGHT: Final = "textual-light"


class Top(OneKeyAtATime):
    """`fleet top`. `watcher` has been started; it is the caller's to stop."""

    CSS_PATH = "top.tcss"
    TITLE = "fleet top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "Cancel"),
        Binding("r", "requeue", "Requeue"),
        Binding("d", "drain", "Drain"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("f", "state", "State"),
        Binding("s", "sort", "Sort"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("tab,shift+tab", "other", "Other table", show=False),
        Binding("escape", "clear", "All", show=False),
        Binding("t", "theme", "Light", show=False),
    ]

    def __init__(self, watcher: Watcher, *, light: bool = False, every_s: float = EVERY_S) -> None:
        """Show what `watcher` knows, at most every so many seconds anew."""
        super().__init__()
        self.watcher = watcher
        self.theme = LIGHT if light else DARK
        self._every_s = every_s
        self._drawn: tuple[int, Outage | None] | None = None
        self._drawn_s = 0.0

    def compose(self) -> ComposeResult:
        """Two lines, perhaps what is not as usual, two tables, keys."""
        yield Static(id="where", markup=False)
        yield Static(id="counts", markup=False)
        yield Static(id="banner", markup=False)
        yield Static(id="pause", markup=False)
        yield FleetTable(host_table.TABLE, id=HOSTS)
        yield FleetTable(job_table.TABLE, id=JOBS)
        yield Filter(id="filter", placeholder="text to look for", compact=True)
        yield Keys(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one("#filter").display = False
        self.jobs.focus()
        self.draw()
        self.set_interval(self._every_s, self._draw_what_is_new)

    @property
    def hosts(self) -> FleetTable[HostLine]:
        """The table of the hosts."""
        return self.screen_stack[0].query_one(f"#{HOSTS}", FleetTable)

    @property
    def jobs(self) -> FleetTable[JobLine]:
        """The table of the jobs."""
        return self.screen_stack[0].query_one(f"#{JOBS}", FleetTable)

    @property
    def table(self) -> FleetTable[HostLine] | FleetTable[JobLine]:
        """The table that the keys are for: the one that had the focus last."""
        return self.hosts if self.screen_stack[0].focused is self.hosts else self.jobs

    # Drawing

    def _draw_what_is_new(self) -> None:
        if not self.screen_stack:
            return  # it ends
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
        base = self.screen_stack[0]
        width = self.size.width - 2  # a blank on either side
        base.query_one("#where", Static).update(
            self._text(headline.where(seen, self.watcher, width))
        )
        base.query_one("#counts", Static).update(self._text(headline.counts(seen, width)))
        for name, words in (
            ("#banner", headline.trouble(seen, outage, self._drawn_s)),
            ("#pause", headline.pause(seen)),
        ):
            banner = base.query_one(name, Static)
            banner.display = bool(words)
            banner.update(Line(words, indent=0))
        self.hosts.show(host_table.lines(seen))
        self.jobs.show(job_table.lines(seen))
        self._share_the_height()
        if isinstance(self.screen, Detail):
            self.screen.refresh_facts()

    def _text(self, cells: list[Cell]) -> Text:
        colours = self.theme_variables
        named = {GOOD: "text-success", BUSY: "text-primary", WARN: "text-warning",
                 BAD: "text-error"}  # fmt: skip
        text = Text(no_wrap=True, overflow="ellipsis")
        for said, style in cells:
            text.append(printable(said), "dim" if style == DIM else colours.get(
                named.get(style, ""), ""))  # fmt: skip
        return text

    def _share_the_height(self) -> None:
        """Few hosts leave their room to the jobs; many have two fifths of the window."""
        most = max(ABOVE + 2, self.size.height * 2 // 5)
        height = min(len(self.hosts.shown) + ABOVE, most)
        if self.hosts.styles.height is None or self.hosts.styles.height.value != height:
            self.hosts.styles.height = height

    def on_resize(self, _event: events.Resize) -> None:
        """Share the height anew, and say in the first lines what fits."""
        if self.screen_stack and self.screen_stack[0].query(FleetTable):
            self.draw()

    # Looking

    def on_data_table_row_selected(self) -> None:
        """A row was clicked that was selected before."""
        self.action_show()

    def action_show(self) -> None:
        """Open the window of what is selected."""
        line = self.table.selected
        if isinstance(line, JobLine):
            self.push_screen(JobDetail(self.watcher, line.row))
        elif isinstance(line, HostLine):
            self.push_screen(HostDetail(self.watcher, line.host))

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
        if action == "filter" and isinstance(self.focused, Filter):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Ask for the text to look for, in the table that has the focus."""
        entry = self.query_one("#filter", Input)
        self._filtered = self.table
        entry.value = self._filtered.text
        entry.display = True
        self.screen.set_focus(entry)  # at once: what is typed next is for it

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what is there so far."""
        if event.input.display:
            self._filtered.look_for(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the table."""
        event.input.display = False
        self.screen.set_focus(self._filtered)

    def action_clear(self) -> None:
        """Show everything again."""
        entry = self.query_one("#filter", Input)
        table = self._filtered if entry.display else self.table
        entry.display = False
        table.kind = "all"
        table.look_for("")
        self.screen.set_focus(table)

    # Changing something

    def action_cancel(self) -> None:
        """Cancel the job that is selected, after a question."""
        if (line := self._job()) is None:
            return
        name = printable(line.row.name)
        at = f" It is {line.row.state} on {line.row.host}." if line.row.host else ""
        self._confirm(
            f"Cancel {name}?{at}", "Cancel it", f"{name} is cancelled",
            lambda: AskCancel(id=new_id(), job=line.key),
        )  # fmt: skip

    def action_requeue(self) -> None:
        """Put the job that is selected back into the queue, after a question."""
        if (line := self._job()) is None:
            return
        name = printable(line.row.name)
        row = line.row
        lost = printable(
            set_aside(row.state, row.host, line.share, row.metrics, row.artifact_id)
        )  # fmt: skip
        at = f" {lost[0].upper()}{lost[1:]}." if lost else ""
        if lost and row.state == "completed":
            at += " It is kept for a while: `fleet show` says how it is fetched."
        self._confirm(
            f"Requeue {name}?{at}", "Requeue it", f"{name} is in the queue again",
            lambda: AskRequeue(id=new_id(), job=line.key),
        )  # fmt: skip

    def action_drain(self) -> None:
        """Drain the host that is selected, or resume it, after a question."""
        line = self.hosts.selected if self.table is self.hosts else self._host_of_job()
        if line is None:
            self.notify("no host is selected; Tab leads to the hosts", severity="warning")
            return
        name = line.key
        if line.lifted_by_resume:
            why = "\n".join(map(told, line.lifted_by_resume))
            self._confirm(
                f"Give {name} jobs again? It is\n{why}", "Resume it",
                f"{name} is given jobs again",
                lambda: AskResume(id=new_id(), host=name),
            )  # fmt: skip
        else:
            self._confirm(
                f"Drain {name}? It gets no new jobs; what it runs is finished there.", "Drain it",
                f"{name} is drained",
                lambda: AskDrain(id=new_id(), host=name),
            )  # fmt: skip

    def _job(self) -> JobLine | None:
        line = self.table.selected
        if isinstance(line, JobLine):
            return line
        way = "Escape shows them all" if self.table is self.jobs else "Tab leads to the jobs"
        self.notify(f"no job is selected; {way}", severity="warning")
        return None

    def _host_of_job(self) -> HostLine | None:
        line = self.jobs.selected
        found = (host for host in self.hosts.shown if line and host.key == line.row.host)
        return next(found, None)

    def _confirm(self, question: str, deed: str, done: str, make: Callable[[], Command]) -> None:
        def take(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._command(make(), done))

        self.push_screen(Confirm(question, deed), take)

    async def _command(self, command: Command, done: str) -> None:
        """Have something done; whatever comes of it is said."""
        try:
            await asyncio.wrap_future(self.watcher.ask(command))  # type: ignore[arg-type] # each is
        except FleetError as error:
            title = "No answer" if isinstance(error, Unreachable) else "Not done"
            # No markup: "[broker]" in it is text.
            said = told(str(error))
            self.notify(said, title=title, severity="error", timeout=12, markup=False)
        else:
            self.notify(done)
            self.draw()
