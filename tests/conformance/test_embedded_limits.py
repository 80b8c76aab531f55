"""What the embedded broker bears: silence, malice, greed, and clients that do not keep up."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from broker.embedded import Reason
from tests.harness.inthread import InThread
from tests.harness.rawmqtt import (
    CONNACK,
    connect,
    heard,
    joined,
    packet,
    publish,
    subscribe,
    text,
    wire,
)
from tests.harness.waiting import wait_until

# paho leaves sockets open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_embedded`
ACCEPTED = CONNACK + b"\0"


@pytest.mark.parametrize("last", [b"", b"\x30\x7f\0\4"], ids=["nothing", "half a packet"])
def test_it_ends_a_silent_client(ours: InThread, client: Make, last: bytes) -> None:
    """After 1.5 times its keepalive, and publishes its will; half a packet is no packet."""
    watcher = client(ours.port, "watcher")
    watcher.subscribe("will")
    with wire(ours.port) as connection:
        connection.sendall(connect("silent", keepalive_s=1, will=("will", b"lost")) + last)
        assert heard(connection, 4) == ACCEPTED
        assert heard(connection, 1) == b""
    assert watcher.next() == ("will", b"lost")
    assert ours.broker.refused == {Reason.SILENT: 1}


def test_a_client_that_pings_stays(network: Any) -> None:
    quiet = network.client("pi-4", keepalive_s=0)
    agent = network.client("gaming-pc", keepalive_s=3)  # a ping may be late by half of that
    assert not agent.gone.wait(7.0)
    assert not quiet.gone.is_set()
    assert not network.refused


def test_a_broker_that_stood_still_ends_nobody(network: Any) -> None:
    """It was the broker that was silent; who says something then is still there."""

    async def stand_still() -> None:
        time.sleep(3.0)  # noqa: ASYNC251 - as a machine that sleeps does

    with joined(
        network.port, network.tls("gaming-pc"), first=connect("x", keepalive_s=1)
    ) as connection:
        network.running.call(stand_still())
        connection.sendall(b"\xc0\0")
        assert heard(connection, 2) == b"\xd0\0"
    assert not network.refused


@pytest.fixture(params=["network", "loopback"])
def served(request: pytest.FixtureRequest) -> tuple[InThread, Any]:
    """A broker with certificates and what an observer speaks; one on loopback, and nothing."""
    if request.param == "loopback":
        return request.getfixturevalue("ours"), None
    network = request.getfixturevalue("network")
    return network.running, network.tls("observer:carol")


@pytest.mark.parametrize(
    "bad",
    [
        packet(0x36, text("fleet/gaming-pc/status") + b"\0\1x"),  # QoS 3
        packet(0x30, text("fleet/+/status") + b"x"),
        packet(0x30, text("") + b"x"),
        packet(0x30, text("fleet/a\0b") + b"x"),
        packet(0x30, b"\0\4fl\xffx" + b"x" * 20),
        packet(0x30, b"\0\xfffleet"),
        packet(0x80, b"\0\1" + text("fleet/#") + b"\0"),  # the flags of no SUBSCRIBE
        packet(0x82, b"\0\1"),
        packet(0x82, b"\0\1" + text("fleet/#") + b"\3"),
        packet(0x82, b"\0\1\0\xff"),
        packet(0xC0, b"\xd0\0"),  # a PINGREQ with another packet in it
        packet(0x20, b"\0\0"),  # a CONNACK
        connect("again"),
        b"\x00\x00",
        b"\xf0\x00",
        b"\x30\xff\xff\xff\xff\xff",
    ],
    ids=str,
)
def test_what_is_no_packet_ends_the_connection(served: tuple[InThread, Any], bad: bytes) -> None:
    """Nothing after it is taken for a packet; the others do not notice."""
    running, context = served
    with joined(running.port, context) as connection:
        connection.sendall(bad + b"\xc0\0")
        assert heard(connection, 1) == b""
    wait_until(lambda: running.broker.refused == {Reason.MALFORMED: 1}, "it was not counted")


def test_a_client_has_so_many_filters(new_network: Make) -> None:
    """One more is refused, and counted; what is unsubscribed makes room, and leaves nothing."""
    network = new_network(max_filters=3)
    agent = network.client("gaming-pc")
    names = [f"fleet/gaming-pc/artifact/{number}/grant" for number in range(4)]
    assert [agent.subscribe(name) for name in names] == [1, 1, 1, 0x80]
    assert agent.subscribe(names[0]) == 1, "one that it has already"
    agent.unsubscribe(names[0])
    assert agent.subscribe(names[3]) == 1
    assert network.refused == {Reason.SUBSCRIBE: 1}
    subscriptions = network.running.broker.router.subscriptions
    assert [len(subscriptions.matching(name)) for name in names] == [0, 1, 1, 1]
    agent.stop()
    wait_until(
        lambda: not any(map(subscriptions.matching, names)), "filters of a client that has left"
    )


def test_a_name_has_so_many_retained_messages(new_network: Make) -> None:
    """Beyond that they reach whoever listens, and are not kept; other names have their own."""
    network = new_network(max_retained=2, max_retained_bytes=10_000)
    agent = network.client("gaming-pc")
    live = network.client("operator:alice", "live")
    live.subscribe("fleet/+/job/+/progress")
    for number in range(3):
        agent.publish(f"fleet/gaming-pc/job/{number}/progress", b"%d" % number, retain=True)
        assert live.next()[1] == b"%d" % number
    agent.publish("fleet/gaming-pc/job/0/progress", b"new", retain=True)
    agent.publish("fleet/gaming-pc/job/1/progress", b"x" * 20_000, retain=True)
    network.client("pi-4").publish("fleet/pi-4/job/0/progress", b"other", retain=True)
    late = network.client("operator:alice", "late")
    late.subscribe("fleet/+/job/+/progress")
    got = dict(late.next() for _ in range(2))
    assert got == {"fleet/gaming-pc/job/0/progress": b"new", "fleet/pi-4/job/0/progress": b"other"}
    assert late.got.empty()
    assert network.refused == {Reason.RETAINED: 2}
    agent.publish("fleet/gaming-pc/job/0/progress", b"", retain=True)
    agent.publish("fleet/gaming-pc/job/2/progress", b"room", retain=True)
    third = network.client("operator:alice", "third")
    third.subscribe("fleet/gaming-pc/job/+/progress")
    assert third.next() == ("fleet/gaming-pc/job/2/progress", b"room")


def _sleepy(network: Any) -> Any:
    """An operator's client whose socket is open, and that does not read it."""
    sleepy = network.client("operator:alice", "sleepy")
    sleepy.paho.loop_stop()
    return sleepy


