"""The window of one job or one host: facts above, pages below, kept current while it is open."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from broker.errors import FleetError
from broker.protocol.messages import AskEvents, AskLogs, AskShow, AskWhy
from broker.system.machine import new_id, system_clock
from coordinator.client.rows import Tables
from coordinator.client.watcher import Watcher
from coordinator.top import detail_pages
from coordinator.ui.columns import Table
from coordinator.ui.terminal import Line

EVERY_S: Final = 2.0
DAY_S: Final = 86_400.0
MAX_PAGES: Final = 20  # of a host's history

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
        self.query_one("#facts", Static).update(Line(self._facts, indent=detail_pages.TITLE))

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
        return await asyncio.wrap_future(self.watcher.ask(request))


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
        return detail_pages.job_facts(job, row, seen, width) if job and row else None

    @property
    def loaders(self) -> dict[str, Loader]:
        """History, log, why."""
        return {"History": self._history, "Log": self._log, "Why": self._why}

    async def _history(self) -> Table:
        shown = await self.ask(AskShow(id=new_id(), job=self.key))
        return detail_pages.events(shown["events"], "host")

    async def _log(self) -> Text:
        return detail_pages.log(await self.ask(AskLogs(id=new_id(), job=self.key, lines=300)))

    async def _why(self) -> Text:
        return detail_pages.why(await self.ask(AskWhy(id=new_id(), job=self.key)))


class HostDetail(Detail):
    """One host: what it is, how it is, and what happened on it in the last day."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "app.drain", "Drain/resume")]

    def __init__(self, watcher: Watcher, tables: Tables, key: str) -> None:
        """See `Detail`."""
        super().__init__(watcher, tables, key)
        self._events: list[dict[str, Any]] = []
        self._after = (0, 0)

    def facts(self, _width: int) -> Text | None:
        """Return how it is now."""
        seen = self.watcher.snapshot()
        host = seen.hosts.get(self.key)
        return detail_pages.host_facts(host, seen) if host else None

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
        return detail_pages.events(self._events, "name")
