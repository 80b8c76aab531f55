"""The parts of the embedded broker's way of a message, each beside what it must agree with."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.embedded.packets import (
    VIEWED_BYTES,
    Cutter,
    MalformedPacketError,
    Message,
    OversizePacketError,
    PacketLimits,
)
from broker.embedded.peer import Gate
from broker.embedded.subscriptions import Subscriptions, TopicTree, is_filter
from broker.embedded.tls import Identity
from broker.protocol.acl import matches, rights_of
from broker.protocol.topics import Topics
from tests.harness.certificates import HOUR, Authority
from tests.harness.rawmqtt import packet, publish
from tests.harness.tree import EVERYBODY, tree

LIMITS = PacketLimits(connect_bytes=16_384, publish_bytes=1_000_000, other_bytes=65_536)
LEVELS = st.sampled_from(["", "a", "b", "cc", "$x", "é\n"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
FILTERS = st.lists(
    st.one_of(LEVELS, st.just("+"), st.just("#")), min_size=1, max_size=5
).map("/".join).filter(is_filter)  # fmt: skip


def _cut(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    cutter, found = Cutter(LIMITS), []
    for piece in pieces:
        cutter.feed(piece)
        while (one := cutter.next()) is not None:
            found.append((one[0], bytes(one[1])))
    return found


@given(
    st.lists(st.sampled_from([0, 1, 100, 127, 128, 16_384, VIEWED_BYTES, 200_000]), max_size=6),
    st.lists(st.integers(1, 300_000), max_size=12),
)
def test_packets_are_the_same_however_their_bytes_are_chopped(
    sizes: list[int], cuts: list[int]
) -> None:
    """In one piece, or in many, or many in one."""
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    rest = b"".join(packet(0x30, body) for body in bodies)
    pieces = []
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    assert _cut([*pieces, rest]) == [(0x30, body) for body in bodies]


def test_packets_that_come_byte_by_byte_are_whole_in_the_end() -> None:
    """A header of two bytes and one of three."""
    whole = packet(0xC0, b"") + packet(0x30, b"x" * 200)
    assert _cut([bytes([byte]) for byte in whole]) == [(0xC0, b""), (0x30, b"x" * 200)]


@pytest.mark.parametrize(
    ("begins", "error"),
    [
        (b"\x30\xc1\x84\x3d", OversizePacketError),  # 1,000,001 bytes
        (b"\x82\x81\x80\x04", OversizePacketError),  # 65,537
        (b"\x30\x80\x80\x80\x80", MalformedPacketError),
    ],
)
def test_what_is_too_long_is_known_by_its_length(begins: bytes, error: type[Exception]) -> None:
    """Before anything of it has come; however the length itself comes."""
    cutter = Cutter(LIMITS)
    for byte in begins[:-1]:
        cutter.feed(bytes([byte]))
        assert cutter.next() is None
    cutter.feed(begins[-1:])
    with pytest.raises(error):
        cutter.next()


def test_a_small_message_keeps_nothing_else_in_memory() -> None:
    """A large one is not copied; what is retained of it is."""
    cutter = Cutter(LIMITS)
    cutter.feed(publish("a", b"x" * 100) + publish("a", b"y" * VIEWED_BYTES))
    small, large = cutter.next(), cutter.next()
    assert small is not None
    assert large is not None
    assert isinstance(small[1], bytes)
    message, _ = Message.read(*large)
    assert isinstance(message.payload, memoryview)
    assert message.kept().payload == b"y" * VIEWED_BYTES
    assert isinstance(message.kept().payload, bytes)


@given(st.lists(FILTERS, max_size=8), TOPICS)
def test_subscribers_are_those_whose_filters_match(filters: list[str], topic: str) -> None:
    """Found by levels, as by comparing with each."""
    subscriptions: Subscriptions[str] = Subscriptions()
    for number, filter_ in enumerate(filters):
        subscriptions.add(filter_, f"{number}", number % 3)
    wanted = {f"{n}": n % 3 for n, one in enumerate(filters) if matches(one, topic)}
    assert subscriptions.matching(topic) == wanted
    for number, filter_ in enumerate(filters):
        subscriptions.remove(filter_, f"{number}")
    assert not len(subscriptions)
    assert not subscriptions._root.below, "something is left of them"


def test_a_subscriber_by_two_filters_is_sent_a_message_once() -> None:
    """At the higher QoS (MQTT 3.1.1, 3.3.5-1)."""
    subscriptions: Subscriptions[str] = Subscriptions()
    for filter_, qos in (("a/#", 0), ("a/+", 1), ("a/b", 0)):
        subscriptions.add(filter_, "one", qos)
    assert subscriptions.matching("a/b") == {"one": 1}
    subscriptions.remove("a/+", "one")
    assert subscriptions.matching("a/b") == {"one": 0}
    assert len(subscriptions) == 2


@given(st.sets(TOPICS, max_size=12), FILTERS)
def test_topics_under_a_filter_are_those_that_match(topics: set[str], filter_: str) -> None:
    """Found by levels, as by comparing with each."""
    found = TopicTree()
    for topic in topics:
        found.add(topic)
    assert sorted(found.under(filter_)) == sorted(t for t in topics if matches(filter_, t))
    for topic in topics:
        found.remove(topic)
    assert list(found.under("#")) == []
    assert not found._root.below, "something is left of them"


def test_topics_come_in_the_order_in_which_they_came() -> None:
    """The oldest row of a job first, as people have them listed."""
    found = TopicTree()
    rows = [f"fleet/jobs/{number}" for number in (3, 1, 2)]
    for topic in rows:
        found.add(topic)
    assert list(found.under("fleet/jobs/+")) == rows
    assert list(found.under("fleet/#")) == rows


def test_a_topic_of_very_many_levels_is_one_like_any_other() -> None:
    """No recursion, which would end somewhere."""
    deep = "/".join("a" * 30_000)
    found = TopicTree()
    found.add(deep)
    assert list(found.under("#")) == [deep]
    subscriptions: Subscriptions[str] = Subscriptions()
    subscriptions.add(deep, "one", 0)
    assert subscriptions.matching(deep) == {"one": 0}


@pytest.mark.parametrize("who", EVERYBODY, ids=lambda who: str(who.name))
def test_the_gate_lets_through_what_the_rights_do(who: object) -> None:
    """Every topic of the tree, and those beside it."""
    rights = rights_of(who, Topics())  # type: ignore[arg-type]
    gate = Gate(rights)
    for _, _, topic in tree(Topics()):
        beside = (f"{topic}/x", f"x{topic}", f"{topic}\n", f"${topic}", topic.rpartition("/")[0])
        for one in (topic, *beside, topic.replace("/", "//", 1), topic.replace("one", "+")):
            assert gate.may_publish(one) == rights.may_publish(one), one
            assert gate.may_receive(one) == rights.may_receive(one), one


@given(st.lists(FILTERS, min_size=1, max_size=4), TOPICS | FILTERS)
def test_any_filters_are_a_gate(filters: list[str], topic: str) -> None:
    """Wildcards at any place."""
    rights = type(rights_of(EVERYBODY[0], Topics()))(tuple(filters), ())
    assert Gate(rights).may_publish(topic) == rights.may_publish(topic)
    assert not Gate(rights).may_receive(topic)


def test_a_large_packet_that_comes_in_crumbs_takes_no_more_than_its_size() -> None:
    """Two bytes at a time, each of which Python keeps in an object of 35."""
    whole = packet(0x30, b"x" * 900_000)
    cutter = Cutter(LIMITS)
    tracemalloc.start()
    try:
        for at in range(0, len(whole) - 2, 2):
            cutter.feed(whole[at : at + 2])
            assert cutter.next() is None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_500_000
    cutter.feed(whole[-2:])
    assert cutter.next() == (0x30, b"x" * 900_000)


def test_that_certificates_are_revoked_is_logged_when_their_number_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at each enrolment, which writes the list anew."""
    authority = Authority(tmp_path / "broker")
    identity = Identity(authority.broker())
    with caplog.at_level("INFO"):
        authority.revoke()
        identity.refresh()
        assert "revoked" not in caplog.text
        authority.revoke(authority.named("pi"))
        identity.refresh()
        assert "1 certificate is revoked" in caplog.text
        caplog.clear()
        authority.revoke(lasts=3 * HOUR)
        identity.refresh()
    assert "revoked" not in caplog.text
