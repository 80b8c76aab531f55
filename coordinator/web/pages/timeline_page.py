"""The fleet's timeline: a row a host, a bar an attempt of a job, for as long as its trainer ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nicegui import ui

from coordinator.web.attempt_rows import MOST, Attempt, Attempts, Told
from coordinator.web.frame import Site, Visit, frame
from coordinator.web.hub import News
from coordinator.web.parts import Tag, call
from coordinator.web.rows import Delta, Row
from coordinator.web.tables import Grid, as_rows, attempt_columns, grid

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
LEFT_OUT: Final = f"The newest {MOST:,} attempts are drawn; the oldest of them ended "
HISTORY: Final = ". The history on a job's page has the earlier ones, too."
EMPTY: Final = "no job has begun in this time"
WAIT: Final = "asking the coordinator …"
ENDS: Final = ("running", "completed", "failed", "lost", "released", "cancelled")
FIELDS: Final = ("id", "name", "state", "host", "attempt", "started", "finished", "ran", "error")
SPANS: Final = (
    (0, "all of it"),
    (1, "last hour"),
    (6, "last 6 hours"),
    (24, "last day"),
    (168, "last week"),
)


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
                note = Tag("p", classes="note", role="status", aria_live="polite")
            table = _table()
            _spans(form, chart.id)
            _follow_jobs(site, visit, chart.id, table.id)
            _follow_attempts(visit, chart.id, attempts, note)


def _table() -> Grid:
    """Make the table of what is drawn; the browser fills it when it draws."""
    with Tag("section", classes="card flush", aria_labelledby="attempts-title"):
        with Tag("h2", "Attempts", id="attempts-title"):
            Tag("small", "", id="shown-attempts")
        return grid(
            "Attempts", attempt_columns(), [], height=as_rows(15), empty=EMPTY,
            row_id="fleet.attemptId", asking=WAIT,
        )  # fmt: skip


def _follow_jobs(site: Site, visit: Visit, chart_id: int, table_id: int) -> None:
    """Feed the chart with the hosts, and with each job's newest attempt."""
    rows = site.hub.tables.jobs.rows.values()
    begun = [_bar(row) for row in rows if row["started"]]
    call(visit.client, "feedTimeline", chart_id, {
        "jobs": begun, "hosts": _hosts(site), "table": table_id,
    })  # fmt: skip
    bars = Bars(rows)

    def on_news(news: News) -> None:
        changed = bars.take(news.jobs)
        if changed or news.jobs.remove or news.hosts.add or news.hosts.remove:
            call(visit.client, "feedTimeline", chart_id, {
                "jobs": changed, "gone": news.jobs.remove,
                "hosts": _hosts(site),
            })  # fmt: skip

    visit.follow(on_news)


def _follow_attempts(visit: Visit, chart_id: int, attempts: Attempts, note: Tag) -> None:
    """Feed the chart with the attempts that have ended, and say which are not there."""
    say = _Note(note, attempts)

    def feed(found: Iterable[Attempt], *, afresh: bool) -> None:
        past = {"runs": runs_of(found), "afresh": afresh, "most": MOST}
        call(visit.client, "feedTimeline", chart_id, {"past": past, "told": True})

    def on_told(told: Told) -> None:
        if attempts.known:
            feed(told.attempts, afresh=told.afresh)
        say.tell()

    if attempts.known:
        feed(attempts.rows, afresh=True)
    visit.client.on_delete(attempts.follow(on_told))
    say.tell()


class Bars:
    """The newest attempt of each job, as a page was told of it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Take the jobs with which the page begins."""
        self._told = {row["id"]: _bar(row) for row in rows}

    def take(self, news: Delta) -> list[dict[str, Any]]:
        """Return the bars that are other than the page was told; one that is gone is unknown."""
        for key in news.remove:
            self._told.pop(key, None)
        made = {row["id"]: _bar(row) for row in (*news.add, *news.update)}
        changed = [bar for key, bar in made.items() if self._told.get(key) != bar]
        self._told.update(made)
        return changed


def runs_of(attempts: Iterable[Attempt]) -> list[list[Any]]:
    """Return attempts as a browser takes them: of each job its id, its name and its attempts.

    Of an attempt its number, its host, when it began and ended (ms), and how.
    """
    jobs: dict[str, list[Any]] = {}
    for one in attempts:
        job = jobs.setdefault(one.job_id, [one.job_id, one.name, []])
        job[2].append([one.attempt, one.host, one.began_ms, one.ended_ms, one.end])
    return list(jobs.values())


class _Note:
    """Says which attempts are not drawn; a screen reader says it when it becomes another."""

    def __init__(self, note: Tag, attempts: Attempts) -> None:
        self._note, self._attempts = note, attempts
        self._said: str | None = None
        self._oldest: Tag | None = None

    def tell(self) -> None:
        attempts = self._attempts
        words = _missing(attempts)
        if words != self._said:
            self._said = words
            self._note.clear()
            with self._note:
                Tag("span", words)
                if words == LEFT_OUT:
                    self._oldest = Tag("time", "")
                    Tag("span", HISTORY)
        if words == LEFT_OUT and self._oldest is not None:
            self._oldest.props["data-ms"] = attempts.left_out_ms
            self._oldest.update()


def _missing(attempts: Attempts) -> str:
    if attempts.fault:
        return (OLD if attempts.known else UNTOLD).format(attempts.fault)
    if not attempts.known:
        return ASKING
    return LEFT_OUT if attempts.left_out_ms is not None else ""


def _hosts(site: Site) -> list[tuple[str, int]]:
    """Return each host and how many slots it has."""
    return [(row["id"], row["slots"]) for row in site.hub.tables.hosts.rows.values()]


def _bar(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in FIELDS}


def _spans(form: Tag, chart_id: int) -> None:
    with form, Tag("label", classes="field"):
        Tag("span", "Time")
        with Tag(
            "select", onchange=f"fleet.feedTimeline({chart_id}, {{hours: Number(this.value)}})"
        ):
            for hours, name in SPANS:
                Tag("option", name, value=str(hours))
