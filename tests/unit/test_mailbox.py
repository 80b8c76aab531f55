"""The mailbox: bounded by lane, in order, the newest where only the newest counts."""

from __future__ import annotations

import threading

from broker.mailbox import Lane, Mailbox


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
