"""The window of one job or one host: facts above, pages below, kept current while it is open."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from broker.errors import FleetError
from broker.figures import some
from broker.protocol.messages import AskEvents, AskLogs, AskShow, AskWhy, JobRow
from broker.system.machine import new_id, system_clock
from broker.wrapping import printable
from coordinator.client.mirror import HostSeen, Snapshot
from coordinator.client.rows import Row, Tables
from coordinator.client.watcher import Watcher
from coordinator.jobs.reason_words import alike, summary, wished
from coordinator.top.headline import trouble
from coordinator.top.job_table import with_losses
from coordinator.ui import host_view, job_view
from coordinator.ui.facts import Fact, in_lines
from coordinator.ui.fitted_table import Table
from coordinator.ui.pushed import KINDS, PushedKind
from coordinator.ui.terminal import Line, short, state

EVERY_S: Final = 2.0
DAY_S: Final = 86_400.0
MAX_PAGES: Final = 20  # of a host's history
WHOLE_IDS: Final = 76  # columns
MAX_METRICS: Final = 4
_NAMED: Final = 6  # hosts of one reason that are named

Loader = Callable[[], Awaitable[Text | Table]]


class Detail(ModalScreen[None]):
    """Facts and pages; what the keys of a page's number lead to is loaded when it is looked at."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Close"),
        *(Binding(str(page + 1), f"page({page})", show=False) for page in range(3)),
    ]

    def __init__(self, watcher: Watcher, tables: Tables, key: str) -> None:
        """Show what `watcher` knows, and is told, of the row with this key."""
        super().__init__()
        self.watcher, self.tables, self.key = watcher, tables, key
        self._loading: set[int] = set()  # pages whose answer is awaited
        self._facts: list[Fact] = []

    @abstractmethod
    def facts(self, width: int) -> Iterable[Fact]:
        """Return what stands above the pages; nothing for what is gone."""

    @property
    @abstractmethod
    def loaders(self) -> dict[str, Loader]:
        """What makes each page, by the page's title."""

    def compose(self) -> ComposeResult:
        """Facts, then pages."""
        with Vertical(id="detail"):
            yield Static(id="facts", markup=False)
            with TabbedContent(id="pages"):
                for index, title in enumerate(self.loaders):
                    with (
                        TabPane(f"{index + 1} {title}", id=f"page-{index}"),
                        VerticalScroll(id=f"scroll-{index}"),
                    ):
                        yield Static("…", id=f"text-{index}", markup=False)
            yield Footer()

    def on_mount(self) -> None:
        """Begin to follow."""
        self.action_page(0)
        self.set_interval(EVERY_S, self.look)
        self.call_after_refresh(self.look)

    def on_resize(self) -> None:
        """Facts have as many columns as there are."""
        self.call_after_refresh(self.refresh_facts)

    def refresh_facts(self) -> None:
        """Show what is known now; of what is gone, how it was last."""
        place = self.query_one("#facts", Static)
        self._facts = list(self.facts(place.content_size.width)) or self._facts
        told = trouble(self.watcher.snapshot(), self.watcher.outage, time.monotonic())
        place.update(Group(*in_lines(self._facts), *([Line(Text(told, "red"))] if told else [])))

    def action_page(self, index: int) -> None:
        """Turn to a page."""
        if index < len(self.loaders):
            self.query_one("#pages", TabbedContent).active = f"page-{index}"
            self.query_one(f"#scroll-{index}").focus()

    def on_tabbed_content_tab_activated(self, _event: TabbedContent.TabActivated) -> None:
        """Load what is looked at now."""
        self.look()

    def look(self) -> None:
        """Load the page that is open, unless that is under way."""
        self.refresh_facts()
        index = int(self.query_one("#pages", TabbedContent).active.rpartition("-")[2] or 0)
        if index not in self._loading:
            self._loading.add(index)
            self.run_worker(self._load(index))

    async def _load(self, index: int) -> None:
        text: Text | Table
        try:
            text = await list(self.loaders.values())[index]()
        except FleetError as error:
            text = Text(str(error), style="red")
        finally:
            self._loading.discard(index)
        scroll = self.query_one(f"#scroll-{index}", VerticalScroll)
        was_at_end = scroll.scroll_offset.y >= scroll.max_scroll_y
        shown = Line(text, indent=0) if isinstance(text, Text) else text
        self.query_one(f"#text-{index}", Static).update(shown)
        if was_at_end and list(self.loaders)[index] == "Log":
            scroll.scroll_end(animate=False)

    async def ask(self, request: Any) -> Any:
        """Return the data of the coordinator's answer. Raises `NotDone`."""
        return await asyncio.wrap_future(self.watcher.send(request))


