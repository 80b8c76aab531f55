"""The embedded broker's MQTT 5, packet by packet: what it grants, forwards, refuses, and why."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes

from broker.embedded import EmbeddedBroker, Reason, ServerSettings
from broker.embedded.connect import MAX_HELD
from tests.fuzz.mutate import mutate_bytes
from tests.harness.inthread import InThread
from tests.harness.rawmqtt import (
    Peer5,
    connect,
    connect5,
    heard,
    packet,
    props,
    publish,
    publish5,
    read_props,
    subscribe,
    subscribe5,
    text,
    wire,
)
from tests.harness.waiting import wait_until

Make = Callable[..., Any]
NO_LOCAL, AS_PUBLISHED, IF_NEW, NEVER = 0x04, 0x08, 0x10, 0x20
RETAINED = 1


def _answer(port: int, first: bytes, tls: Any = None) -> bytes:
    """Connect, say something, and return all that comes until the end."""
    with wire(port, tls) as connection:
        connection.sendall(first)
        return heard(connection, 1_000)


def test_a_client_is_told_what_it_is_granted(new_embedded: Make) -> None:
    port = new_embedded(max_packet_bytes=1_000).port
    with Peer5(port, "", SessionExpiryInterval=0xFFFFFFFF) as one:
        granted = one.granted.json()
        assert len(granted.pop("AssignedClientIdentifier")) >= 23
        assert granted == {
            "SessionExpiryInterval": 86_400, "ReceiveMaximum": MAX_HELD, "TopicAliasMaximum": 0,
            "MaximumPacketSize": 1_003, "SharedSubscriptionAvailable": 0,
        }  # fmt: skip
        assert not one.present
        one.say(publish5("a", b"x" * (1_000 - 4)))
        one.ping()


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (connect5(level=3), b"\x20\2\0\1"),
        (connect5(level=0x84), b"\x20\2\0\1"),  # mosquitto's bridge, which then tries 4
        (connect5(level=6), b"\x20\3\0\x84\0"),
        (connect5(level=0x85), b"\x20\3\0\x84\0"),
        (connect5(AuthenticationMethod="SCRAM"), b"\x20\3\0\x8c\0"),
        (connect5(AuthenticationData=b"x"), b"\x20\3\0\x82\0"),
        (connect5("x" * 300), b"\x20\3\0\x85\0"),
        (connect5(raw=b"\2\x26\0"), b"\x20\3\0\x81\0"),
        (connect5(raw=b"\5\2\0\0\0\1"), b"\x20\3\0\x81\0"),  # of a message alone
        (connect5(raw=b"\x03\x21\0\0"), b"\x20\3\0\x82\0"),  # to receive none
        (connect5(raw=b"\x0a" + b"\x11\0\0\0\1" * 2), b"\x20\3\0\x82\0"),  # twice
        (connect5(raw=b"\xff\xff\xff\xff\x7f"), b"\x20\3\0\x81\0"),
        (connect5(will=("a/+", b"")), b"\x20\3\0\x90\0"),
        (connect5(will=("$SYS/a", b"")), b"\x20\3\0\x87\0"),
    ],
)  # fmt: skip
def test_a_connect_is_refused_with_its_code(ours: InThread, first: bytes, answer: bytes) -> None:
    assert _answer(ours.port, first) == answer


BAD = {
    0x81: [
        publish5("a", raw=b"\2\x7f\0"), publish5("a", raw=b"\3\x26\0\0"),
        publish5("a", raw=b"\x7f"),
        publish5("a", raw=props(PacketTypes.CONNECT, ReceiveMaximum=3)),
        publish5("a", raw=b"\4\3\0\1\0"), publish5("a", raw=b"\4\3\0\1\xff"),
        publish5("a\0b"), packet(0x40, b"\0\1\x07"), packet(0x40, b"\0"), packet(0x40, b"\0\1\0\5"),
        packet(0x82, b"\0\1"), packet(0x82, b""), packet(0xC0, b"x"), b"\x30\xff\xff\xff\xff\xff",
    ],
    0x82: [
        publish5("a", raw=b"\4\1\0\1\0"), publish5("a", raw=b"\2\1\2"), publish5(""),
        publish5("a", raw=b"\2\x0b\1"), publish5("a", ResponseTopic="a/#"),
        publish5("a", qos=1, number=0), subscribe5(), subscribe5(""), subscribe5("a", options=3),
        subscribe5("a", options=0x30), subscribe5("a", options=0x40),
        subscribe5("a", raw=b"\2\x0b\0"), packet(0xA2, b"\0\1\0"),
        packet(0xF0, b""), connect5("again"), packet(0xE0, b"\0\5\x11\0\0\0\1"),
    ],
    0x90: [publish5("a/+")],
    0x94: [publish5("a", TopicAlias=1), publish5("a", raw=b"\3\x23\0\0")],
    0x95: [b"\x30\x80\x80\x80\x01", b"\x82\x80\x80\x80\x01"],
}  # fmt: skip


@pytest.mark.parametrize("code", BAD, ids=hex)
def test_the_end_of_a_connection_has_a_reason(
    ours: InThread, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    for bad in BAD[code]:
        with Peer5(ours.port) as one:
            one.say(bad)
            assert one.ends() == code, bad
    assert not [line for line in caplog.records if line.exc_info]


def test_whoever_the_broker_disconnects_is_told_why(new_embedded: Make) -> None:
    running = new_embedded()
    with Peer5(running.port) as old, Peer5(running.port):
        assert old.ends() == 0x8E
    with Peer5(running.port, keepalive_s=1) as silent:
        assert silent.ends() == 0x8D
    with Peer5(running.port) as one:
        one.say(*(publish5("a", qos=2, number=number) for number in range(1, MAX_HELD + 2)))
        assert [one.next()[0] for _ in range(MAX_HELD)] == [0x50] * MAX_HELD
        assert one.ends() == 0x93
    ending = InThread(lambda: EmbeddedBroker(ServerSettings(port=0)))
    with Peer5(ending.port) as last, Peer5(ending.port, "other", will=("a", b"lost")):
        last.subscribe("#")
        ending.stop()
        assert last.ends() == 0x8B


def test_a_denied_message_is_not_authorised(network: Any) -> None:
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/#", 1)
    lie, truth = "fleet/pi-4/status", "fleet/gaming-pc/status"
    with Peer5(network.port, tls=network.tls("gaming-pc")) as five:
        five.say(publish5(lie, b"1", qos=1), publish5(lie, b"2", qos=2, number=2))
        assert five.next() == (0x40, b"\0\1\x87")
        assert five.next() == (0x50, b"\0\2\x87")
        five.say(packet(0x62, b"\0\2"), publish5(truth, b"t", qos=2, number=3))
        assert five.next() == (0x70, b"\0\2\x92")
        assert five.next() == (0x50, b"\0\3")
        five.say(packet(0x62, b"\0\3"))
        assert five.next() == (0x70, b"\0\3")
    assert watcher.next() == (truth, b"t")
    with wire(network.port, network.tls("gaming-pc")) as four:
        four.sendall(connect("four") + publish(lie, b"3", qos=1) + publish(lie, b"4", qos=2))
        assert heard(four, 12) == b"\x20\2\0\0\x40\2\0\1\x50\2\0\1"
        four.sendall(packet(0x62, b"\0\1") + publish(truth, b"u", qos=1))
        assert heard(four, 8) == b"\x70\2\0\1\x40\2\0\1"
    assert watcher.next() == (truth, b"u")
    network.refuses({Reason.PUBLISH: 4})


def test_a_filter_is_refused_with_its_code(new_network: Make) -> None:
    network = new_network(max_filters=2)
    with Peer5(network.port, tls=network.tls("gaming-pc")) as one:
        asked = ["$share/g/fleet/gaming-pc/job/request", "fleet/#", "fleet/+x", "a/" * 64]
        assert one.subscribe(*asked) == b"\x9e\x87\x8f\x8f"
        own = ["status", "echo", "job/request"]
        assert one.subscribe(*(f"fleet/gaming-pc/{name}" for name in own), options=1) == b"\1\1\x97"
        one.say(packet(0xA2, b"\0\7\0" + text("fleet/gaming-pc/echo") + text("fleet/none")))
        assert one.next() == (0xB0, b"\0\7\0\0\x11")


def test_messages_pass_between_the_levels(ours: InThread) -> None:
    told = {
        "UserProperty": [("k", "1"), ("k", "2")], "ContentType": "text/plain",
        "ResponseTopic": "a/b", "CorrelationData": b"\0\1", "PayloadFormatIndicator": 1,
    }  # fmt: skip
    with (
        Peer5(ours.port, "five") as five,
        Peer5(ours.port, "speaker") as speaker,
        wire(ours.port) as four,
    ):
        four.sendall(connect("four") + subscribe("m/#"))
        assert heard(four, 9) == b"\x20\2\0\0\x90\3\0\1\0"
        assert five.subscribe("m/#", options=1) == b"\1"
        speaker.say(publish5("m/5", b"hello", qos=1, retain=True, **told))
        assert speaker.next() == (0x40, b"\0\1")
        flags, topic, payload, found = five.message()
        assert (flags, topic, payload) == (2, "m/5", b"hello")
        assert {name: getattr(found, name) for name in told} == told
        plain = publish("m/5", b"hello")
        assert heard(four, len(plain)) == plain
        four.sendall(publish("m/4", b"old"))
        flags, topic, payload, found = five.message()
        assert (topic, payload, found.isEmpty()) == ("m/4", b"old", True)
        five.subscribe("m/+", options=1)
        flags, topic, payload, found = five.message()
        assert (flags, topic, payload) == (RETAINED | 2, "m/5", b"hello")
        assert {name: getattr(found, name) for name in told} == told
        four.sendall(subscribe("m/5"))
        own = publish("m/4", b"old")
        kept = packet(0x31, text("m/5") + b"hello")
        assert heard(four, len(own) + 5 + len(kept)) == own + b"\x90\3\0\1\0" + kept


def test_a_subscription_has_options(ours: InThread) -> None:
    with Peer5(ours.port) as one, Peer5(ours.port, "other") as other:
        one.subscribe("own", options=NO_LOCAL)
        one.subscribe("as/is", options=AS_PUBLISHED)
        one.say(publish5("own", b"mine"), publish5("as/is", b"kept", retain=True))
        other.say(publish5("own", b"theirs", retain=True))
        assert {one.message()[:3], one.message()[:3]} == {
            (RETAINED, "as/is", b"kept"), (0, "own", b"theirs"),
        }  # fmt: skip
        one.subscribe("own", "as/is", options=NEVER)
        one.ping()
        one.subscribe("own", options=IF_NEW)
        one.ping()
        one.subscribe("+/is", options=IF_NEW)
        assert one.message()[:3] == (RETAINED, "as/is", b"kept")
        one.subscribe("own")
        assert one.message()[:3] == (RETAINED, "own", b"theirs")
        one.say(publish5("own", b"mine"))
        assert one.message()[:3] == (0, "own", b"mine")


def test_a_subscription_has_an_identifier(ours: InThread) -> None:
    with Peer5(ours.port) as one:
        for filter_, number in (("a/#", b"\1"), ("+/b", b"\x80\1"), ("a/b", b"")):
            raw = b"\0" if not number else bytes((1 + len(number),)) + b"\x0b" + number
            one.say(subscribe5(filter_, raw=raw))
            assert one.next() == (0x90, b"\0\1\0\0")
        one.say(publish5("a/b", b"x", retain=True), publish5("a/c", b"y"), publish5("c/b", b"z"))
        assert sorted(one.message()[3].SubscriptionIdentifier) == [1, 128]
        assert one.message()[3].SubscriptionIdentifier == [1]
        assert one.message()[3].SubscriptionIdentifier == [128]
        one.say(subscribe5("a/#", raw=b"\2\x0b\7"))
        assert one.next() == (0x90, b"\0\1\0\0")
        assert one.message()[3].SubscriptionIdentifier == [7]
        one.say(packet(0xA2, b"\0\7\0" + text("a/#") + text("+/b")), publish5("a/b", b"x"))
        assert one.next() == (0xB0, b"\0\7\0\0\0")
        assert one.message()[3].isEmpty()


def test_no_more_is_sent_than_is_received_at_once(ours: InThread) -> None:
    with (
        Peer5(ours.port, ReceiveMaximum=2) as slow,
        Peer5(ours.port, "speaker") as speaker,
    ):
        speaker.say(*(publish5(f"r/{n}", b"%d" % n, qos=1, retain=True) for n in range(9)))
        assert [speaker.next()[0] for _ in range(9)] == [0x40] * 9
        slow.subscribe("q", options=2)
        speaker.say(*(publish5("q", b"%d" % n, qos=1 + n % 2, number=n + 1) for n in range(5)))
        speaker.say(packet(0x62, b"\0\2"), packet(0x62, b"\0\4"))
        first = [slow.next(), slow.next()]
        slow.ping()
        payloads = [body[-1:] for _, body in first]
        slow.say(packet(0x40, b"\0\1"), packet(0x40 if first[1][0] & 2 else 0x50, b"\0\2"))
        while len(payloads) < 5:
            kind, body = slow.next()
            if kind >> 4 == 3:
                payloads.append(body[-1:])
                slow.say(packet(0x40 if kind & 2 else 0x50, body[3:5]))
            elif kind == 0x62:
                slow.say(packet(0x70, body))
        assert sorted(payloads) == [b"0", b"1", b"2", b"3", b"4"]
    with Peer5(ours.port, ReceiveMaximum=2) as slow:
        slow.subscribe("r/+", options=1)
        assert [slow.message()[2] for _ in range(9)] == [b"%d" % n for n in range(9)]


def test_nothing_is_sent_that_is_larger_than_is_taken(ours: InThread) -> None:
    with (
        Peer5(ours.port, "small", MaximumPacketSize=60, ReceiveMaximum=1) as small,
        Peer5(ours.port, "speaker") as speaker,
    ):
        small.subscribe("a", options=1)
        speaker.say(
            publish5("a", b"x" * 60, qos=1),
            publish5("a", b"y", qos=1, number=2, UserProperty=("k", "v" * 50)),
            publish5("a", b"z" * 20, number=3, qos=1),
        )
        assert [speaker.next()[0] for _ in range(3)] == [0x40] * 3
        assert small.message()[2] == b"z" * 20
    wait_until(lambda: ours.broker.refused == {Reason.OVERSIZE: 2}, str(ours.broker.refused))


def test_a_message_expires(ours: InThread) -> None:
    with Peer5(ours.port) as one:
        one.say(publish5("a", b"x", retain=True, MessageExpiryInterval=1))
        one.say(publish5("b", b"y", retain=True, MessageExpiryInterval=600))
        left: set[int] = set()
        while len(left) < 2:  # until a second has passed
            one.subscribe("b")
            left.add(one.message()[3].MessageExpiryInterval)
        assert all(500 < one_s <= 600 for one_s in left)
        wait_until(lambda: len(ours.broker.router.retained) == 1, "it is retained still")
        one.subscribe("+")
        _, topic, _, found = one.message()
        assert topic == "b"
        assert 500 < found.MessageExpiryInterval < 600


def test_properties_count_where_memory_is_limited(new_network: Make) -> None:
    network = new_network(max_retained_bytes=2_000, max_unsent_bytes=2_000)
    topic, large = "fleet/gaming-pc/status", {"UserProperty": ("k", "v" * 1_500)}
    tls = network.tls("operator:alice")
    with Peer5(network.port, "away", tls, SessionExpiryInterval=60) as away:
        away.subscribe(topic, options=1)
        away.say(b"\xe0\0")
        assert away.next() == (0, b"")
    with Peer5(network.port, tls=network.tls("gaming-pc")) as one:
        one.say(publish5(topic, b"1", qos=1, **large), publish5(topic, b"2", qos=1, **large))
        one.say(publish5(topic, b"3", qos=1, retain=True, UserProperty=("k", "v" * 2_000)))
        assert [one.next()[0] for _ in range(3)] == [0x40] * 3
    network.refuses({Reason.SLOW: 2, Reason.RETAINED: 1})
    with Peer5(network.port, "away", tls, clean=False, SessionExpiryInterval=60) as away:
        assert away.present
        assert away.message()[2] == b"1"
        away.ping()


def test_mutated_packets_end_in_a_reason_code(
    new_embedded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    running, rng = new_embedded(), random.Random(5)
    good = [
        publish5("a/b", b"x", qos=1, UserProperty=("k", "v"), ContentType="t"),
        publish5("a/b", b"x", MessageExpiryInterval=5, ResponseTopic="r", CorrelationData=b"c"),
        subscribe5("a/#", "b", options=0x2D), packet(0xA2, b"\0\1\0" + text("a/#")),
        packet(0x62, b"\0\1\0\0"), packet(0x50, b"\0\1\x10\0"), packet(0xE0, b"\4\0"),
    ]  # fmt: skip
    connects = [connect5(will=("w", b"x"), SessionExpiryInterval=1, UserProperty=("k", "v"))]
    caplog.set_level(logging.ERROR)
    for _ in range(400):
        chosen = rng.choice((connects, good, good, good))
        first, *rest = mutate_bytes(rng, rng.choice(chosen), good)[:300].ljust(2, b"\0")
        mutated = packet(first, bytes(rest[1:]))
        if chosen is connects:
            answer = _answer_of_a_moment(running.port, mutated)
            assert answer[:1] in {b"", b"\x20"}, mutated
            continue
        with Peer5(running.port, "m") as one:
            one.say(mutated, b"\xc0\0")
            kind, body = one.next()
            while kind and kind not in {0xD0, 0xE0}:
                kind, body = one.next()
            if kind == 0xE0:
                assert body[0] in {0x81, 0x82, 0x90, 0x93, 0x94, 0x95}, (mutated, body)
    assert not caplog.records
    assert read_props(PacketTypes.CONNECT, props(PacketTypes.CONNECT)).isEmpty()
    with Peer5(running.port) as one:
        one.ping()


def _answer_of_a_moment(port: int, first: bytes) -> bytes:
    """Return what a CONNECT gets; a DISCONNECT follows, which ends what was let in."""
    with wire(port) as connection:
        connection.sendall(first + b"\xe0\0")
        return heard(connection, 1)
