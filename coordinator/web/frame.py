"""What the pages share: the fleet, who may act, and the frame around each page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from nicegui import Client, ui

from broker.clock import Clock
from broker.errors import FleetError
from broker.protocol.messages import OperatorRequest
from coordinator.web.artifacts import Artifacts
from coordinator.web.bands import outage_words, show_low_disk, show_outage, show_pause
from coordinator.web.hub import Hub, News
from coordinator.web.parts import Tag, button, link, notify
from coordinator.web.question import Answers, Question
from coordinator.web.security import Door, session_word
from coordinator.web.settings import WebSettings

PAGES: Final = (
    ("/", "Overview"), ("/jobs", "Jobs"), ("/curves", "Curves"), ("/timeline", "Timeline"),
)  # fmt: skip


@dataclass(slots=True)
class Site:
    """The whole web page."""

    hub: Hub
    door: Door
    settings: WebSettings
    artifacts: Artifacts
    clock: Clock

    def visit(self) -> Visit:
        """Return who has opened the page that is being made, of the fleet as it is now."""
        self.hub.catch_up()
        client = ui.context.client
        visit = Visit(self, client, session_word(client.request.headers.get("cookie", "")))
        if self.settings.private:
            visit.follow(visit.end_when_over)
        return visit


@dataclass(slots=True)
class Visit:
    """One open page, and whose browser it is in."""

    site: Site
    client: Client
    word: str | None
    _question: Question | None = None
    _ends: list[Callable[[], None]] = field(default_factory=list)
    _ending: asyncio.Task[None] | None = None
    _acts: list[Tag] = field(default_factory=list)
    _is_able: bool = True

    def may_act(self) -> bool:
        """Whether this browser may give commands now; asked again at each of them."""
        site = self.site
        return site.hub.is_operator() and self._is_known()

    def _is_known(self) -> bool:
        return self.site.door.is_open(self.word, self.site.clock().mono_s)

    def follow(self, listener: Callable[[News], object]) -> None:
        """Tell the page what changes, until it is closed."""
        end = self.site.hub.follow(listener)
        self._ends.append(end)
        self.client.on_delete(end)

    def end_when_over(self, _: News) -> None:
        """Show no more of a private page once its session has ended, by a logout or by its time."""
        if not self._is_known():
            for end in self._ends:
                end()
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        client, to = self.client, json.dumps(self.login_path())
        await client.connected()  # the guard may have let it in already; NiceGUI ends this wait
        with suppress(TimeoutError):  # a browser that does not answer is not waited for
            await client.run_javascript(f"(setTimeout(() => location.assign({to})), true)")
        if not client.is_deleted:
            client.delete()

    def login_path(self) -> str:
        """Return where one logs in to come back to this page."""
        return f"/login?next={quote(self.client.request.url.path)}"

    def act_button(
        self, text: str, act: Callable[[], Awaitable[None] | None], classes: str = "button"
    ) -> Tag:
        """Return a button for a command: it is disabled while nobody would carry that out."""
        made = button(text, act, classes)
        self._is_able = self.site.hub.outage is None
        self._acts = [*(one for one in self._acts if not one.is_deleted), made]
        _enable(made, on=self._is_able)
        return made

    def tell_acts(self, _: News) -> None:
        """Enable the buttons for commands, or disable them, as the fleet is."""
        is_able = self.site.hub.outage is None
        if is_able is not self._is_able:
            self._is_able = is_able
            for one in self._acts:
                if not one.is_deleted:
                    _enable(one, on=is_able)

    def confirm(
        self, title: str, text: str, verb: str, request: Callable[[Answers], OperatorRequest],
        fields: Callable[[], None] | None = None, *, danger: bool = True,
    ) -> None:  # fmt: skip
        """Ask whether it is meant, and have it done; `request` is made of what `fields` say."""
        if self._question is None:
            with self.client.content:
                self._question = Question()

        async def act(answers: Answers) -> None:
            await self.command(request(answers), f"{title.rstrip('?')}: done")

        self._question.ask(title, text, verb, act, fields, danger=danger)

    async def command(self, request: OperatorRequest, done: str) -> None:
        """Give a command in this process's name, and say what came of it."""
        if not self.may_act():
            notify(self.client, "log in first; this session is over", bad=True)
            return
        if (outage := self.site.hub.outage) is not None:
            notify(self.client, f"nothing was done: {outage_words(outage)}", bad=True)
            return
        try:
            await self.site.hub.ask(request)
        except FleetError as error:
            notify(self.client, str(error), bad=True)
            return
        self.site.hub.watcher.refresh()
        notify(self.client, done)


