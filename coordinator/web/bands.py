"""The bands across every page: an outage, a pause, a low disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.protocol.messages import AskPause
from broker.sentences import counted
from broker.system.machine import new_id
from coordinator.client.contact import Outage
from coordinator.scheduler.explanation_layout import no_room
from coordinator.web.hub import Hub
from coordinator.web.parts import Moment, Tag, show

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


def show_outage(visit: Visit) -> None:
    """Say what is missing, and since when; the style sheet takes the colours of what is old."""
    hub = visit.site.hub
    band = Tag("div", classes="band alarm outage")
    known: Outage | None = None

    def tell() -> None:
        nonlocal known
        # Before the first answer nothing is wrong.
        outage = hub.outage if hub.outage and hub.outage.what != "first" else None
        band.set_visibility(outage is not None)
        if outage != known:
            band.clear()
            if outage is not None:
                with band:
                    _say_outage(hub, outage)
        known = outage

    visit.keep_current(tell)


def _say_outage(hub: Hub, outage: Outage) -> None:
    words = outage_words(outage)
    # The alert alone is said aloud: the time beside it changes every few seconds.
    Tag("b", words[0].upper() + words[1:], role="alert")
    more = f" ({outage.why})" if outage.why else ""
    rest = f". What is shown may be old. {_REST[outage.what]}{more}"
    with Tag("span"):
        since_ms = hub.epoch_ms(outage.since_s)
        Tag("span", "since before this page was served" if since_ms is None else "since ")
        if since_ms is not None:
            show(Moment(since_ms, "since"))
        Tag("span", rest)


def show_pause(visit: Visit) -> None:
    """Say that the fleet is paused while it is, and how that is lifted."""
    with _band(visit, "band", "Paused: no new jobs are given out", lambda: visit.site.hub.paused):
        if visit.may_act():
            Tag("span", "", "grow")
            visit.act_button("Give jobs out again", lambda: ask_pause(visit, off=True))


def show_low_disk(visit: Visit) -> None:
    """Say that results wait for room on the coordinator's disk, while some do."""
    hub = visit.site.hub

    def words() -> str:
        lack = None if hub.seen.summary is None else hub.seen.summary.no_room
        if lack is None:
            return ""
        said = no_room(lack.model_dump(), several=lack.jobs > 1)
        return f"{counted(lack.jobs, 'finished job')} {said}."

    _band(visit, "band alarm", "The coordinator's disk is low", words)


def _band(visit: Visit, classes: str, title: str, words: Callable[[], str]) -> Tag:
    """Return a band that is shown while there are words to say."""
    with Tag("div", classes=classes, role="status") as band:
        Tag("b", title)
        said = Tag("span")

    def tell() -> None:
        text = words()
        band.set_visibility(bool(text))
        said.set_text(text)

    visit.keep_current(tell)
    return band


def ask_pause(visit: Visit, *, off: bool = False) -> None:
    """Ask whether the fleet is to be paused, or to go on."""
    if off:
        title, verb = "Give jobs out again?", "Give jobs out"
        text = "Whatever is pending, and has a host that is free, starts at once."
    else:
        title, verb = "Pause the fleet?", "Pause the fleet"
        text = "No host is given a new job until somebody lifts it. What runs goes on."
    visit.confirm(title, text, verb, lambda _: AskPause(id=new_id(), off=off), danger=not off)
