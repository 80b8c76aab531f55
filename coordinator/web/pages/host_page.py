"""One host: what it is, how it fares, what it may do, its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from nicegui import ui

from broker.protocol.messages import (
    AskDrain,
    AskResume,
    AskSnooze,
    Capability,
)
from broker.protocol.topics import is_host
from broker.system.machine import new_id
from coordinator.client.mirror import HostSeen
from coordinator.client.rows import Row
from coordinator.jobs.plan_entries import HostPolicy
from coordinator.jobs.reasons import BARRED
from coordinator.jobs.result_words import begins_again
from coordinator.ui import host_view
from coordinator.ui.facts import Value
from coordinator.ui.words import listed
from coordinator.web.frame import Site, Visit, frame, not_found
from coordinator.web.hub import Beat
from coordinator.web.pages.job_parts import its_jobs
from coordinator.web.parts import (
    Facts,
    Tag,
    call,
    card,
)

HOUR_S: Final = 3600.0
TOMORROW: Final = -1.0  # 08:00 by the browser's clock
SNOOZES: Final = {
    HOUR_S: "1 hour", 3 * HOUR_S: "3 hours", 8 * HOUR_S: "8 hours",
    TOMORROW: "until tomorrow, 08:00",
}  # fmt: skip
_ALLOWED: Final = {
    one.name: one.default for one in fields(HostPolicy) if one.name not in {"name", "description"}
}


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/host/{name}")
    def host(name: str) -> None:
        visit = site.visit()
        row = site.hub.tables.hosts.rows.get(name) if is_host(name) else None
        with frame(visit, name if row else "No such host", "/"):
            if row is None:
                text = "No host of this name has been heard of."
                not_found(visit, "No such host", text, "All hosts", "/")
            else:
                _Page(site, visit, row)


class _Page:
    def __init__(self, site: Site, visit: Visit, row: Row) -> None:
        self.site, self.visit, self.row = site, visit, row
        self.name: str = row["id"]
        self._bars_told: tuple[bool, bool] | None = None
        self._beat_told: Beat | None = None
        self._seen: HostSeen | None = None
        with Tag("div", classes="head"):
            Tag("h1", self.name)
            self._state = Tag("span", "", "state big", role="status", aria_live="polite")
            Tag("span", "", "grow")
            self._buttons = Tag("div", classes="filters")
        self._note = Tag("p", "", "warn")
        with Tag("div", classes="columns"):
            with Tag("div"):
                with card("Now"):
                    self._now = Facts()
                with card("What it is"):
                    self._what = Facts()
                    self._no_word = Tag("p", "It has not said yet.", "note")
            with Tag("div"):
                with card("Use"):
                    chart = ui.echart({}, renderer="svg").classes("chart").style("height: 220px")
                with card("What it may do"):
                    self._policy = Facts()
                    self._no_policy = Tag("p", "", "note")
        its_jobs(self.visit, lambda row: row["host"] == self.name, "host")
        self._chart_id = chart.id
        call(self.visit.client, "feedBeats", chart.id, [])
        self.visit.keep_current(self._tell)

    def _tell(self) -> None:
        host = self.site.hub.seen.hosts.get(self.name)
        row = self.site.hub.tables.hosts.rows.get(self.name)
        if host is None or row is None or (host is self._seen and row is self.row):
            return
        self._seen, self.row = host, row
        self._state.set_text(row["state"])
        self._state.classes(replace=f"state big tone-{row['tone']}")
        barred = row["barred"]
        self._note.say(f"It is given no new jobs: {barred}" if barred else "")
        self._now.tell(dict(host_view.now(host, row)))
        self._tell_what(host.capability, host.row.get("policy") or {})
        self._tell_beats()
        codes = {one["code"] for one in host.row.get("barred") or ()}
        bars = (bool(codes & BARRED), "snoozed" in codes)
        if self._bars_told != bars:
            self._bars_told = bars
            self._tell_buttons(drained=bars[0], snoozed=bars[1])

    def _tell_beats(self) -> None:
        """Feed the chart: with all heartbeats at first, with the newest one since."""
        beats = list(self.site.hub.beats.get(self.name) or ())
        new = beats if self._beat_told is None else beats[-1:]
        if new and new[-1] is not self._beat_told:
            self._beat_told = new[-1]
            call(self.visit.client, "feedBeats", self._chart_id, new)

    def _tell_what(self, made: Capability | None, policy: Mapping[str, Any]) -> None:
        described = str(policy.get("description") or "")
        self._what.tell(
            {"In the manifest": described, **dict(host_view.what_it_is(made) if made else ())}
        )
        self._no_word.set_visibility(made is None)
        said = allowed(policy)
        self._policy.tell(said)
        more = " but what it is" if described else ""
        self._no_policy.set_text(f"The manifest says nothing of it{more}.")
        self._no_policy.set_visibility(not any(said.values()))

    def _tell_buttons(self, *, drained: bool, snoozed: bool) -> None:
        self._buttons.clear()
        if not self.visit.may_act():
            return
        with self._buttons:
            if drained or snoozed:
                self.visit.act_button("Resume", self._resume)
            if not drained:
                self.visit.act_button("Snooze", self._snooze)
                self.visit.act_button("Drain", self._drain, "button danger")

    def _snooze(self) -> None:
        def choose() -> None:
            Tag("p", "For how long", id="for-how-long")
            self._for = ui.radio(SNOOZES, value=HOUR_S).props("aria-labelledby=for-how-long")
            self._tick_now()

        async def command() -> AskSnooze:
            for_s = float(self._for.value or HOUR_S)
            if for_s == TOMORROW:
                for_s = await self.visit.client.run_javascript("fleet.untilTomorrow()")
            return AskSnooze(id=new_id(), host=self.name, for_s=for_s, now=bool(self._now_.value))

        text = f"{self.name} is given no new jobs for a while, and jobs again by itself."
        self.visit.confirm(
            f"Snooze {self.name}?", text + self._becomes(), "Snooze the host", command, choose,
            danger=False,
        )  # fmt: skip

    def _tick_now(self) -> None:
        self._now_ = ui.checkbox("Give back at once what runs, to go on elsewhere")

    def _becomes(self) -> str:
        """Say what becomes of what it holds, and what to have it back at once would cost."""
        held = self.row["jobs"]
        if not held:
            return ""
        jobs = self._seen.row.get("jobs", ()) if self._seen else ()
        costs = "".join(f" {text}." for text in begins_again(jobs))
        return f" What it holds ({held}) is finished there.{costs}"

    def _drain(self) -> None:
        async def command() -> AskDrain:
            return AskDrain(id=new_id(), host=self.name, now=bool(self._now_.value))

        text = f"{self.name} is given no new jobs until somebody resumes it.{self._becomes()}"
        self.visit.confirm(
            f"Drain {self.name}?", text, "Drain the host", command, self._tick_now
        )  # fmt: skip

    def _resume(self) -> None:
        self.visit.confirm(
            f"Resume {self.name}?", f"{self.name} is given jobs again.", "Resume the host",
            AskResume(id=new_id(), host=self.name), danger=False,
        )  # fmt: skip


def allowed(policy: Mapping[str, Any]) -> dict[str, Value]:
    """Return what the manifest says that a host may do, by name, in words; empty: nothing."""
    return {
        name.replace("_", " "): "" if policy.get(name) == default else listed(policy.get(name))
        for name, default in _ALLOWED.items()
    }
