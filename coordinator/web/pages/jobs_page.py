"""All jobs: a table that is filtered and sorted in the browser, and stays current."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from coordinator.web.frame import Site, Visit, frame
from coordinator.web.hub import News
from coordinator.web.parts import Tag
from coordinator.web.rows import NO_HOST, STATES, UNPLACEABLE, Row
from coordinator.web.tables import feed, grid, job_columns

MAX_TEXT = 100
CHOICES = {state: state for state in STATES} | {UNPLACEABLE: NO_HOST}


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/jobs")
    def jobs() -> None:
        visit = site.visit()
        with frame(visit, "Jobs", "/jobs"):
            rows = list(site.hub.tables.jobs.rows.values())
            wanted = _wanted(visit)
            with Tag("div", classes="head"):
                Tag("h1", "Jobs")
                Tag("span", "", "dim", id="shown-jobs", role="status", aria_live="polite")
            _filters(rows, wanted)
            with Tag("section", classes="card flush", style="padding-top: 0"):
                table = grid(
                    "Jobs", job_columns(), rows,
                    height="max(320px, calc(100dvh - 200px))", keeps="filter",
                    empty="no job to show",
                )  # fmt: skip

            def on_news(news: News) -> None:
                feed(table, news.jobs)

            visit.follow(on_news)


def _wanted(visit: Visit) -> dict[str, Any]:
    """Return the filters in the address."""
    query = visit.client.request.query_params
    return {
        "states": [state for state in query.getlist("state") if state in CHOICES],
        **{name: (query.get(name) or "")[:MAX_TEXT] for name in ("model", "mode", "host", "text")},
    }


def _filters(rows: list[Row], wanted: dict[str, Any]) -> None:
    with Tag("form", classes="filters head", role="search", onsubmit="return false"):
        _text(wanted["text"])
        state = wanted["states"][0] if len(wanted["states"]) == 1 else ""
        _choice("State", CHOICES, state, "states")
        for label, name in (("Model", "model"), ("Mode", "mode"), ("Host", "host")):
            found = sorted({row[name] for row in rows if row[name]} | ({wanted[name]} - {""}))
            _choice(label, {one: one for one in found}, wanted[name], name)


def _text(value: str) -> None:
    with Tag("label", classes="field wide"):
        Tag("span", "Search")
        box = Tag("input", type="search", value=value, placeholder="name, host, error, id")
    # In the browser alone, which reads the address as well: what is typed goes nowhere.
    box.props["oninput"] = "fleet.filter({text: this.value.slice(0, 100)})"


def _choice(label: str, choices: Mapping[str, str], value: str, name: str) -> None:
    with Tag("label", classes="field"):
        Tag("span", label)
        with Tag("select") as select:
            for choice, words in {"": "all", **choices}.items():
                chosen = "selected" if choice == value else None
                Tag("option", words, value=choice, selected=chosen)
    given = "this.value ? [this.value] : []" if name == "states" else "this.value"
    select.props["onchange"] = f"fleet.filter({{{name}: {given}}})"
