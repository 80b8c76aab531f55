"""The page of all jobs: a table that is filtered and sorted in the browser.

Its columns are in `coordinator.ui.fleet_columns`.
"""

from __future__ import annotations

from typing import Final

from nicegui import ui

from coordinator.client.rows import NO_HOST, STATES, UNPLACEABLE, Row
from coordinator.ui.fleet_columns import JOBS, shown
from coordinator.web.frame import Site, frame
from coordinator.web.parts import Tag, choice, search
from coordinator.web.tables import feed, grid

MAX_TEXT: Final = 100
CHOICES: Final = {state: state for state in STATES} | {UNPLACEABLE: NO_HOST}


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/jobs")
    def jobs() -> None:
        visit = site.visit()
        rows = list(site.hub.tables.jobs.rows.values())
        with frame(visit, "Jobs", "/jobs"):
            with Tag("div", classes="head"):
                Tag("h1", "Jobs")
                Tag("span", "", "dim", id="shown-jobs", role="status", aria_live="polite")
            query = visit.client.request.query_params
            wanted = {name: (query.get(name) or "")[:MAX_TEXT] for name in query}
            states = [state for state in query.getlist("state") if state in CHOICES]
            _filters(rows, wanted, states[0] if len(states) == 1 else "")
            with Tag("section", classes="card flush", style="padding-top: 0"):
                table = grid(
                    "Jobs", shown(JOBS, "page"), rows, sort="state", is_filtered=True,
                    height="max(320px, calc(100dvh - 200px))", empty="no job to show",
                )  # fmt: skip
            visit.follow(lambda news: feed(table, news.jobs))


def _filters(rows: list[Row], wanted: dict[str, str], state: str) -> None:
    """Make the fields, filled as the address says, which the browser reads as well."""
    with Tag("form", classes="filters head", role="search", onsubmit="return false"):
        act = "fleet.filter({text: this.value.slice(0, 100)})"
        search("name, host, error, id", act, value=wanted.get("text", ""))
        act = "fleet.filter({states: this.value ? [this.value] : []})"
        choice("State", {"": "all"} | CHOICES, act, state)
        for name in ("model", "mode", "host"):
            value = wanted.get(name, "")
            found = sorted({row[name] for row in rows if row[name]} | ({value} - {""}))
            options = {"": "all"} | {one: one for one in found}
            choice(name.capitalize(), options, f"fleet.filter({{{name}: this.value}})", value)
