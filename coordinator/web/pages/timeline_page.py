"""The fleet's timeline: a row a host, a bar an attempt of a job, for as long as its trainer ran.

The attempts that have ended are asked for once, whoever looks. While a page is open, the
coordinator is asked every few seconds for what is newer. So many browsers cost one question, and an
attempt is told once. Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

from broker.errors import FleetError
from broker.protocol.messages import AskAttempts, OperatorRequest
from broker.system.machine import new_id
from coordinator.client.rows import Delta, Row, epoch_ms
from coordinator.web.frame import Site, Visit, frame
from coordinator.web.hub import Hub, Listeners, News
from coordinator.web.parts import Tag, call, choice, table_card
from coordinator.web.tables import ATTEMPTS, as_rows, grid

MOST: Final = 3_000  # attempts that are kept, and drawn: a browser takes 0.1 s for so many
EVERY_S: Final = 2.0  # between two questions
HINT: Final = (
    "Every attempt, on the host that had it, by how it ended; the table below has them, too. "
    "Press a bar for its job; the slider chooses the time."
)
ASKING: Final = "Asking the coordinator for the attempts that have ended …"
UNTOLD: Final = (
    "Of each job the newest attempt is drawn alone: the coordinator did not tell the earlier ones "
    "({}). It is asked again."
)
OLD: Final = "Attempts that ended since it was last asked may be missing ({}). It is asked again."
LEFT_OUT: Final = f"The newest {MOST:,} attempts are drawn. A job's page has the earlier ones, too."
WAIT: Final = "asking the coordinator …"
ENDS: Final = ("running", "completed", "failed", "lost", "released", "cancelled")
FIELDS: Final = ("id", "name", "state", "host", "attempt", "started", "finished", "ran", "error")
SPANS: Final = {
    "0": "all of it", "1": "last hour", "6": "last 6 hours", "24": "last day", "168": "last week",
}  # fmt: skip

Ask = Callable[[OperatorRequest], Awaitable[Any]]  # raises `FleetError`


@dataclass(frozen=True, slots=True)
class Told:
    """What a page is told: attempts, oldest first; `afresh`: in the place of all it knew."""

    attempts: list[Row]
    afresh: bool


class Attempts:
    """Keeps the newest attempts, oldest first, while somebody looks, and tells each page of them.

    `fault` says why they could not be asked for, empty when they could; `known`: they were, once.
    `is_cut`: earlier ones are left out.
    """

    def __init__(
        self, hub: Hub, ask: Ask, wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        most: int = MOST,
    ) -> None:  # fmt: skip
        self.fault = ""
        self.known = False
        self.rows: deque[Row] = deque(maxlen=most)
        self.is_cut = False
        self._hub, self._ask_for, self._wait, self._most = hub, ask, wait, most
        self._newest = 0  # a place in the coordinator's table of events
        self._of = ""
        self._listeners = Listeners[Told]()
        self._task: asyncio.Task[None] | None = None

    def follow(self, listener: Callable[[Told], object]) -> Callable[[], None]:
        """Tell `listener` what is new from now on, and what fails; return what ends that."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._listeners.add(listener)

    async def _run(self) -> None:
        while self._listeners:
            try:
                await self._ask()
            except FleetError as error:
                self.fault = str(error)
                self._listeners.tell(Told([], afresh=False))
            await self._wait(EVERY_S)

    async def _ask(self) -> None:
        status = self._hub.seen.coordinator
        of = status.instance if status is not None else ""
        # Another process may have been given another ledger, such as a backup.
        is_other = of != self._of
        after = 0 if is_other else self._newest
        found: list[Row] = []
        newest: int | None = None
        before: int | None = None
        while newest is None or (before is not None and len(found) <= self._most):
            page = await self._ask_for(AskAttempts(id=new_id(), after=after, before=before))
            found += [one for told in page["attempts"] if (one := attempt_of(told)) is not None]
            newest = page["newest"] if newest is None else newest
            before = page["next"]
        if is_other:
            self.rows.clear()
            self.is_cut = False
        self._of, self._newest = of, newest
        new = found[::-1]
        self.is_cut |= len(self.rows) + len(new) > self._most
        self.rows.extend(new)
        afresh = is_other or before is not None
        is_news = bool(new) or afresh or bool(self.fault) or not self.known
        self.fault, self.known = "", True
        if is_news:
            self._listeners.tell(Told(new[-self._most :], afresh))


