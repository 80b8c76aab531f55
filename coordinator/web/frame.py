"""What the pages share: the fleet, who may act, the frame around each page, and its banners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import quote

from nicegui import Client, ui

from broker.clock import Clock
from broker.errors import FleetError
from broker.protocol.messages import AskPause, OperatorRequest
from broker.system.machine import new_id
from coordinator.jobs.waiting_words import low_disk
from coordinator.web.artifacts import Artifacts
from coordinator.web.hub import Hub, News
from coordinator.web.parts import Tag, ask, button, link, notify
from coordinator.web.security import Sessions, session_token
from coordinator.web.settings import WebSettings

PAGES: Final = (
    ("/", "Overview"), ("/jobs", "Jobs"), ("/curves", "Curves"), ("/timeline", "Timeline"),
    ("/programs", "Programs"),
)  # fmt: skip
_LINKS: Final = {"broker": "no broker", "coordinator": "no coordinator", "answer": "no answer"}


@dataclass(slots=True)
class Site:
    """The whole web page."""

    hub: Hub
    sessions: Sessions
    settings: WebSettings
    artifacts: Artifacts
    clock: Clock

    def visit(self) -> Visit:
        """Return who has opened the page that is being made, of the fleet as it is now."""
        self.hub.catch_up()
        client = ui.context.client
        visit = Visit(self, client, session_token(client.request.headers.get("cookie", "")))
        if self.settings.private:
            visit.follow(visit.end_when_over)
        return visit


@dataclass(slots=True)
class Visit:
    """One open page, and whose browser it is in. `dialogs` is where questions are asked."""

    site: Site
    client: Client
    token: str | None
    dialogs: Tag = field(init=False)
    _ends: list[Callable[[], None]] = field(default_factory=list)
    _ending: asyncio.Task[None] | None = None
    _acts: list[Tag] = field(default_factory=list)

    def may_act(self) -> bool:
        """Whether this browser may give commands now; asked again at each of them."""
        return self.site.sessions.is_open(self.token, self.site.clock().mono_s)

    def follow(self, listener: Callable[[News], object]) -> None:
        """Tell the page what changes, until it is closed."""
        end = self.site.hub.follow(listener)
        self._ends.append(end)
        self.client.on_delete(end)

    def keep_current(self, tell: Callable[[], object]) -> None:
        """Call `tell` now, and whenever something has changed."""
        tell()
        self.follow(lambda _: tell())

    def end_when_over(self, _: News) -> None:
        """Show no more of a private page once its session has ended, by a logout or by its time."""
        if not self.may_act():
            for end in self._ends:
                end()
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        client, to = self.client, json.dumps(self.login_path())
        await client.connected()  # the guard may have let it in already; NiceGUI ends this wait
        with suppress(TimeoutError):  # the browser has gone, or was too slow to say that it goes
            await client.run_javascript(f"(setTimeout(() => location.assign({to})), true)")
        if not client.is_deleted:
            client.delete()

    def login_path(self) -> str:
        """Return where one logs in to come back to this page."""
        return f"/login?next={quote(self.client.request.url.path)}"

    def act_button(
        self, text: str, act: Callable[[], Awaitable[None] | None], classes: str = "button"
    ) -> Tag:
        """Return a button for a command, which is disabled during an outage."""
        made = button(text, act, classes)
        self._acts.append(made)
        self.enable_acts()
        return made

    def enable_acts(self) -> None:
        """Enable the buttons for commands, or disable them, as the fleet is."""
        self._acts = [one for one in self._acts if not one.is_deleted]
        for one in self._acts:
            one.props.set_bool("disabled", self.site.hub.outage is not None)

    def confirm(
        self, title: str, text: str, verb: str,
        request: OperatorRequest | Callable[[], Awaitable[OperatorRequest]],
        fields: Callable[[], None] | None = None, *, danger: bool = True,
    ) -> None:  # fmt: skip
        """Ask whether to give a command; a callable makes it of what was chosen in `fields`."""

        async def act() -> None:
            made = await request() if callable(request) else request
            await self._command(made, f"{title.rstrip('?')}: done")

        ask(self.dialogs, title, text, verb, act, fields, danger=danger)

    async def _command(self, request: OperatorRequest, done: str) -> None:
        """Give a command in this process's name, and say what came of it."""
        hub = self.site.hub
        error = ""
        if not self.may_act():
            error = "log in first; this session is over"
        elif hub.outage is not None:
            error = f"nothing was done: {hub.outage.told(hub.seen.coordinator)[0].lower()}"
        else:
            try:
                await hub.ask(request)
                hub.watcher.refresh()
            except FleetError as refused:
                error = str(refused)
        notify(self.client, error or done, bad=bool(error))


