"""What the embedded broker keeps for a client of MQTT 5 between two connections, and its wills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes

from broker.embedded import Reason
from tests.harness.inthread import InThread
from tests.harness.rawmqtt import Peer5, joined, packet, props, publish5
from tests.harness.waiting import wait_until

GOODBYE, WITH_WILL = b"\xe0\0", b"\xe0\1\4"
DUP = 8
LONG = {"SessionExpiryInterval": 600}


@pytest.fixture
def ours(new_embedded: Callable[..., InThread]) -> InThread:
    """An embedded broker on loopback that keeps two sessions at most."""
    return new_embedded(max_sessions=2)


def _leave(one: Peer5, goodbye: bytes = GOODBYE) -> None:
    one.say(goodbye)
    assert one.next() == (0, b"")


def _away(running: InThread, client_id: str, filter_: str = "q", **options: Any) -> None:
    """Have a session kept that has subscribed to something at QoS 2."""
    with Peer5(running.port, client_id, **(LONG | options)) as one:
        one.subscribe(filter_, options=2)
        _leave(one)


def _back(running: InThread, client_id: str, **options: Any) -> Peer5:
    return Peer5(running.port, client_id, clean=False, **(LONG | options))


def test_a_session_outlives_its_connection(ours: InThread) -> None:
    _away(ours, "x")
    with Peer5(ours.port, "speaker") as speaker:
        sent = [publish5("q", b"%d" % n, qos=n % 3, number=n + 1) for n in range(6)]
        speaker.say(*sent, packet(0x62, b"\0\3"), packet(0x62, b"\0\6"))
        while speaker.next() != (0x70, b"\0\6"):
            pass
    with _back(ours, "x") as one:
        assert one.present
        found = [one.message()[:3] for _ in range(4)]
        assert [(payload, flags) for flags, _, payload in found] == [
            (b"1", 2), (b"4", 2), (b"2", 4), (b"5", 4),
        ]  # fmt: skip
    with Peer5(ours.port, "x", **LONG) as again:
        assert not again.present, "a clean start"
        _leave(again, packet(0xE0, b"\0" + props(PacketTypes.DISCONNECT, SessionExpiryInterval=0)))
    with _back(ours, "x") as last:
        assert not last.present, "it was to end with the connection"


def test_what_was_not_acknowledged_is_sent_again(ours: InThread) -> None:
    with Peer5(ours.port, "x", **LONG) as one, Peer5(ours.port, "speaker") as speaker:
        one.subscribe("q", options=2)
        speaker.say(publish5("q", b"1", qos=1), publish5("q", b"2", qos=2, number=2))
        speaker.say(packet(0x62, b"\0\2"), publish5("q", b"3", qos=1, number=3))
        got = [one.next() for _ in range(3)]
        ids = {body[-1:]: body[3:5] for _, body in got}
        one.say(packet(0x50, ids[b"2"]))
        assert one.next() == (0x62, ids[b"2"])
    with _back(ours, "x", ReceiveMaximum=1) as one:
        left = dict(ids)
        while left:
            first, body = one.next()
            if first == 0x62:
                assert body == left.pop(b"2")
                one.say(packet(0x70, body))
            else:
                assert first == 0x32 | DUP
                assert body[3:5] == left.pop(body[-1:])
                one.say(packet(0x40, body[3:5]))
        one.ping()


def test_a_message_of_qos_2_is_released_on_the_next_connection(ours: InThread) -> None:
    with Peer5(ours.port, "watcher") as watcher:
        watcher.subscribe("q")
        for packets in ((publish5("q", b"1", qos=2),), (publish5("q", b"1", qos=2),)):
            with _back(ours, "x") as one:
                one.say(*packets)
                assert one.next() == (0x50, b"\0\1")
        with _back(ours, "x") as one:
            one.say(packet(0x62, b"\0\1"))
            assert one.next() == (0x70, b"\0\1")
        assert watcher.message()[2] == b"1"
        watcher.ping()


def test_a_session_expires(ours: InThread) -> None:
    _away(ours, "short", SessionExpiryInterval=1)
    wait_until(lambda: not ours.broker.router.subscriptions.matching("q"), "it is kept still")
    with _back(ours, "short") as one:
        assert not one.present
    _away(ours, "long")
    with Peer5(ours.port, "speaker") as speaker:
        speaker.say(publish5("q", b"1", qos=1, MessageExpiryInterval=1))
        speaker.say(publish5("q", b"2", qos=1, number=2, MessageExpiryInterval=600))
        speaker.say(publish5("r", b"r", qos=1, number=3, retain=True, MessageExpiryInterval=1))
        assert [speaker.next()[0] for _ in range(3)] == [0x40] * 3
    wait_until(lambda: not len(ours.broker.router.retained), "a second has not passed")
    with _back(ours, "long") as one:
        _, _, payload, found = one.message()
        assert payload == b"2"
        assert 590 < found.MessageExpiryInterval < 600


def test_so_many_sessions_are_kept(ours: InThread) -> None:
    for name in ("a", "b", "c"):
        _away(ours, name)
    wait_until(lambda: ours.broker.refused == {Reason.CROWD: 1}, "none has ended")
    for name, present in (("a", False), ("b", True), ("c", True)):
        with _back(ours, name) as one:
            assert one.present is present
            _leave(one, packet(0xE0, b"\0\5\x11\0\0\0\0"))


def test_a_session_at_level_4_begins_anew(ours: InThread) -> None:
    _away(ours, "x")
    with joined(ours.port):
        assert not ours.broker.router.subscriptions.matching("q")


def _with_will(running: InThread, client_id: str, delay_s: int, **options: Any) -> Peer5:
    named = {"WillDelayInterval": delay_s, "MessageExpiryInterval": 600, "UserProperty": ("k", "v")}
    will_props = props(PacketTypes.WILLMESSAGE, **named)
    will = ("w", client_id.encode())
    return Peer5(running.port, client_id, will=will, will_props=will_props, **options)


def test_a_will_waits_for_its_delay_or_the_end_of_the_session(ours: InThread) -> None:
    with Peer5(ours.port, "watcher") as watcher:
        watcher.subscribe("w", options=1)
        _with_will(ours, "returns", 600, **LONG).sock.close()
        wait_until(lambda: "returns" in ours.broker.router.kept, "it is there still")
        _back(ours, "returns").sock.close()
        _with_will(ours, "delayed", 1, **LONG).sock.close()
        flags, _, payload, found = watcher.message()
        assert (flags, payload, found.UserProperty) == (2, b"delayed", [("k", "v")])
        assert found.MessageExpiryInterval == 600
        _with_will(ours, "no session", 600).sock.close()
        assert watcher.message()[2] == b"no session"
        _with_will(ours, "expires", 600, SessionExpiryInterval=1).sock.close()
        assert watcher.message()[2] == b"expires"
        _with_will(ours, "anew", 600, **LONG).sock.close()
        wait_until(lambda: "anew" in ours.broker.router.kept, "it is there still")
        Peer5(ours.port, "anew").sock.close()
        assert watcher.message()[2] == b"anew"


def test_a_goodbye_may_leave_the_will(ours: InThread) -> None:
    with Peer5(ours.port, "watcher") as watcher:
        watcher.subscribe("w")
        with _with_will(ours, "polite", 0) as polite, _with_will(ours, "leaves", 0) as leaves:
            _leave(polite)
            leaves.say(WITH_WILL)
            assert watcher.message()[2] == b"leaves"


def test_what_waits_for_who_is_away_is_bounded_for_all_together(
    new_embedded: Callable[..., InThread],
) -> None:
    running = new_embedded(max_queued_bytes=400_000)
    _away(running, "much", "much")
    _away(running, "little", "little")
    with Peer5(running.port, "speaker") as speaker:
        speaker.say(publish5("little", b"1", qos=1))
        assert speaker.next() == (0x40, b"\0\1")
        for _ in range(50):
            speaker.say(publish5("much", b"x" * 10_000, qos=1))
            assert speaker.next() == (0x40, b"\0\1")
    assert running.broker.refused == {Reason.MEMORY: 1}
    with _back(running, "much") as much, _back(running, "little") as little:
        assert not much.present
        assert little.message()[2] == b"1"