@contextmanager
def frame(visit: Visit, title: str, active: str = "") -> Iterator[Tag]:
    """Put the bar and the page's main part around what is made within."""
    ui.page_title(f"{title} · training fleet")
    ui.add_body_html(_bar_before(active))
    # Quasar's page is a <main> around everything, the bar too.
    if (around := visit.client.content.parent_slot) is not None:
        around.parent.props["role"] = "none"
    Tag("a", "Skip to the page", "skip", href="#main")
    with Tag("header", classes="top", role="banner"):
        link("training fleet", "/", "brand")
        _plan_name(visit)
        with Tag("nav", aria_label="Pages"):
            for path, name in PAGES:
                Tag("a", name, href=path, aria_current="page" if path == active else None)
        with Tag("div", classes="who"):
            _who(visit)
    visit.follow(visit.tell_acts)
    outage = show_outage(visit)
    show_pause(visit)
    show_low_disk(visit)
    with Tag("div", id="main", classes="page", role="main", tabindex="-1") as main:
        outage.mark(main)
        yield main
    Tag("div", classes="notice", id="notice", role="status", aria_live="polite")


def _bar_before(active: str) -> str:
    """Return the bar as it is painted at once, until the scripts are there and make the real one.

    All of its words are ours.
    """
    names = "".join(
        f"<a{' aria-current=page' if path == active else ''}>{name}</a>" for path, name in PAGES
    )
    return (
        '<div class="before" aria-hidden="true"><div class="top">'
        f'<span class="brand">training fleet</span><nav>{names}</nav></div></div>'
        "<script>fleet.early()</script>"
    )


def _plan_name(visit: Visit) -> None:
    """Show what the manifest calls the plan; nothing where it has no name."""
    shown = Tag("span", "", "plan-name")

    def tell(_: Any = None) -> None:
        summary = visit.site.hub.seen.summary
        name = summary.plan if summary else ""
        if shown.text != name:
            shown.set_text(name)
            shown.props["title"] = name
            shown.update()
        shown.set_visibility(bool(name))

    tell()
    visit.follow(tell)


def _who(visit: Visit) -> None:
    hub = visit.site.hub
    connected = Tag("span", classes="link-state", role="status", aria_live="polite")

    def tell(_: Any = None) -> None:
        text = _connection(hub)
        if connected.text != text:
            connected.set_text(text)
            connected.classes(**({"remove": "off"} if text == "live" else {"add": "off"}))

    tell()
    visit.follow(tell)
    if not hub.is_operator() or visit.site.door.password is None:
        Tag("span", f"{hub.user} · read only", "name")
    elif visit.may_act():
        Tag("span", hub.user, "name")
        with Tag("form", method="post", action="/logout"):
            Tag("button", "Log out", "plain-button", type="submit")
    else:
        link("Log in", visit.login_path(), "plain-button")
    Tag("button", "◐", "plain-button", type="button", id="theme", aria_label="colours")


def _connection(hub: Hub) -> str:
    """Say in a few words whether what is shown is current."""
    if hub.outage is None:
        return "live"
    return {"broker": "no broker", "coordinator": "no coordinator", "answer": "no answer"}.get(
        hub.outage.what, "asking …"
    )


def _enable(made: Tag, *, on: bool) -> None:
    if on:
        made.props.pop("disabled", None)
    else:
        made.props["disabled"] = True
    made.update()
