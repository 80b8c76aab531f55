"""The window of one job or one host: facts above, pages below, kept current while it is open."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from broker.errors import FleetError
from broker.figures import some
from broker.protocol.messages import (
    AskEvents,
    AskLogs,
    AskShow,
    AskWhy,
    Capability,
    Gpu,
    Heartbeat,
    JobRow,
)
from broker.system.machine import new_id, system_clock
from broker.wrapping import printable
from coordinator.client.mirror import HostSeen, Snapshot
from coordinator.client.rows import Row, Tables
from coordinator.client.watcher import Watcher
from coordinator.jobs import job_progress
from coordinator.jobs.agent_words import holds
from coordinator.jobs.reason_words import alike, summary, wished, words
from coordinator.top.headline import trouble
from coordinator.top.job_table import with_losses
from coordinator.ui.fitted_table import Table
from coordinator.ui.job_view import Facts, facts, history
from coordinator.ui.pushed import KINDS, PushedKind
from coordinator.ui.terminal import Line, ago, figure, short, size, state

EVERY_S: Final = 2.0
DAY_S: Final = 86_400.0
MAX_PAGES: Final = 20  # of a host's history
TITLE: Final = 10
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
        self._facts = Text()

    @abstractmethod
    def facts(self, width: int) -> Text | None:
        """Return what stands above the pages; none for what is gone."""

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
        self._facts = self.facts(self.query_one("#facts").content_size.width) or self._facts
        told = trouble(self.watcher.snapshot(), self.watcher.outage, time.monotonic())
        shown = Text.assemble(self._facts, "\n", (told, "red")) if told else self._facts
        self.query_one("#facts", Static).update(Line(shown, indent=TITLE))

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

    def facts(self, width: int) -> Text | None:
        """Return how it is now."""
        seen, row = self.watcher.snapshot(), self.tables.jobs.rows.get(self.key)
        job = seen.jobs.get(self.key)
        return job_facts(job, row, seen, width) if job and row else None

    @property
    def loaders(self) -> dict[str, Loader]:
        """History, log, why."""
        return {"History": self._history, "Log": self._log, "Why": self._why}

    async def _history(self) -> Table:
        shown = await self.ask(AskShow(id=new_id(), job=self.key))
        return history(reversed(shown["events"]))

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

    def facts(self, _width: int) -> Text | None:
        """Return how it is now."""
        seen = self.watcher.snapshot()
        host = seen.hosts.get(self.key)
        return host_facts(host, seen) if host else None

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
        return history(reversed(self._events), "name")


class PushedDetail(Detail):
    """What people have pushed: the programs and the datasets of the fleet."""

    def facts(self, _width: int) -> Text | None:
        """Return what the tables are of."""
        return Text("What people have pushed, oldest first", style="bold")

    @property
    def loaders(self) -> dict[str, Loader]:
        """A table of each."""
        return {kind.title: partial(self._table, kind) for kind in KINDS}

    async def _table(self, kind: PushedKind) -> Text | Table:
        return kind.shown((await self.ask(kind.ask()))["pushed"])


def job_facts(job: JobRow, row: Row, seen: Snapshot, width: int) -> Text:
    """Return how a job is, in a few lines."""
    data = job.model_dump(mode="json")
    if width < TITLE + len(job.job_id):
        data["job_id"] = short(job.job_id)
    if (said := seen.progress.get(job.job_id)) is not None:
        data["progress"] = said.model_dump()
    metrics = job.metrics or {}
    known = [name for name in metrics if not name.endswith("_ci") and figure(metrics, name)]
    text = "  ".join(f"{name} {figure(metrics, name)}" for name in known[:4])
    return _laid_out([*facts(data, with_losses(row, seen)), *([("Metrics", text)] if text else [])])


def host_facts(host: HostSeen, seen: Snapshot) -> Text:
    """Return what a host is and how it is."""
    return _laid_out(_of_host(host, seen))


def _of_host(host: HostSeen, seen: Snapshot) -> Iterator[tuple[str, str | Text]]:
    capability, heartbeat = host.capability, host.heartbeat
    heard = f", heard {ago(str(at))}" if (at := host.row.get("last_seen")) else ""
    yield "Host", Text(host.name, style="bold")
    yield "State", Text().append(state(host.condition)).append(heard)
    for why in host.row.get("barred") or ():
        yield "Barred", Text(printable(words(why)), style="yellow")
    if host.refuses:
        yield "Takes no jobs", Text(printable(holds(host.refuses)), style="yellow")
    if capability is not None:
        yield from _of_capability(capability, heartbeat)
    gpus = heartbeat.gpus if heartbeat else ()
    for gpu in gpus or (capability.gpus if capability else ()):
        yield "GPU", printable(_gpu(gpu))
    for held in heartbeat.jobs if heartbeat else ():
        job, said = seen.jobs.get(held.job_id), seen.progress.get(held.job_id)
        is_newer = said is not None and said.attempt == held.attempt
        share = job_progress.share(said if is_newer else None, held)
        done = f" {share:.0%}" if share is not None else ""
        name = printable(job.name) if job else short(held.job_id)
        yield "Job", f"{name}, attempt {held.attempt}, {held.phase}{done}"


def _of_capability(
    made: Capability, heartbeat: Heartbeat | None
) -> Iterator[tuple[str, str | Text]]:
    what = [made.description, made.cpu, f"{made.physical_cores} cores"]
    yield "Is", printable(", ".join(filter(None, what)))
    yield "System", printable(f"{made.os}, {made.arch}, Python {made.python}")
    free = heartbeat.ram_available_bytes if heartbeat else made.ram_available_bytes
    yield "RAM", f"{size(free)} free of {size(made.ram_total_bytes)}"
    yield "Trainers", printable(", ".join(sorted(made.trainers)) or "none")
    if made.data_id is None:
        yield "Data", Text("none", style="yellow")
    if made.gpu_problem:
        yield "GPU", Text(printable(made.gpu_problem), style="yellow")


def _gpu(gpu: Gpu) -> str:
    parts = [f"{gpu.index}: {gpu.name or 'CUDA'}"]
    if gpu.vram_total_bytes:
        parts.append(f"{size(gpu.vram_free_bytes)} free of {size(gpu.vram_total_bytes)}")
    parts += [f"{gpu.use_percent:.0f}%"] if gpu.use_percent is not None else []
    parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
    return ", ".join(parts)


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


def _laid_out(facts: Facts) -> Text:
    text = Text()
    for title, said in facts:
        text.append("\n" if text.plain else "")
        text.append(f"{title:<{TITLE}}", style="dim")
        text.append(said)
    return text
