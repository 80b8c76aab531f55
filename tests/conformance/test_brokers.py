"""What the fleet takes for granted of a broker, by plain paho clients, on each broker.

docs/protocol.md lets a broker lose and repeat messages; these are what it needs on a quiet day.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

Connect = Callable[..., Any]  # the fixture `client`


@pytest.mark.parametrize("filter_", ["state/one", "state/+", "+/one", "#"])
def test_retained_messages_reach_who_subscribes_later(
    any_broker: Any, client: Connect, topic_root: str, filter_: str
) -> None:
    """By plain filters and by wildcards, marked as retained; the newest one alone."""
    writer = client(any_broker.port, f"{topic_root}-w")
    writer.publish(f"{topic_root}/state/one", b"old", retain=True)
    writer.publish(f"{topic_root}/state/one", b"new", retain=True)
    reader = client(any_broker.port, f"{topic_root}-r")
    reader.subscribe(f"{topic_root}/{filter_}")
    message = reader.got.get(timeout=60)
    assert (message.topic, message.payload) == (f"{topic_root}/state/one", b"new")
    assert message.retain
    writer.publish(f"{topic_root}/state/one", b"live")
    live = reader.got.get(timeout=60)
    assert (live.payload, live.retain) == (b"live", False)


def test_an_empty_payload_clears_what_was_retained(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
    """Who subscribes afterwards is sent other topics' messages alone."""
    writer = client(any_broker.port, f"{topic_root}-w")
    for name in ("cleared", "kept"):
        writer.publish(f"{topic_root}/{name}", b"birth", retain=True)
    writer.publish(f"{topic_root}/cleared", b"", retain=True)
    reader = client(any_broker.port, f"{topic_root}-r")
    reader.subscribe(f"{topic_root}/#")
    assert reader.next() == (f"{topic_root}/kept", b"birth")
    reader.publish(f"{topic_root}/end", b"")
    assert reader.next() == (f"{topic_root}/end", b"")


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size_bytes", [0, 1, 127, 128, 16_383, 16_384, 256 * 1024, 1024 * 1024])
def test_a_payload_arrives_as_it_was_sent(
    any_broker: Any, client: Connect, topic_root: str, size_bytes: int, qos: int
) -> None:
    """Binary, up to the largest chunk, at the edges of MQTT's length field; once."""
    one = client(any_broker.port, f"{topic_root}-1")
    one.subscribe(f"{topic_root}/chunk")
    payload = random.Random(size_bytes).randbytes(size_bytes)
    one.publish(f"{topic_root}/chunk", payload, qos)
    one.publish(f"{topic_root}/chunk", b"end", qos)
    assert one.next() == (f"{topic_root}/chunk", payload)
    assert one.next() == (f"{topic_root}/chunk", b"end")


def test_each_publisher_is_heard_in_order(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
    """Whatever the others publish meanwhile."""
    reader = client(any_broker.port, f"{topic_root}-r")
    reader.subscribe(f"{topic_root}/+")
    names = ["a", "b", "c"]
    writers = [client(any_broker.port, f"{topic_root}-{name}") for name in names]
    for number in range(200):
        for name, writer in zip(names, writers):
            writer.paho.publish(f"{topic_root}/{name}", b"%d" % number, 1)
    heard: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(200 * len(names)):
        topic, payload = reader.next()
        heard[topic.rsplit("/", 1)[1]].append(int(payload))
    assert all(numbers == list(range(200)) for numbers in heard.values())


def test_a_connection_that_breaks_leaves_its_will(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
    """At once, without waiting for the keepalive."""
    watcher = client(any_broker.port, f"{topic_root}-w")
    watcher.subscribe(f"{topic_root}/will")
    client(any_broker.port, f"{topic_root}-b", will=(f"{topic_root}/will", b"gone")).break_off()
    assert watcher.next() == (f"{topic_root}/will", b"gone")


def test_a_goodbye_leaves_no_will(any_broker: Any, client: Connect, topic_root: str) -> None:
    """Of one that disconnects properly and one that breaks after it, one will is published."""
    watcher = client(any_broker.port, f"{topic_root}-w")
    watcher.subscribe(f"{topic_root}/will/+")
    polite = client(any_broker.port, f"{topic_root}-p", will=(f"{topic_root}/will/p", b"gone"))
    rude = client(any_broker.port, f"{topic_root}-b", will=(f"{topic_root}/will/b", b"gone"))
    polite.stop()
    rude.break_off()
    assert watcher.next() == (f"{topic_root}/will/b", b"gone")
    watcher.publish(f"{topic_root}/will/end", b"")
    assert watcher.next() == (f"{topic_root}/will/end", b"")


def test_a_newcomer_of_the_same_name_takes_over(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
    """The older connection is served no more, and its end does not touch the newer one."""
    older = client(any_broker.port, f"{topic_root}-same")
    older.subscribe(f"{topic_root}/x")
    newer = client(any_broker.port, f"{topic_root}-same")
    newer.subscribe(f"{topic_root}/x")
    newer.publish(f"{topic_root}/x", b"1")
    assert newer.next() == (f"{topic_root}/x", b"1")
    assert older.got.empty()
    older.stop()
    newer.publish(f"{topic_root}/x", b"2")
    assert newer.next() == (f"{topic_root}/x", b"2")
    assert older.got.empty()


def test_unsubscribing_ends_what_one_filter_brought(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
    """Other filters, of others or of its own, go on, wildcards or none."""
    one, other = (client(any_broker.port, f"{topic_root}-{name}") for name in "12")
    for name in ("plain", "wild/+", "stays/+"):
        one.subscribe(f"{topic_root}/{name}")
        other.subscribe(f"{topic_root}/{name}")
    one.unsubscribe(f"{topic_root}/plain")
    one.unsubscribe(f"{topic_root}/wild/+")
    for topic in ("plain", "wild/a", "stays/a"):
        other.publish(f"{topic_root}/{topic}", b"x")
    assert one.next() == (f"{topic_root}/stays/a", b"x")
    assert [other.next()[0] for _ in range(3)] == [
        f"{topic_root}/{topic}" for topic in ("plain", "wild/a", "stays/a")
    ]
