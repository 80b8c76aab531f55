"""The mailbox: bounded by lane, in order, the newest where only the newest counts."""

from __future__ import annotations

import threading

from broker.link import feed
from broker.mailbox import MAX_BULK_BYTES, Lane, Mailbox
from broker.topics import Topics
from broker.wire import Incoming, LinkEvent


def test_order_is_kept_across_lanes() -> None:
    """What comes first is read first."""
    box: Mailbox[int] = Mailbox()
    for number, lane in enumerate([Lane.BULK, Lane.CONTROL, Lane.LOCAL, Lane.LATEST]):
        box.put(number, lane, str(number))
    assert box.take(0) == [0, 1, 2, 3]
    assert box.take(0) == []


def test_the_latest_replaces_what_was_not_read() -> None:
    """At the place of the older one; once it was read, a new one is new."""
    box: Mailbox[str] = Mailbox()
    box.put("pi 1", Lane.LATEST, "pi")
    box.put("attic 1", Lane.LATEST, "attic")
    box.put("pi 2", Lane.LATEST, "pi")
    assert box.take(0) == ["pi 2", "attic 1"]
    box.put("pi 3", Lane.LATEST, "pi")
    assert box.take(0) == ["pi 3"]


def test_a_question_that_is_repeated_waits_once() -> None:
    """Or whoever waits would make the backlog that they wait for; another's question is another."""
    box: Mailbox[LinkEvent] = Mailbox()
    put = feed(box)
    topics = Topics()
    one, other = (topics.operator_request(f"operator:local/{name}") for name in ("a", "b"))
    asked = [Incoming(one, b"1"), Incoming(other, b"1"), Incoming(one, b"2")]
    for message in [*asked, *asked, Incoming(topics.response("pi"), b"1")]:
        put(message)
    put(Incoming(topics.response("pi"), b"1"))
    assert box.take(0) == [*asked, *[Incoming(topics.response("pi"), b"1")] * 2]
    put(asked[0])
    assert box.take(0) == asked[:1], "it was answered before: once more"


def test_a_full_lane_drops_and_counts_and_starves_no_other() -> None:
    """An upload leaves room for control messages; what this process says is never dropped."""
    box: Mailbox[int] = Mailbox({Lane.BULK: 2, Lane.CONTROL: 1, Lane.LATEST: 1})
    assert [box.put(n, Lane.BULK) for n in range(4)] == [True, True, False, False]
    assert box.put(10, Lane.CONTROL)
    assert not box.put(11, Lane.CONTROL)
    assert all(box.put(n, Lane.LOCAL) for n in range(20, 30))
    assert box.take(0) == [0, 1, 10, *range(20, 30)]
    assert box.dropped() == {"bulk": 2, "control": 1}
    assert box.put(5, Lane.BULK), "there is room again"


def test_take_wakes_up_for_a_message_and_at_its_deadline() -> None:
    """It blocks no longer than it was told to."""
    box: Mailbox[int] = Mailbox()
    assert box.take(0.01) == []
    threading.Timer(0.02, lambda: box.put(7)).start()
    assert box.take(10) == [7]
    for number in range(5):
        box.put(number)
    assert box.take(0, at_most=3) == [0, 1, 2]


def test_heartbeats_wait_for_others_and_nothing_else_does() -> None:
    """What is urgent ends the wait; a backlog with something urgent in it is not waited on."""
    box: Mailbox[str] = Mailbox()
    taken: list[list[str]] = []
    reader = threading.Thread(target=lambda: taken.append(box.take(60, gather_s=60)), daemon=True)
    reader.start()
    box.put("pi", Lane.LATEST, "pi")
    box.put_all([("attic", Lane.LATEST, "attic", 0), ("pi again", Lane.LATEST, "pi", 0)])
    reader.join(0.2)
    assert reader.is_alive()
    box.put("a question", Lane.CONTROL)
    reader.join(10)
    assert taken == [["pi again", "attic", "a question"]]
    box.put("stop")
    box.put("pi", Lane.LATEST, "pi")
    assert box.take(60, gather_s=60) == ["stop", "pi"]
    box.put("pi", Lane.LATEST, "pi")
    assert box.take(60, gather_s=0.01) == ["pi"]


def test_what_is_dropped_is_dropped_by_its_bytes_as_well() -> None:
    """A flood of large chunks takes no more memory than many small ones."""
    mailbox: Mailbox[int] = Mailbox()
    mib = 1024 * 1024
    taken = sum(mailbox.put(number, Lane.BULK, size_bytes=mib) for number in range(100))
    assert taken == MAX_BULK_BYTES // mib
    assert mailbox.put(1000, Lane.CONTROL, size_bytes=mib), "others have their own room"
    assert len(mailbox.take(0.0, 10)) == 10
    assert sum(mailbox.put(number, Lane.BULK, size_bytes=mib) for number in range(100)) == 10