@contextmanager
def frame(visit: Visit, title: str, active: str = "") -> Iterator[None]:
    """Put the bar and the page's main part around what is made within."""
    ui.page_title(f"{title} · training fleet")
    ui.add_body_html("<script>fleet.early()</script>")
    # Quasar's page is a <main> around everything, the bar too.
    if (around := visit.client.content.parent_slot) is not None:
        around.parent.props["role"] = "none"
    visit.dialogs = Tag("div")
    Tag("a", "Skip to the page", "skip", href="#main")
    with Tag("header", classes="top", role="banner"):
        link("training fleet", "/", "brand")
        _plan_name(visit)
        with Tag("nav", aria_label="Pages"):
            for path, name in PAGES:
                Tag("a", name, href=path, aria_current="page" if path == active else None)
        with Tag("div", classes="who"):
            _who(visit)
    visit.keep_current(visit.enable_acts)
    show_banners(visit)
    with Tag("div", id="main", classes="page", role="main", tabindex="-1"):
        yield


def not_found(visit: Visit, title: str, text: str, back: str, path: str) -> None:
    """Say that there is nothing here, and lead back; a program sees a 404."""
    visit.client.status_code = 404
    Tag("h1", title)
    Tag("p", text, "note")
    link(back, path, "button")


def _plan_name(visit: Visit) -> None:
    """Show what the manifest calls the plan; nothing where it has no name."""
    shown = Tag("span", "", "plan-name")

    def tell() -> None:
        summary = visit.site.hub.seen.summary
        name = summary.plan if summary else ""
        shown.say(name)

    visit.keep_current(tell)


def _who(visit: Visit) -> None:
    hub = visit.site.hub
    connected = Tag("span", role="status", aria_live="polite")

    def tell() -> None:
        outage = hub.outage
        connected.set_text("live" if outage is None else _LINKS.get(outage.what, "asking …"))
        connected.classes(replace="link-state" if outage is None else "link-state off")

    visit.keep_current(tell)
    if visit.site.sessions.password is None:
        Tag("span", f"{hub.watcher.user} · read only", "name")
    elif visit.may_act():
        Tag("span", hub.watcher.user, "name")
        with Tag("form", method="post", action="/logout"):
            Tag("button", "Log out", "plain-button", type="submit")
    else:
        link("Log in", visit.login_path(), "plain-button")
    Tag("button", "◐", "plain-button", type="button", id="theme", aria_label="colours")


class Said(NamedTuple):
    """What a banner says, and since when it is so, where that is known."""

    title: str
    text: str
    since_ms: int | None = None


def show_banners(visit: Visit) -> None:
    """Show what is not as it should be, while it is not."""
    hub = visit.site.hub
    # The style sheet takes the colours of what is old.
    _banner(visit, "banner alarm outage", lambda: _outage(hub))
    with _banner(visit, "banner", lambda: _paused(hub)):
        if visit.may_act():
            Tag("span", "", "grow")
            visit.act_button("Give jobs out again", lambda: ask_pause(visit, off=True))
    _banner(visit, "banner alarm", lambda: _low_disk(hub))


def _outage(hub: Hub) -> Said | None:
    outage = hub.outage
    if outage is None or outage.what == "first":
        return None  # before the first answer nothing is wrong
    since_ms = hub.epoch_ms(outage.since_s)
    title, remedy = outage.told(hub.seen.coordinator)
    since = "Since before this page was served. " if since_ms is None else ""
    return Said(title, f"{since}What is shown may be old. {remedy}", since_ms)


def _paused(hub: Hub) -> Said | None:
    why = hub.seen.paused
    return Said("Paused: no new jobs are given out", why) if why else None


def _low_disk(hub: Hub) -> Said | None:
    """Say that results wait for room on the coordinator's disk, while some do."""
    lack = None if hub.seen.summary is None else hub.seen.summary.no_room
    text = "" if lack is None else f"{low_disk(lack.model_dump())}."
    return Said("The coordinator's disk is low", text) if text else None


def _banner(visit: Visit, classes: str, words: Callable[[], Said | None]) -> Tag:
    """Return a banner that is shown while there is something to say."""
    with Tag("div", classes=classes) as banner:
        # The alert alone is said aloud: the time beside it changes every few seconds.
        title = Tag("b", role="alert")
        since = Tag("time", data_way="since")
        text = Tag("span")

    def tell() -> None:
        said = words()
        banner.set_visibility(said is not None)
        if said is not None:
            title.set_text(said.title)
            text.set_text(said.text)
            since.props["data-ms"] = said.since_ms or 0
            since.set_visibility(said.since_ms is not None)

    visit.keep_current(tell)
    return banner


def ask_pause(visit: Visit, *, off: bool = False) -> None:
    """Ask whether the fleet is to be paused, or to go on."""
    if off:
        title, verb = "Give jobs out again?", "Give jobs out"
        text = "Whatever is pending, and has a host that is free, starts at once."
    else:
        title, verb = "Pause the fleet?", "Pause the fleet"
        text = "No host is given a new job until somebody lifts it. What runs goes on."
    visit.confirm(title, text, verb, AskPause(id=new_id(), off=off), danger=not off)
