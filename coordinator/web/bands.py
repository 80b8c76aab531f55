"""The bands across every page: an outage, a pause, a low disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.protocol.messages import AskPause
from broker.sentences import counted
from broker.system.machine import new_id
from coordinator.scheduler.explanation_layout import no_room
from coordinator.web.hub import Hub
from coordinator.web.parts import Tag

if TYPE_CHECKING:
    from coordinator.web.frame import Visit

# What is missing, and what is done about it.
OUTAGES: Final = {
    "broker": ("The broker cannot be reached", "It is tried again all the time."),
    "coordinator": (
        "The coordinator is gone", "Start it (fleet coordinator); what runs goes on meanwhile."
    ),
    "answer": (
        "The coordinator does not answer",
        "Its log says what keeps it (a full disk); what runs goes on meanwhile.",
    ),
    "first": ("The coordinator has yet to answer", ""),
}  # fmt: skip


class Said(NamedTuple):
    """What a band says, and since when it is so, where that is known."""

    title: str
    text: str
    since_ms: int | None = None


def show_bands(visit: Visit) -> None:
    """Show what is not as it should be, while it is not."""
    hub = visit.site.hub
    # The style sheet takes the colours of what is old.
    _band(visit, "band alarm outage", lambda: _outage(hub))
    title = "Paused: no new jobs are given out"
    with _band(visit, "band", lambda: Said(title, hub.paused) if hub.paused else None):
        if visit.may_act():
            Tag("span", "", "grow")
            visit.act_button("Give jobs out again", lambda: ask_pause(visit, off=True))
    _band(visit, "band alarm", lambda: _low_disk(hub))


def _outage(hub: Hub) -> Said | None:
    outage = hub.outage
    if outage is None or outage.what == "first":
        return None  # before the first answer nothing is wrong
    since_ms = hub.epoch_ms(outage.since_s)
    title, remedy = OUTAGES[outage.what]
    since = "Since before this page was served. " if since_ms is None else ""
    why = f" ({outage.why})" if outage.why else ""
    return Said(title, f"{since}What is shown may be old. {remedy}{why}", since_ms)


def _low_disk(hub: Hub) -> Said | None:
    """Say that results wait for room on the coordinator's disk, while some do."""
    lack = None if hub.seen.summary is None else hub.seen.summary.no_room
    if lack is None:
        return None
    said = no_room(lack.model_dump(), several=lack.jobs > 1)
    return Said("The coordinator's disk is low", f"{counted(lack.jobs, 'finished job')} {said}.")


def _band(visit: Visit, classes: str, words: Callable[[], Said | None]) -> Tag:
    """Return a band that is shown while there is something to say."""
    with Tag("div", classes=classes) as band:
        # The alert alone is said aloud: the time beside it changes every few seconds.
        title = Tag("b", role="alert")
        since = Tag("time", data_way="since")
        text = Tag("span")

    def tell() -> None:
        said = words()
        band.set_visibility(said is not None)
        if said is not None:
            title.set_text(said.title)
            text.set_text(said.text)
            since.props["data-ms"] = said.since_ms or 0
            since.set_visibility(said.since_ms is not None)

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
    visit.confirm(title, text, verb, AskPause(id=new_id(), off=off), danger=not off)