def attempt_of(told: Mapping[str, Any]) -> Row | None:
    """Return what is drawn of an attempt that has ended; none for one that never ran.

    It ended with its trainer, not when the coordinator knew.
    """
    ended_ms, began_ms = epoch_ms(told["at"]), epoch_ms(told["began"])
    if told["s"] is None or not told["host"] or ended_ms is None:
        return None
    ran_ms = round(told["s"] * 1000)
    if began_ms is not None:
        ended_ms = min(ended_ms, began_ms + ran_ms)
    return {
        "id": told["job_id"], "name": told["name"], "attempt": told["attempt"],
        "host": told["host"], "started": ended_ms - ran_ms, "finished": ended_ms,
        "state": told["end"],
    }  # fmt: skip


def register(site: Site) -> None:
    """Make the page known."""
    attempts = Attempts(site.hub, site.hub.ask)

    @ui.page("/timeline")
    def timeline() -> None:
        visit = site.visit()
        with frame(visit, "Timeline", "/timeline"):
            with Tag("div", classes="head"):
                Tag("h1", "Timeline")
                Tag("span", "", "grow")
                form = Tag("form", classes="filters", onsubmit="return false")
            with Tag("section", classes="card"):
                Tag("p", HINT, "note")
                with Tag("div", classes="legend", aria_label="Colours", role="group"):
                    for end in ENDS:
                        Tag("span", end, f"state {end}")
                chart = ui.echart({}, renderer="svg").classes("chart")
                note = Tag("p", "", "note", role="status", aria_live="polite")
            section, _ = table_card("Attempts", "shown-attempts")
            with section:  # the browser fills it when it draws, and says then if there are none
                table = grid("Attempts", ATTEMPTS, [], sort="started", order="desc", empty=WAIT,
                             height=as_rows(15), row_id="fleet.attemptId")  # fmt: skip
            with form:
                feed = f"fleet.feedTimeline({chart.id}, {{hours: Number(this.value)}})"
                choice("Time", SPANS, feed)
            _follow_jobs(site, visit, chart.id, table.id)
            _follow_attempts(visit, chart.id, attempts, note)


def _follow_jobs(site: Site, visit: Visit, chart_id: int, table_id: int) -> None:
    """Feed the chart with the hosts, and with each job's newest attempt."""
    rows = site.hub.tables.jobs.rows.values()

    def feed(jobs: list[Row], **more: Any) -> None:
        hosts = [(row["id"], row["slots"]) for row in site.hub.tables.hosts.rows.values()]
        call(visit.client, "feedTimeline", chart_id, {"jobs": jobs, "hosts": hosts, **more})

    feed([bar_of(row) for row in rows if row["started"]], table=table_id)
    bars = Bars(rows)

    def on_news(news: News) -> None:
        changed = bars.take(news.jobs)
        if changed or news.jobs.remove or news.hosts.add or news.hosts.remove:
            feed(changed, gone=news.jobs.remove)

    visit.follow(on_news)


def _follow_attempts(visit: Visit, chart_id: int, attempts: Attempts, note: Tag) -> None:
    """Feed the chart with the attempts that have ended, and say which are not there."""

    def feed(found: Iterable[Row], *, afresh: bool) -> None:
        past = {"runs": list(found), "afresh": afresh, "most": MOST}
        call(visit.client, "feedTimeline", chart_id, {"past": past, "told": True})

    def on_told(told: Told) -> None:
        if attempts.known:
            feed(told.attempts, afresh=told.afresh)
        note.set_text(_missing(attempts))

    if attempts.known:
        feed(attempts.rows, afresh=True)
    visit.client.on_delete(attempts.follow(on_told))
    note.set_text(_missing(attempts))


def bar_of(row: Row) -> Row:
    """Return what is drawn of a job's newest attempt."""
    return {name: row[name] for name in FIELDS}


class Bars:
    """The newest attempt of each job, as a page was told of it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._told = {row["id"]: bar_of(row) for row in rows}

    def take(self, news: Delta) -> list[Row]:
        """Return the bars that are other than the page was told; one that is gone is unknown."""
        for key in news.remove:
            self._told.pop(key, None)
        made = {row["id"]: bar_of(row) for row in (*news.add, *news.update)}
        changed = [bar for key, bar in made.items() if self._told.get(key) != bar]
        self._told.update(made)
        return changed


def _missing(attempts: Attempts) -> str:
    if attempts.fault:
        return (OLD if attempts.known else UNTOLD).format(attempts.fault)
    if not attempts.known:
        return ASKING
    return LEFT_OUT if attempts.is_cut else ""