class JobDetail(Detail):
    """One job: how it is, its history, the end of its output, and why it does not run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "app.cancel", "Cancel"),
        Binding("r", "app.requeue", "Requeue"),
    ]

    def facts(self, width: int) -> Iterable[Fact]:
        """Return how it is now."""
        seen, row = self.watcher.snapshot(), self.tables.jobs.rows.get(self.key)
        job = seen.jobs.get(self.key)
        return job_facts(job, row, seen, width) if job and row else ()

    @property
    def loaders(self) -> dict[str, Loader]:
        """History, log, why."""
        return {"History": self._history, "Log": self._log, "Why": self._why}

    async def _history(self) -> Table:
        shown = await self.ask(AskShow(id=new_id(), job=self.key))
        return job_view.history(reversed(shown["events"]))

    async def _log(self) -> Text:
        return log(await self.ask(AskLogs(id=new_id(), job=self.key, lines=300)))

    async def _why(self) -> Text:
        return why(await self.ask(AskWhy(id=new_id(), job=self.key)))


class HostDetail(Detail):
    """One host: what it is, how it is, and what happened on it in the last day."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "app.drain", "Drain/resume")]

    def __init__(self, watcher: Watcher, tables: Tables, key: str) -> None:
        super().__init__(watcher, tables, key)
        self._events: list[dict[str, Any]] = []
        self._after = (0, 0)

    def facts(self, _width: int) -> Iterable[Fact]:
        """Return how it is now."""
        row = self.tables.hosts.rows.get(self.key)
        host = self.watcher.snapshot().hosts.get(self.key)
        return host_facts(host, row) if host and row else ()

    @property
    def loaders(self) -> dict[str, Loader]:
        """What happened on it."""
        return {"The last day": self._story}

    async def _story(self) -> Text | Table:
        since = system_clock().wall_s - DAY_S
        for _ in range(MAX_PAGES):
            page = await self.ask(
                AskEvents(id=new_id(), since=since, host=self.key, after=self._after)
            )
            self._events += page["events"]
            self._after = (page["next"][0], page["next"][1])
            if not page["more"]:
                break
        del self._events[: -MAX_PAGES * 200]
        if not self._events:
            return Text("nothing in the last day")
        return job_view.history(reversed(self._events), "name")


class PushedDetail(Detail):
    """What people have pushed: the programs and the datasets of the fleet."""

    def facts(self, _width: int) -> Iterable[Fact]:
        """Return what the tables are of."""
        return [("Pushed", "programs and datasets, oldest first")]

    @property
    def loaders(self) -> dict[str, Loader]:
        """A table of each."""
        return {kind.title: partial(self._table, kind) for kind in KINDS}

    async def _table(self, kind: PushedKind) -> Text | Table:
        return kind.shown((await self.ask(kind.ask()))["pushed"])


def job_facts(job: JobRow, row: Row, seen: Snapshot, width: int) -> Iterator[Fact]:
    """Yield how a job is."""
    data = job.model_dump(mode="json")
    if width < WHOLE_IDS:
        data["job_id"] = short(job.job_id)
    if (said := seen.progress.get(job.job_id)) is not None:
        data["progress"] = said.model_dump()
    yield from job_view.facts(data, with_losses(row, seen))
    metrics = job_view.metrics(job.metrics)[:MAX_METRICS]
    yield "Metrics", ", ".join(f"{name} {value}" for name, value in metrics)


def host_facts(host: HostSeen, row: Row) -> Iterator[Fact]:
    """Yield how a host is, and what it is."""
    yield "Host", Text(host.name, "bold")
    yield "State", state(host.condition)
    yield "Barred", Text(printable(row["barred"]), "yellow")
    yield from host_view.now(host, row)
    if host.capability is not None:
        yield from host_view.what_it_is(host.capability)


def log(data: Mapping[str, Any]) -> Text:
    """Return the end of a job's output."""
    if not data["lines"]:
        return Text("no output yet")
    head = "… (the beginning is not kept)\n" if data["truncated"] else ""
    return Text(head + printable("\n".join(data["lines"])))


def why(data: Mapping[str, Any]) -> Text:
    """Return why a job does not run: what would help, and reasons with the hosts they are of."""
    text = Text(printable(summary(data)), style="bold")
    title, changes = wished(data)
    if changes:
        text.append(f"\n\n{title}", style="")
    for change in changes:
        text.append(f"\n  {printable(change)}", style="")
    for reasons, hosts in sorted(alike(data["hosts"]), key=lambda item: -len(item[1])):
        text.append("\n\n" + "\n".join(printable(one) for one in reasons), style="")
        text.append(f"\n  {len(hosts)}: {some(hosts, _NAMED)}", style="dim")
    return text