def _unsent_bytes(network: Any) -> int:
    one = network.running.broker.router.sessions["operator:alice/sleepy"]
    size_bytes: int = one.unsent_bytes
    return size_bytes


def test_a_slow_subscriber_by_tls_is_bounded(new_network: Make) -> None:
    """What waits for it stays under the limit; the others get everything."""
    network = new_network(max_unsent_bytes=4_000_000)
    sleepy = network.client("operator:alice", "sleepy")
    sleepy.subscribe("fleet/#", 0)
    sleepy.paho.loop_stop()
    awake, agent = network.client("operator:carol"), network.client("gaming-pc")
    awake.subscribe("fleet/#", 0)
    for number in range(100):
        agent.publish(f"fleet/gaming-pc/artifact/a/chunk/{number}", b"z" * 200_000)
        assert awake.next()[0].endswith(f"/{number}")
        assert _unsent_bytes(network) <= 4_000_000
    assert network.refused[Reason.SLOW] > 50


def test_retained_messages_for_a_slow_subscriber_are_bounded(new_network: Make) -> None:
    """They wait as what they are, retained, not as copies; awake again, it gets every one."""
    network = new_network(max_unsent_bytes=2_000_000, max_retained_bytes=100_000_000)
    agent = network.client("gaming-pc")
    for number in range(50):
        topic = f"fleet/gaming-pc/job/{number}/progress"
        agent.publish(topic, b"z" * 200_000, retain=True)
    sleepy = _sleepy(network)
    for _ in range(5):
        sleepy.paho.subscribe("fleet/#")
        sleepy.paho.loop_write()
    wait_until(lambda: _unsent_bytes(network) > 0, "nothing is sent")
    for _ in range(50):
        agent.publish("fleet/gaming-pc/heartbeat", b"{}")
        assert _unsent_bytes(network) <= 2_000_000
    sleepy.paho.loop_start()
    got = set()
    while len(got) < 50:
        got.add(sleepy.next()[0])
    assert Reason.SLOW not in network.refused


def test_what_waits_for_all_together_is_bounded(new_network: Make) -> None:
    limit_bytes = 16_000_000
    network = new_network(max_queued_bytes=limit_bytes)
    for client_id, filters in (("most", ("fleet/#",)), ("less", ("fleet/+/heartbeat",))):
        one = network.client("operator:alice", client_id)
        for filter_ in filters:
            one.subscribe(filter_, 0)
        one.paho.loop_stop()
    awake, agent = network.client("operator:carol"), network.client("gaming-pc")
    awake.subscribe("fleet/#", 0)
    sessions = network.running.broker.router.sessions
    number = 0
    while "operator:alice/most" in sessions:
        number += 1
        assert number < 200, "nobody is disconnected"
        for topic in (f"fleet/gaming-pc/artifact/a/chunk/{number}", "fleet/gaming-pc/heartbeat"):
            agent.publish(topic, b"z" * 200_000)
            assert awake.next()[0] == topic
        waiting = [one.unsent_bytes for one in list(sessions.values())]
        assert sum(waiting) <= limit_bytes
    assert "operator:alice/less" in sessions
    assert network.refused == {Reason.MEMORY: 1}


