"""Whether what a client shows is current, by the events alone."""

from __future__ import annotations

from typing import Any

from broker.protocol.link_events import Disconnected
from broker.protocol.messages import Status
from coordinator.client.contact import SILENT_S, Contact, Outage


def _told(state: Any) -> Status:
    return Status(state=state, session="s", instance="i", boot_id="b")


def _live(at_s: float) -> Contact:
    contact = Contact()
    contact.on_start(at_s - 2.0)
    contact.on_connected()
    contact.on_asked(at_s - 1.0)
    contact.on_answered(at_s)
    return contact


def test_it_is_current_from_the_first_answer_on() -> None:
    contact = Contact()
    contact.on_start(5.0)
    assert contact.outage(6.0) == Outage("broker", 5.0, "connecting")
    contact.on_connected()
    contact.on_asked(7.0)
    assert contact.outage(7.1) == Outage("first", None)
    contact.on_answered(7.2)
    assert contact.outage(7.3) is None


def test_a_broker_is_gone_since_it_was_lost_and_not_since_the_last_try() -> None:
    contact = _live(10.0)
    contact.on_disconnected(Disconnected("the connection was closed"), 20.0)
    contact.on_disconnected(Disconnected("connection refused"), 30.0)
    assert contact.outage(31.0) == Outage("broker", 20.0, "connection refused")
    contact.on_connected()
    assert contact.outage(32.0) == Outage("first", None)


def test_a_coordinator_that_says_nothing_is_silent_since_its_last_answer() -> None:
    contact = _live(10.0)
    contact.on_asked(20.0)
    contact.on_asked(25.0)
    assert contact.outage(20.0 + SILENT_S) is None
    assert contact.outage(20.1 + SILENT_S) == Outage("answer", 10.0)
    contact.on_answered(60.0)
    assert contact.outage(90.0) is None
    never = Contact()  # since it was asked: nobody knows for how long it was so before
    never.on_start(1.0)
    never.on_connected()
    never.on_asked(2.0)
    never.on_asked(5.0)
    assert never.outage(2.1 + SILENT_S) == Outage("answer", 2.0)


def test_a_broker_that_was_gone_is_no_silence_of_the_coordinator() -> None:
    """What was asked of it meanwhile could not reach it."""
    contact = _live(10.0)
    contact.on_asked(20.0)
    contact.on_disconnected(Disconnected("lost"), 21.0)
    contact.on_connected()
    contact.on_asked(60.0)
    assert contact.outage(61.0) == Outage("first", None)


def test_a_coordinator_that_went_is_gone_since_then() -> None:
    """One that was gone before anybody looked, since an unknown time; its birth ends it."""
    contact = _live(10.0)
    contact.on_coordinator(_told("offline"), 20.0)
    contact.on_coordinator(_told("offline"), 30.0)
    assert contact.outage(31.0) == Outage("coordinator", 20.0)
    contact.on_coordinator(_told("online"), 40.0)
    assert contact.outage(41.0) is None
    late = Contact()
    late.on_start(1.0)
    late.on_connected()
    late.on_coordinator(_told("offline"), 2.0)
    assert late.outage(3.0) == Outage("coordinator", None)
    late = _live(10.0)
    late.on_coordinator(_told("offline"), 11.0)
    late.on_answered(12.0)
    assert late.outage(13.0) is None, "a late will does not outlast an answer"
