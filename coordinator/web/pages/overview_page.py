"""The first page: how many jobs are in which state, what runs now, and every host."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from broker.sentences import counted
from coordinator.web.bands import ask_pause
from coordinator.web.frame import Site, frame
from coordinator.web.hub import Hub, News
from coordinator.web.parts import Tag, link
from coordinator.web.rows import HELD, STATES, UNPLACEABLE, Row, counts
from coordinator.web.tables import Part, as_rows, feed, grid, host_columns, running_columns

# What is shown at an address that is none of ours.


def missing(site: Site) -> Callable[[], None]:
    """Return what makes the page."""

    def page() -> None:
        visit = site.visit()
        visit.client.status_code = 404
        with frame(visit, "No such page"):
            Tag("h1", "No such page")
            Tag("p", "There is nothing at this address; it may be mistyped.", "note")
            link("The overview", "/", "button")

    return page


RUNNING_ROWS = 10
# As high as its rows, but no higher than the window, except on a phone or a very low one.
HOSTS_HEIGHT = f"min(var(--hosts-most), {as_rows(400)})"


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/")
    def overview() -> None:
        visit = site.visit()
        with frame(visit, "Overview", "/"):
            Tag("h1", "Overview", "hidden-text")
            hub = site.hub
            tell_counts = _tiles(hub)
            tell_hopeless = _hopeless(hub)
            jobs, hosts = hub.tables.jobs.rows, hub.tables.hosts.rows
            part = Part(_is_held, list(jobs.values()))
            with Tag("section", classes="card flush", aria_labelledby="running-title"):
                with Tag("div", classes="head"):
                    with Tag("h2", "Running now", id="running-title"):
                        running = Tag("small", "")
                    if visit.may_act():
                        Tag("span", "", "grow")
                        pause = visit.act_button("Pause the fleet", lambda: ask_pause(visit))
                        visit.follow(lambda _: pause.set_visibility(not hub.paused))
                        pause.set_visibility(not hub.paused)
                now = grid(
                    "Jobs that run now", running_columns(), list(part.rows.values()),
                    height=as_rows(RUNNING_ROWS), empty="nothing runs now",
                )  # fmt: skip
            with Tag("section", classes="card flush", aria_labelledby="hosts-title"):
                with Tag("h2", "Hosts", id="hosts-title"):
                    online = Tag("small", "")
                all_hosts = grid(
                    "Hosts", host_columns(), list(hosts.values()),
                    height=HOSTS_HEIGHT,
                    empty="no host is known yet; start an agent with: fleet agent",
                )  # fmt: skip

            def tell() -> None:
                tell_counts()
                tell_hopeless()
                _say(running, f" {len(part.rows)}" if part.rows else " nothing")
                alive = sum(row["online"] for row in hosts.values())
                _say(online, f" {alive} of {len(hosts)} online")

            def on_news(news: News) -> None:
                if news.jobs:
                    feed(now, part.take(news.jobs))
                feed(all_hosts, news.hosts)
                if news.jobs or news.hosts:
                    tell()

            tell()
            visit.follow(on_news)


def _is_held(row: Row) -> bool:
    return row["state"] in HELD


def _say(tag: Tag, text: str) -> None:
    if tag.text != text:
        tag.set_text(text)


def _hopeless(hub: Hub) -> Callable[[], None]:
    """Lead to the jobs that no host can run, if any; return what brings that up to date."""
    with Tag("p", classes="warn", role="status") as note:
        link = Tag("a", href=f"/jobs?state={UNPLACEABLE}")

    def tell() -> None:
        count = sum(row["unplaceable"] for row in hub.tables.jobs.rows.values())
        note.set_visibility(count > 0)
        _say(link, f"{counted(count, 'job')} that no host can run")

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
            _say(tag, str(found[state]))
            tag.classes(**({"remove": "zero"} if found[state] else {"add": "zero"}))
        running = found["running"] + found["claimed"]
        parts = {"completed": found["completed"], "running": running, "failed": found["failed"]}
        parts["rest"] = max(0, total - sum(parts.values())) or (0 if total else 1)
        for name, count in parts.items():
            shares[name].style(f"flex: {count} 1 0")
        label = f"{found['completed']} of {total} jobs are completed, {found['failed']} failed"
        if stack.props.get("aria-label") != label:
            stack.props["aria-label"] = label
            stack.props["title"] = label
            stack.update()

    return tell