def test_what_is_not_released_counts_for_all_together(new_network: Make) -> None:
    """A name may have many connections, each with 20 messages of a megabyte, and half a one."""
    network = new_network(max_queued_bytes=20_000_000)
    topic, numbers = "fleet/gaming-pc/status", range(1, 9)
    held = b"".join(publish(topic, bytes(1_000_000), qos=2, number=one) for one in numbers)
    half = publish(topic, bytes(1_000_000))[:-1]
    with contextlib.ExitStack() as stack:
        for number in range(5):
            connection = wire(network.port, network.tls("gaming-pc"))
            stack.enter_context(connection)
            connection.sendall(connect(f"hoarder-{number}"))
            assert heard(connection, 4) == ACCEPTED
            with contextlib.suppress(OSError):  # it may be this one that goes
                connection.sendall(held + half)
        wait_until(lambda: Reason.MEMORY in network.refused, "nobody is disconnected")
        sessions = list(network.running.broker.router.sessions.values())
        assert sum(one.waiting_bytes for one in sessions) <= 20_000_000


def test_a_client_that_takes_nothing_can_be_ended(network: Any) -> None:
    sleepy = network.client("operator:alice", "sleepy")
    sleepy.subscribe("fleet/#", 0)
    sleepy.paho.loop_stop()
    agent = network.client("gaming-pc")
    for number in range(40):
        agent.publish(f"fleet/gaming-pc/artifact/a/chunk/{number}", b"z" * 200_000)
    network.house.revoke("operator:alice")
    wait_until(lambda: len(network.running.broker.router.connected) == 1, "it is still there")


def test_a_sender_that_does_not_read_is_not_read_either(ours: InThread, client: Make) -> None:
    other = client(ours.port, "other")
    other.subscribe("o")
    with joined(ours.port, first=connect("flood")) as connection:
        flood = ours.broker.router.connected["flood"]
        theirs = flood.channel.transport.get_extra_info("socket")
        # Or the kernel takes some megabytes of answers.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        connection.settimeout(0.5)
        pings, sent = b"\xc0\0" * 100_000, 0

        def is_left_alone() -> bool:
            nonlocal sent
            try:
                sent += connection.send(pings[sent % 2 :])
            except TimeoutError:
                return flood.answers_bytes > 0
            return False

        wait_until(is_left_alone, "it is read")
        assert flood.channel.unsent_bytes < 500_000
        other.publish("o", b"fine")
        assert other.next() == ("o", b"fine")


def test_no_client_writes_a_line_of_its_own_into_the_log(
    network: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd = text("MQ\nERROR: all is lost\nTT") + b"\4\2\0\x3c" + text("x")
    with wire(network.port, network.tls("gaming-pc")) as connection:
        connection.sendall(packet(0x10, odd))
        assert heard(connection, 1) == b""
    network.refuses({Reason.CONNECT: 1})
    (line,) = [record.message for record in caplog.records if "refused" in record.message]
    assert "all is lost" in line
    assert "\n" not in line


def test_a_refusal_tells_no_password(network: Any, caplog: pytest.LogCaptureFixture) -> None:
    body = text("MQTT") + b"\4\xc2\0\x3c" + text("x") + text("gaming-pc") + text("s3cret")
    with wire(network.port, network.tls("gaming-pc")) as connection:
        connection.sendall(packet(0x10, body))
        assert heard(connection, 4) == ACCEPTED
        connection.sendall(subscribe("#"))
        assert heard(connection, 5)[4] == 0x80
        (one,) = network.running.broker.router.connected.values()
        assert "s3cret" not in repr(one.asked)
    assert "s3cret" not in caplog.text


def test_a_filter_and_a_topic_have_so_many_levels(served: tuple[InThread, Any]) -> None:
    """Each level takes some memory for itself: 64 KiB of slashes took 18 MiB."""
    running, context = served
    deep = "fleet/" + "/" * 60_000
    with wire(running.port, context) as connection:
        connection.sendall(connect("x") + subscribe(deep, "fleet/" + "+/" * 62 + "#"))
        assert heard(connection, 10) == ACCEPTED + b"\x90\x04\0\1\x80\0"
        connection.sendall(packet(0x31, text(deep) + b"x") + b"\xc0\0")
        assert heard(connection, 2) == b"\xd0\0"
        assert len(running.broker.router.subscriptions.matching("fleet/" + "x/" * 62)) == 1
        assert len(running.broker.router.retained) == 0
    assert running.broker.refused == {Reason.SUBSCRIBE: 1, Reason.PUBLISH: 1}


@pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "fleet/" + "/" * 10_000])
def test_a_will_goes_nowhere_that_a_message_may_not(ours: InThread, topic: str) -> None:
    with wire(ours.port) as connection:
        connection.sendall(connect("x", will=(topic, b"lie")))
        assert heard(connection, 4) == CONNACK + b"\5"
    wait_until(lambda: ours.broker.refused == {Reason.WILL: 1}, "it was not counted")
