"""What the fleet takes for granted of a broker, by plain paho clients, on each broker.

protocol.md lets a broker lose and repeat messages; these are what it needs on a quiet day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Connect = Callable[..., Any]  # the fixture `client`


def test_each_publisher_is_heard_in_order(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
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


def test_a_newcomer_of_the_same_name_takes_over(
    any_broker: Any, client: Connect, topic_root: str
) -> None:
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
