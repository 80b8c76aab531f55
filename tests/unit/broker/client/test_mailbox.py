"""The mailbox: bounded by lane, in order, the newest where only the newest counts."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from broker.client import mailbox as module
from broker.client.mailbox import LIMITS, Lane, Limit, Mailbox, feed
from broker.protocol.link_events import Incoming, LinkEvent
from broker.protocol.topics import Topics
from broker.system.process import on_signals

TOPICS = Topics()
MIB = 1024 * 1024


def test_order_is_kept_across_lanes() -> None:
    box: Mailbox[int] = Mailbox()
    for number, lane in enumerate([Lane.BULK, Lane.CONTROL, Lane.LOCAL, Lane.LATEST]):
        box.put(number, lane, str(number))
    assert box.take(0) == [0, 1, 2, 3]
    assert box.take(0) == []


def test_the_latest_replaces_what_was_not_read() -> None:
    box: Mailbox[str] = Mailbox()
    box.put("pi 1", Lane.LATEST, "pi")
    box.put("attic 1", Lane.LATEST, "attic")
    box.put("pi 2", Lane.LATEST, "pi")
    assert box.take(0) == ["pi 2", "attic 1"]
    box.put("pi 3", Lane.LATEST, "pi")
    assert box.take(0) == ["pi 3"]


def test_a_repeated_question_waits_once() -> None:
    box: Mailbox[LinkEvent] = Mailbox()
    put = feed(box, TOPICS)
    one, other = (TOPICS.operator_request(f"operator:local/{name}") for name in ("a", "b"))
    asked = [Incoming(one, b"1"), Incoming(other, b"1"), Incoming(one, b"2")]
    report = Incoming(TOPICS.response("pi"), b"1")
    for message in [*asked, *asked, report, report]:
        put(message)
    assert box.take(0) == [*asked, report, report]
    put(asked[0])
    assert box.take(0) == asked[:1]


def test_a_full_lane_drops_and_counts_and_starves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {Lane.BULK: Limit(2, MIB), Lane.CONTROL: Limit(1, MIB)}
    monkeypatch.setattr(module, "LIMITS", limits)
    box: Mailbox[int] = Mailbox()
    assert [box.put(n, Lane.BULK) for n in range(4)] == [True, True, False, False]
    assert box.put(10, Lane.CONTROL)
    assert not box.put(11, Lane.CONTROL)
    assert all(box.put(n, Lane.LOCAL) for n in range(20, 30))
    assert box.take(0) == [0, 1, 10, *range(20, 30)]
    assert box.dropped() == {"bulk": 2, "control": 1}
    assert box.put(5, Lane.BULK), "there is room again"


def test_take_wakes_up_for_a_message_and_at_its_deadline() -> None:
    box: Mailbox[int] = Mailbox()
    assert box.take(0.01) == []
    threading.Timer(0.02, lambda: box.put(7)).start()
    assert box.take(10) == [7]
    for number in range(5):
        box.put(number)
    assert box.take(0, at_most=3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("topic", "lane"),
    [
        (TOPICS.log("pi", "1" * 64), Lane.BULK),
        (TOPICS.chunk("pi", "1" * 64, 0), Lane.BULK),
        (TOPICS.response("pi"), Lane.CONTROL),
        ("fleet/garbage", Lane.CONTROL),
    ],
)
def test_a_lane_is_bounded_by_its_bytes_as_well(topic: str, lane: Lane) -> None:
    box: Mailbox[LinkEvent] = Mailbox()
    put = feed(box, TOPICS)
    large = Incoming(topic, bytes(MIB - len(topic)))
    for _ in range(200):
        put(large)
    most = LIMITS[lane].size_bytes // MIB
    assert box.unread()[lane] == most
    assert box.dropped() == {lane.value: 200 - most}
    assert len(box.take(0.0, 10)) == 10
    put(large)
    assert box.unread()[lane] == most - 9


def test_a_newer_word_that_is_too_large_leaves_the_older_one() -> None:
    """A small word a host, each replaced by a large one, takes no more than large ones do."""
    box: Mailbox[LinkEvent] = Mailbox()
    put = feed(box, TOPICS)
    most = LIMITS[Lane.LATEST].size_bytes // MIB
    names = [TOPICS.capability(f"h{host}") for host in range(2 * most)]
    for payload in (b"small", bytes(MIB - 100)):
        for name in names:
            put(Incoming(name, payload))
    sizes = [len(one.payload) for one in box.take(0) if isinstance(one, Incoming)]
    assert len(sizes) == 2 * most
    assert most - 1 <= sum(size > MIB // 2 for size in sizes) <= most
    assert sum(sizes) <= LIMITS[Lane.LATEST].size_bytes


def test_a_topic_counts_by_its_length() -> None:
    box: Mailbox[LinkEvent] = Mailbox()
    put = feed(box, TOPICS)
    long = 60_000
    many = LIMITS[Lane.CONTROL].size_bytes // long + 10
    for _ in range(many):
        put(Incoming(f"fleet/{'x' * long}/job/response", b"{}"))
    assert box.dropped()["control"] >= 9


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
def test_a_signal_between_the_look_and_the_wait_wakes_the_reader() -> None:
    """Else a reload, or the end of a program, is heard with the next message alone."""
    box: Mailbox[str] = Mailbox()
    lines, first = inspect.getsourcelines(Mailbox.take)
    wait = next(n for n, line in enumerate(lines, first) if "_ready.wait(timeout_s)" in line)

    def on_line(frame: FrameType, event: str, _more: Any) -> Any:
        if event == "line" and frame.f_lineno == wait:
            signal.raise_signal(signal.SIGUSR1)
        return on_line

    def on_call(frame: FrameType, _event: str, _more: Any) -> Any:
        return on_line if frame.f_code is Mailbox.take.__code__ else None

    handler, tracer, begun_s = signal.getsignal(signal.SIGUSR1), sys.gettrace(), time.monotonic()
    on_signals({"SIGUSR1": lambda: box.put("asked")})
    sys.settrace(on_call)
    try:
        assert box.take(60.0) == ["asked"]
    finally:
        sys.settrace(tracer)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, handler)
    assert time.monotonic() - begun_s < 30


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system has no pthread_kill")
def test_a_signal_that_the_main_thread_does_not_notice_wakes_the_reader() -> None:
    """As one that comes when it has looked for signals and does not yet sleep in the system."""
    box: Mailbox[str] = Mailbox()
    handler = signal.getsignal(signal.SIGUSR1)
    on_signals({"SIGUSR1": lambda: box.put("asked")})

    def another() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    timer = threading.Timer(0.2, another)  # when the main thread sleeps; if sooner, as above
    timer.start()
    try:
        assert box.take(20.0) == ["asked"]
    finally:
        timer.join()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, handler)
