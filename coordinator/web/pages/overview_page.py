"""The first page: how many jobs are in which state, what runs now, and every host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nicegui import ui

from broker.figures import counted
from coordinator.client.rows import HELD, STATES, UNPLACEABLE, counts
from coordinator.ui.fleet_columns import HOSTS, JOBS, shown
from coordinator.web.frame import Site, Visit, ask_pause, frame, not_found
from coordinator.web.hub import Hub, News
from coordinator.web.parts import Tag, heading, table_card
from coordinator.web.tables import Part, as_rows, feed, grid

RUNNING_ROWS: Final = 10
# What is of no job that runs.
_OVER: Final = ("state", "value", "took", "finished", "interval", "ap", "f1")
# As high as its rows, but no higher than the window, except on a phone or a very low one.
HOSTS_HEIGHT: Final = f"min(var(--hosts-most), {as_rows(400)})"


def missing(site: Site) -> Callable[[], None]:
    """Return what makes the page at an address that is none of ours."""

    def page() -> None:
        visit = site.visit()
        text = "There is nothing at this address; it may be mistyped."
        with frame(visit, "No such page"):
            not_found(visit, "No such page", text, "The overview", "/")

    return page


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/")
    def overview() -> None:
        visit, hub = site.visit(), site.hub
        with frame(visit, "Overview", "/"):
            Tag("h1", "Overview", "hidden-text")
            visit.keep_current(_tiles(hub))
            visit.keep_current(_hopeless(hub))
            _running(visit)
            _hosts(visit)


def _running(visit: Visit) -> None:
    hub = visit.site.hub
    part = Part(lambda row: row["state"] in HELD, list(hub.tables.jobs.rows.values()))
    with Tag("section", classes="card flush", aria_label="Running now"):
        with Tag("div", classes="head"):
            count = heading("Running now")
            if visit.may_act():
                Tag("span", "", "grow")
                pause = visit.act_button("Pause the fleet", lambda: ask_pause(visit))
                visit.keep_current(lambda: pause.set_visibility(not hub.seen.paused))
        table = grid(
            "Jobs that run now", shown(JOBS, "page", *_OVER), list(part.rows.values()),
            sort="ends", height=as_rows(RUNNING_ROWS), empty="nothing runs now",
        )  # fmt: skip

    def on_news(news: News) -> None:
        feed(table, part.take(news.jobs))

    visit.follow(on_news)
    visit.keep_current(lambda: count.set_text(f" {len(part.rows) or 'nothing'}"))


def _hosts(visit: Visit) -> None:
    rows = visit.site.hub.tables.hosts.rows
    section, count = table_card("Hosts")
    with section:
        table = grid(
            "Hosts", shown(HOSTS, "page"), list(rows.values()), sort="id", height=HOSTS_HEIGHT,
            empty="no host is known yet; start an agent with: fleet agent",
        )  # fmt: skip

    def tell() -> None:
        count.set_text(f" {sum(row['online'] for row in rows.values())} of {len(rows)} online")

    visit.follow(lambda news: feed(table, news.hosts))
    visit.keep_current(tell)


def _hopeless(hub: Hub) -> Callable[[], None]:
    """Lead to the jobs that no host can run, if any; return what brings that up to date."""
    with Tag("p", classes="warn", role="status") as note:
        link = Tag("a", href=f"/jobs?state={UNPLACEABLE}")

    def tell() -> None:
        count = sum(row["unplaceable"] for row in hub.tables.jobs.rows.values())
        note.set_visibility(count > 0)
        link.set_text(f"{counted(count, 'job')} that no host can run")

    return tell


def _tiles(hub: Hub) -> Callable[[], None]:
    """Show the counts; return what brings them up to date."""
    numbers = {}
    with Tag("div", classes="tiles", role="list", aria_label="Jobs by state"):
        for state in STATES:
            with Tag("div", role="listitem"), Tag("a", classes="tile", href=f"/jobs?state={state}"):
                numbers[state] = Tag("div", "", "number")
                with Tag("div", classes="label"):
                    Tag("span", state, f"state {state}")
    with Tag("div", classes="stack", role="img", aria_label="the plan") as stack:
        shares = {name: Tag("i", classes=name) for name in ("completed", "running", "failed")}
        shares["rest"] = Tag("i")

    def tell() -> None:
        found = counts(hub.tables.jobs.rows.values())
        total = sum(found.values()) - found["cancelled"]
        for state, tag in numbers.items():
            tag.set_text(str(found[state]))
            tag.classes(replace="number" if found[state] else "number zero")
        parts = {name: found[name] for name in ("completed", "running", "failed")}
        parts["running"] += found["claimed"]
        parts["rest"] = max(0, total - sum(parts.values())) or (0 if total else 1)
        for name, count in parts.items():
            shares[name].style(f"flex: {count} 1 0")
        label = f"{found['completed']} of {total} jobs are completed, {found['failed']} failed"
        if stack.props["aria-label"] != label:
            stack.props.update({"aria-label": label, "title": label})

    return tell
