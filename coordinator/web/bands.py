"""What stands across every page when it is not as usual: an outage, a pause, a low disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.protocol.messages import AskPause
from broker.sentences import counted
from broker.system.machine import new_id
from coordinator.client.contact import Outage
from coordinator.scheduler.explanation_layout import no_room
from coordinator.web.hub import News
from coordinator.web.parts import Tag

if TYPE_CHECKING:
    from coordinator.web.frame import Visit

_WHAT: Final = {
    "broker": "the broker cannot be reached",
    "coordinator": "the coordinator is gone",
    "answer": "the coordinator does not answer",
    "first": "the coordinator has yet to answer",
}
_REST: Final = {
    "broker": "It is tried again all the time.",
    "coordinator": "Start it (fleet coordinator); what runs goes on meanwhile.",
    "answer": "Its log says what keeps it (a full disk); what runs goes on meanwhile.",
}


def outage_words(outage: Outage) -> str:
    """Say what is missing."""
    return _WHAT[outage.what]


class OutageBand:
    """Says what is missing, since when, and that all the rest is old."""

    def __init__(self, visit: Visit) -> None:
        """Make it, and have it follow."""
        self._hub = visit.site.hub
        self._known: Outage | None = None
        self._main: Tag | None = None
        self._band = Tag("div", classes="band alarm")
        self._tell()
        visit.follow(lambda _: self._tell())

    def mark(self, main: Tag) -> None:
        """Mark what is shown as old while there is an outage."""
        self._main = main
        self._mark()

    def _tell(self) -> None:
        outage = self._hub.outage
        if outage is not None and outage.what == "first":
            outage = None  # an answer is on its way
        self._band.set_visibility(outage is not None)
        if outage == self._known:
            return
        self._known = outage
        self._band.clear()
        if outage is not None:
            with self._band:
                self._say(outage)
        self._mark()

    def _say(self, outage: Outage) -> None:
        words = outage_words(outage)
        # The alert alone is said aloud: the time beside it changes every few seconds.
        Tag("b", words[0].upper() + words[1:], role="alert")
        with Tag("span"):
            since_ms = self._hub.epoch_ms(outage.since_s)
            if since_ms is None:
                Tag("span", "since before this page was served. ")
            else:
                Tag("span", "since ")
                Tag("time", "", data_ms=since_ms, data_since="1")
                Tag("span", ". ")
            more = f" ({outage.why})" if outage.why else ""
            Tag("span", f"What is shown may be old. {_REST[outage.what]}{more}")

    def _mark(self) -> None:
        if self._main is not None:
            self._main.classes(**({"add": "old"} if self._known else {"remove": "old"}))


def show_outage(visit: Visit) -> OutageBand:
    """Make the band of a page."""
    return OutageBand(visit)


def show_pause(visit: Visit) -> None:
    """Say that the fleet is paused while it is, and how that is lifted."""
    hub = visit.site.hub
    with Tag("div", classes="band", role="status") as band:
        Tag("b", "Paused: no new jobs are given out")
        words = Tag("span")
        if visit.may_act():
            Tag("span", "", "grow")
            visit.act_button("Give jobs out again", lambda: ask_pause(visit, off=True))

    def tell(_: News | None = None) -> None:
        why = hub.paused
        band.set_visibility(bool(why))
        if why and words.text != why:
            words.set_text(why)

    tell()
    visit.follow(tell)


def show_low_disk(visit: Visit) -> None:
    """Say that results wait for room on the coordinator's disk, while some do."""
    hub = visit.site.hub
    with Tag("div", classes="band alarm", role="status") as band:
        Tag("b", "The coordinator's disk is low")
        words = Tag("span")

    def tell(_: News | None = None) -> None:
        lack = None if hub.seen.summary is None else hub.seen.summary.no_room
        band.set_visibility(lack is not None)
        if lack is not None:
            said = no_room(lack.model_dump(), several=lack.jobs > 1)
            text = f"{counted(lack.jobs, 'finished job')} {said}."
            if words.text != text:
                words.set_text(text)

    tell()
    visit.follow(tell)


def ask_pause(visit: Visit, *, off: bool = False) -> None:
    """Ask whether the fleet is to be paused, or to go on."""
    if off:
        title, verb = "Give jobs out again?", "Give jobs out"
        text = "Whatever is pending, and has a host that is free, starts at once."
    else:
        title, verb = "Pause the fleet?", "Pause the fleet"
        text = "No host is given a new job until somebody lifts it. What runs goes on."
    visit.confirm(title, text, verb, lambda _: AskPause(id=new_id(), off=off), danger=not off)
