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

from broker.client.link import feed
from broker.client.mailbox import LIMITS_BYTES, Lane, Mailbox
from broker.protocol.events import Incoming, LinkEvent
from broker.protocol.messages import Accepted, Finished, Refused, Started, encode
from broker.protocol.topics import Topics
from broker.system.process import on_signals


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


def test_that_a_job_is_taken_and_started_waits_for_what_comes_of_it() -> None:
    """As agents say it: a short job's reports are one turn; its end, or a refusal, is urgent."""
    about: dict[str, Any] = {
        "id": "1", "session": "s", "instance": "i", "job_id": "5a" * 32, "attempt": 1,
    }  # fmt: skip
    accepted = Accepted(request_id="a", **about)
    started = Started(slot=0, pid=1, **about)
    finished = Finished(artifact_id="5a" * 32, size_bytes=1, **about)
    refused = Refused(request_id="a", reasons=("no room",), **about)
    topic = Topics().response("pi")
    box: Mailbox[LinkEvent] = Mailbox()
    put, taken = feed(box), list[list[LinkEvent]]()

    def read() -> None:
        taken.append(box.take(60, gather_s=60))

    for first, urgent in ((accepted, finished), (started, finished), (accepted, refused)):
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        put(Incoming(topic, encode(first)))
        reader.join(0.1)
        assert reader.is_alive()
        put(Incoming(topic, encode(urgent)))
        reader.join(10)
        came = [Incoming(topic, encode(first)), Incoming(topic, encode(urgent))]
        assert taken.pop() == came


@pytest.mark.parametrize(("lane", "other"), [(Lane.BULK, Lane.CONTROL), (Lane.CONTROL, Lane.BULK)])
def test_what_is_dropped_is_dropped_by_its_bytes_as_well(lane: Lane, other: Lane) -> None:
    """A flood of large messages takes no more memory than many small ones."""
    mailbox: Mailbox[LinkEvent] = Mailbox()
    put, mib = feed(mailbox), 1024 * 1024
    topics = {Lane.BULK: Topics().log("pi", "1" * 64), Lane.CONTROL: Topics().response("pi")}
    large = Incoming(topics[lane], bytes(mib - len(topics[lane])))
    put(*[large] * 200)
    most = LIMITS_BYTES[lane] // mib
    assert mailbox.unread()[lane] == most
    assert mailbox.dropped() == {lane.value: 200 - most}
    put(Incoming(topics[other], bytes(mib)))
    assert mailbox.unread()[other] == 1, "others have their own room"
    assert len(mailbox.take(0.0, 10)) == 10
    put(*[large] * 200)
    assert mailbox.unread()[lane] == most


def test_what_the_newest_replaces_is_bounded_by_its_bytes_as_well() -> None:
    """Hosts that say a great deal of themselves, or take long names for topics, are too many."""
    mailbox: Mailbox[LinkEvent] = Mailbox()
    put, mib = feed(mailbox), 1024 * 1024
    most = LIMITS_BYTES[Lane.LATEST] // mib

    def said(host: int, size_bytes: int) -> Incoming:
        topic = Topics().capability(f"h{host:03}")
        return Incoming(topic, bytes(size_bytes - len(topic)))

    put(*(said(host, mib) for host in range(most + 3)))
    assert mailbox.unread()["latest"] == most
    assert mailbox.dropped() == {"latest": 3}
    put(said(0, 100))
    assert len(mailbox.take(0, 1)) == 1
    put(*(said(most, mib) for _ in range(2)))
    assert mailbox.unread()["latest"] == most, "what is smaller, or read, has made room for one"


def test_a_newer_word_that_is_too_large_leaves_the_older_one() -> None:
    """A small word a host, each replaced by a large one, takes no more than large ones do."""
    mailbox: Mailbox[LinkEvent] = Mailbox()
    put, mib = feed(mailbox), 1024 * 1024
    most = LIMITS_BYTES[Lane.LATEST] // mib
    names = [Topics().capability(f"h{host}") for host in range(2 * most)]
    put(*(Incoming(name, b"small") for name in names))
    put(*(Incoming(name, bytes(mib - 100)) for name in names))
    sizes = [len(one.payload) for one in mailbox.take(0) if isinstance(one, Incoming)]
    assert len(sizes) == 2 * most
    assert most - 1 <= sum(size > mib // 2 for size in sizes) <= most
    assert sum(sizes) <= LIMITS_BYTES[Lane.LATEST]


def test_a_topic_counts_as_what_it_is() -> None:
    """It may be longer than what is said in it."""
    mailbox: Mailbox[LinkEvent] = Mailbox()
    put = feed(mailbox)
    long = 60_000
    many = LIMITS_BYTES[Lane.CONTROL] // long + 10
    assert many < 50_000
    put(*(Incoming(f"fleet/{'x' * (long - 20)}/job/response", b"{}") for _ in range(many)))
    assert mailbox.dropped()["control"] >= 9


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
        signal.signal(signal.SIGUSR1, handler)
    assert time.monotonic() - begun_s < 30
