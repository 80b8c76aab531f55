"""The fleet's timeline: a row a host, a bar an attempt of a job, for as long as its trainer ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nicegui import ui

from coordinator.client.rows import Delta, Row
from coordinator.web.attempt_rows import MOST, Attempt, Attempts, Told
from coordinator.web.frame import Site, Visit, frame
from coordinator.web.hub import News
from coordinator.web.parts import Tag, call, choice, table_card
from coordinator.web.tables import as_rows, attempt_columns, grid

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
                table = grid("Attempts", attempt_columns(), [], height=as_rows(15), empty=WAIT,
                             row_id="fleet.attemptId")  # fmt: skip
            with form:
                feed = f"fleet.feedTimeline({chart.id}, {{hours: Number(this.value)}})"
                choice("Time", SPANS, feed)
            _follow_jobs(site, visit, chart.id, table.id)
            _follow_attempts(visit, chart.id, attempts, note)


def _follow_jobs(site: Site, visit: Visit, chart_id: int, table_id: int) -> None:
    """Feed the chart with the hosts, and with each job's newest attempt."""
    rows = site.hub.tables.jobs.rows.values()

    def feed(jobs: list[dict[str, Any]], **more: Any) -> None:
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

    def feed(found: Iterable[Attempt], *, afresh: bool) -> None:
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


def bar_of(row: Row) -> dict[str, Any]:
    """Return what is drawn of a job's newest attempt."""
    return {name: row[name] for name in FIELDS}


class Bars:
    """The newest attempt of each job, as a page was told of it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Take the jobs with which the page begins."""
        self._told = {row["id"]: bar_of(row) for row in rows}

    def take(self, news: Delta) -> list[dict[str, Any]]:
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
