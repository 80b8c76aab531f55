"""The fleet's timeline: one row a host, one bar a job, from its start to its end."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from coordinator.web.hub import News
from coordinator.web.parts import Tag, call
from coordinator.web.rows import Row
from coordinator.web.site import Site, frame

HINT: Final = (
    "The newest attempt of each job, on the host that has it. Press a bar for its job; the slider "
    "chooses the time."
)
EARLIER: Final = (
    "Earlier attempts are not drawn: where a row is empty the host may have been at one that was "
    "given back, lost or tried again. The history on the job's page has them all."
)
FIELDS: Final = ("id", "name", "state", "host", "attempt", "started", "finished", "error")
SPANS: Final = (
    (0, "all of it"),
    (1, "last hour"),
    (6, "last 6 hours"),
    (24, "last day"),
    (168, "last week"),
)


def register(site: Site) -> None:
    """Make the page known."""

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
                chart = ui.echart({}, renderer="svg").classes("chart")
                Tag("p", EARLIER, "note")
            _spans(form, chart.id)
            rows = site.hub.tables.jobs.rows.values()
            begun = [_bar(row) for row in rows if row["started"]]
            call(visit.client, "feedTimeline", chart.id, {"jobs": begun, "hosts": _hosts(site)})
            bars = {row["id"]: _bar(row) for row in rows}

            def on_news(news: News) -> None:
                made = {row["id"]: _bar(row) for row in (*news.jobs.add, *news.jobs.update)}
                changed = [bar for key, bar in made.items() if bars.get(key) != bar]
                bars.update(made)
                if changed or news.jobs.remove or news.hosts.add or news.hosts.remove:
                    call(visit.client, "feedTimeline", chart.id, {
                        "jobs": changed, "gone": news.jobs.remove,
                        "hosts": _hosts(site),
                    })  # fmt: skip

            visit.follow(on_news)


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
