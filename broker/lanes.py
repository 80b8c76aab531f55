"""In which lane of a mailbox what a link tells waits, and what it takes the place of there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.connection import Inbox
from broker.mailbox import Lane, Letter, Mailbox
from broker.messages import MAX_CHUNK_BYTES
from broker.wire import Incoming, LinkEvent

# As we encode them. Nobody waits for what comes of these, and another report follows soon.
_PATIENT: Final = (b'{"v":1,"type":"accepted",', b'{"v":1,"type":"started",')


def lane_of(event: LinkEvent) -> tuple[Lane, str | None]:
    """Return the mailbox lane of a link event, and the key by which it replaces older ones."""
    if not isinstance(event, Incoming):
        return Lane.LOCAL, None
    topic = event.topic
    leaf = topic.rsplit("/", 1)[-1]
    if leaf in {"heartbeat", "capability", "progress"}:
        return Lane.LATEST, topic
    if leaf == "response" and event.payload.startswith(_PATIENT):
        return Lane.PATIENT, None
    if leaf == "log" or "/chunk/" in topic:
        return Lane.BULK, None
    if leaf == "request" and "/operator/" in topic:
        # Whoever waits asks again and again; a signed command is another each time.
        return Lane.CONTROL, f"{topic} {hash(event.payload)}"
    return Lane.CONTROL, None


def _as_it_is(event: LinkEvent) -> LinkEvent:
    return event


def feed(mailbox: Mailbox[Any], shorten: Callable[[LinkEvent], LinkEvent] = _as_it_is) -> Inbox:
    """Return a function that puts link events into `mailbox`, each in its lane.

    `shorten` may put a shorter event of the same topic in the place of each.
    """

    def put(*events: LinkEvent) -> None:
        mailbox.put_all([_letter(shorten(event)) for event in events])

    return put


def _letter(event: LinkEvent) -> Letter[LinkEvent]:
    if not isinstance(event, Incoming):
        return event, *lane_of(event), 0
    if len(event.payload) > MAX_CHUNK_BYTES:
        event = Incoming(event.topic, event.payload[:0], event.retained)
    # A topic may have 64 KiB: beside a few bytes of payload it is what counts.
    return event, *lane_of(event), len(event.topic) + len(event.payload)
