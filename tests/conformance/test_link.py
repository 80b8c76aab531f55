"""The client link on each broker: births, wills, reconnects, goodbyes."""

from __future__ import annotations

import gc
import queue
import random
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.link import GOODBYE_TIMEOUT_S, LinkSettings
from broker.protocol.acl import REWRITE_RIGHTS
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.system.address import parse_addresses
from tests.harness.ear import DEADLINE_S, Ear


@pytest.fixture
def ear() -> Iterator[Callable[..., Ear]]:
    """`ear(url, name, *filters, will=...)`; all are stopped at the end."""
    made: list[Ear] = []

    def make(
        url: str, name: str, *filters: str, will: str = "", cap_s: float = 0.5, **more: Any
    ) -> Ear:
        settings = LinkSettings(
            parse_addresses(url), name, [(one, 1) for one in filters],
            backoff_base_s=0.1, backoff_cap_s=cap_s, **({"return_cap_s": 0.5} | more),
        )  # fmt: skip
        made.append(
            Ear(settings, (lambda session: Outgoing(will, session.encode(), 1)) if will else None)
        )
        made[-1].link.start()
        return made[-1]

    yield make
    for one in made:
        one.link.stop()


@pytest.mark.parametrize("qos", [0, 1])
def test_packets_of_every_length_are_taken_apart_as_they_were_put_together(
    any_broker: Any, ear: Any, topic_root: str, qos: int
) -> None:
    """The length of a packet takes one byte more from 128, 16,384 and 2,097,152 bytes on."""
    one = ear(any_broker.url, f"{topic_root}-1", f"{topic_root}/#")
    one.next(Connected)
    about = 4 + len(f"{topic_root}/x")  # topic, its length, a QoS 1 message's id
    borders = [128, 16_384, 70_000, 1_000_000]
    sizes = [1, 2, *(max(1, border - about + step) for border in borders for step in range(-3, 4))]
    rng = random.Random(1)
    payloads = [rng.randbytes(size) for size in sizes]
    for payload in payloads:
        assert one.link.publish(Outgoing(f"{topic_root}/x", payload, qos))
    assert [one.next(Incoming).payload for _ in payloads] == payloads


def test_each_publisher_is_heard_in_order(
    any_broker: Any, client: Callable[..., Any], topic_root: str
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


@pytest.mark.parametrize("filter_", ["state/one", "state/+", "#"])
def test_retained_messages_reach_late_subscribers(
    any_broker: Any, ear: Any, topic_root: str, filter_: str
) -> None:
    one = ear(any_broker.url, f"{topic_root}-1", f"{topic_root}/ack")
    one.next(Connected)
    one.link.publish(Outgoing(f"{topic_root}/state/one", b"kept", 1, retain=True))
    one.link.publish(Outgoing(f"{topic_root}/ack", b""))
    one.next(Incoming)
    late = ear(any_broker.url, f"{topic_root}-2", f"{topic_root}/{filter_}")
    got = late.next(Incoming)
    assert (got.topic, got.payload, got.retained) == (f"{topic_root}/state/one", b"kept", True)

    one.link.publish(Outgoing(f"{topic_root}/state/one", b"", 1, retain=True))
    one.link.publish(Outgoing(f"{topic_root}/ack", b""))
    one.next(Incoming)
    later = ear(any_broker.url, f"{topic_root}-3", f"{topic_root}/{filter_}")
    later.next(Connected)
    later.link.publish(Outgoing(f"{topic_root}/state/one", b"new"))
    assert later.next(Incoming).payload == b"new"


def test_the_will_bears_its_session_and_a_goodbye_has_none(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    watcher = ear(any_broker.url, f"{topic_root}-w", f"{topic_root}/will/+")
    watcher.next(Connected)
    broken = ear(any_broker.url, f"{topic_root}-b", will=f"{topic_root}/will/b")
    session = broken.next(Connected).session
    broken.link._connection._client.socket().shutdown(socket.SHUT_RDWR)
    will = watcher.next(Incoming)
    assert (will.topic, will.payload) == (f"{topic_root}/will/b", session.encode())
    again = broken.next(Connected).session
    assert again != session

    broken.link.stop([Outgoing(f"{topic_root}/will/goodbye", b"bye")])
    assert watcher.next(Incoming).topic == f"{topic_root}/will/goodbye"
    watcher.link.publish(Outgoing(f"{topic_root}/will/end", b""))
    assert watcher.next(Incoming).topic == f"{topic_root}/will/end"


def test_more_is_subscribed_to_on_the_same_connection(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    one = ear(any_broker.url, f"{topic_root}-1", f"{topic_root}/a")
    session = one.next(Connected).session
    one.link.subscribe([(f"{topic_root}/b", 1)])
    assert one.next(Connected).session == session
    for topic in (f"{topic_root}/a", f"{topic_root}/b"):
        one.link.publish(Outgoing(topic, b"x"))
        assert one.next(Incoming).topic == topic


def test_what_is_retained_comes_before_a_word_to_oneself(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    """P9 rests on it: who has heard its word knows what was retained when it subscribed."""
    retained, word = f"{topic_root}/retained", f"{topic_root}/word"
    one = ear(any_broker.url, f"{topic_root}-1", retained)
    one.next(Connected)
    one.link.publish(Outgoing(retained, b"kept", 1, retain=True))
    assert one.next(Incoming).payload == b"kept"
    for number in range(50):
        late = ear(any_broker.url, f"{topic_root}-late-{number}", retained, word)
        heard: list[str] = []
        while word not in heard:
            event = late.events.get(timeout=DEADLINE_S)
            if isinstance(event, Incoming):
                heard.append(event.topic)
            elif isinstance(event, Connected):
                late.link.publish(Outgoing(word, b"", 1))
        assert heard == [retained, word]
        late.link.stop()


def test_a_connection_that_is_dropped_is_followed_by_another(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    one = ear(any_broker.url, f"{topic_root}-1", f"{topic_root}/a")
    session = one.next(Connected).session
    one.link.drop("it does not answer")
    assert one.next(Disconnected).why.endswith(": it does not answer")
    assert one.next(Connected).session != session


def test_two_programs_of_one_name_are_told_what_it_may_be(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    names = (f"{topic_root}-same", f"{topic_root}/#")
    one, other = (ear(any_broker.url, *names, if_twin=said) for said in ("", "stop one of them"))
    remedies = [one.next(Disconnected).remedy for _ in range(4)]
    assert f"does another program connect as '{topic_root}-same', too?" in remedies[-1]
    assert "another program" not in remedies[0]
    remedies = [other.next(Disconnected).remedy for _ in range(4)]
    assert remedies[-1] == "stop one of them"


def test_who_was_thrown_off_by_its_name_is_back_soon_after_the_other_has_gone(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    """However often that was; where nobody had let it in, each failure would double the wait."""
    names = (f"{topic_root}-same", f"{topic_root}/#")
    one = ear(any_broker.url, *names, cap_s=60.0, return_cap_s=0.5)
    one.next(Connected)
    for _ in range(9):
        other = ear(any_broker.url, *names)
        other.next(Connected)
        other.link.stop()
        gone_s = time.monotonic()
        one.next(Disconnected)
        one.next(Connected)
        assert time.monotonic() - gone_s < 10.0


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_it_comes_back_after_the_broker_was_killed(
    new_broker: Any, ear: Any, topic_root: str, kind: str
) -> None:
    broker = new_broker(kind)
    one = ear(broker.url, f"{topic_root}-1", f"{topic_root}/#")
    first = one.next(Connected).session
    broker.end(signal.SIGKILL)
    assert str(broker.port) in one.next(Disconnected).why
    assert not one.link.publish(Outgoing(f"{topic_root}/x", b"lost"))
    broker.start()
    assert one.next(Connected).session != first
    assert one.link.publish(Outgoing(f"{topic_root}/x", b"there"))
    assert one.next(Incoming).payload == b"there"


def test_the_next_address_is_taken_when_one_fails_or_ends(
    new_broker: Any, ear: Any, topic_root: str
) -> None:
    first, second = new_broker("embedded"), new_broker("embedded")
    urls = f"mqtt://127.0.0.1:1,{first.url},{second.url}"
    one = ear(urls, f"{topic_root}-1", f"{topic_root}/#")
    assert "127.0.0.1:1:" in one.next(Disconnected).why
    one.next(Connected)
    for ended, other in ((first, second), (second, first)):
        ended.end(signal.SIGKILL)
        if other is first:
            other.start()
        assert str(ended.port) in one.next(Disconnected).why
        if other is first:
            assert "127.0.0.1:1:" in one.next(Disconnected).why
        one.next(Connected)
        witness = ear(other.url, f"{topic_root}-w", f"{topic_root}/#")
        witness.next(Connected)
        assert one.link.publish(Outgoing(f"{topic_root}/x", b"there"))
        assert witness.next(Incoming).payload == b"there"
        witness.link.stop()


def test_nobody_there_is_told_with_the_address(ear: Any) -> None:
    one = ear("mqtt://127.0.0.1:1", "nobody")
    assert not one.link.publish(Outgoing("x", b"lost"))
    for _ in range(3):
        why = one.next(Disconnected).why
        assert why == "mqtt://127.0.0.1:1: Connection refused"


def test_nagle_is_off(any_broker: Any, ear: Any, topic_root: str) -> None:
    one = ear(any_broker.url, f"{topic_root}-1")
    one.next(Connected)
    sock = one.link._connection._client.socket()
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


CONNACK, NOT_AUTHORISED = b"\x20\2\0\0", b"\x20\2\0\5"
SUBACK, SUBACK_FAILURE = b"\x90\3\0\1\1", b"\x90\3\0\1\x80"


@pytest.fixture
def answering() -> Iterator[Callable[..., str]]:
    """`answering(*answers)`: the URL of a server that reads and answers so often, then hangs."""
    servers: list[socketserver.ThreadingTCPServer] = []
    over = threading.Event()

    def serve(*answers: bytes | Callable[[bytes], bytes]) -> str:
        class Answer(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                for answer in answers:
                    said = self.request.recv(65_536)
                    self.request.sendall(answer(said) if callable(answer) else answer)
                over.wait(DEADLINE_S)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"mqtt://127.0.0.1:{server.server_address[1]}"

    yield serve
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_refusal_is_told_with_the_brokers_reason(ear: Any, answering: Any) -> None:
    why = ear(answering(NOT_AUTHORISED), "one", "a/b").next(Disconnected).why
    assert "refused the connection: Not authorized" in why


def test_a_refused_subscription_is_no_connection(ear: Any, answering: Any) -> None:
    """A link that hears only a part would be worse than none; the error names the filter."""
    ended = ear(answering(CONNACK, SUBACK_FAILURE), "one", "a/b").next(Disconnected)
    assert "refused the subscription to a/b" in ended.why
    assert (ended.denied, ended.remedy) == (True, REWRITE_RIGHTS)


def test_what_is_not_granted_at_qos_1_is_asked_for_at_qos_0(ear: Any, answering: Any) -> None:
    """As by a cluster that has lost a node; the next time it is QoS 1 again (T3)."""
    asked: list[int] = []

    def grant(subscribe: bytes) -> bytes:
        asked.append(subscribe[-1])
        return SUBACK_FAILURE if asked[-1] else SUBACK

    one = ear(answering(CONNACK, grant), "one", "a/b")
    assert "refused the subscription to a/b" in one.next(Disconnected).why
    one.next(Connected)
    one.link._connection._client.socket().shutdown(socket.SHUT_RDWR)
    one.next(Connected)
    assert asked == [1, 0, 1, 0]


def test_a_broker_that_says_nothing_does_not_hold_up_the_end(ear: Any, answering: Any) -> None:
    for answers in ((), (CONNACK, SUBACK)):
        one = ear(answering(*answers), "one", "a/b")
        if answers:
            one.next(Connected)
        begun_s = time.monotonic()
        one.link.stop([Outgoing("a/b", bytes(30_000_000))])  # more than the sockets hold
        assert time.monotonic() - begun_s < GOODBYE_TIMEOUT_S + 20


def test_a_link_that_is_stopped_while_it_connects_ends_at_once(ear: Any, answering: Any) -> None:
    """The broker's last answer comes after the stop, and before the next look at it."""
    made: queue.Queue[Ear] = queue.Queue()
    ended: queue.Queue[float] = queue.Queue()

    def grant(_subscribe: bytes) -> bytes:
        one = made.get(timeout=DEADLINE_S)
        begun_s = time.monotonic()

        def stop() -> None:
            one.link.stop()
            ended.put(time.monotonic() - begun_s)

        threading.Thread(target=stop, daemon=True).start()
        one.link._stopping.wait(DEADLINE_S)
        return SUBACK

    made.put(ear(answering(CONNACK, grant), "one", "a/b"))
    assert ended.get(timeout=2 * DEADLINE_S) < 3.0


def test_what_a_broker_does_not_take_is_bounded(
    monkeypatch: pytest.MonkeyPatch, ear: Any, answering: Any
) -> None:
    monkeypatch.setattr("broker.client.connection.MAX_OUTSTANDING_BYTES", 10_000)
    monkeypatch.setattr("broker.client.link.GOODBYE_TIMEOUT_S", 0.0)
    one = ear(answering(CONNACK, SUBACK), "one", "a/b")
    one.next(Connected)
    taken = [one.link.publish(Outgoing("a/b", bytes(1000))) for _ in range(20)]
    assert taken == [True] * 10 + [False] * 10


@pytest.mark.skipif(sys.platform != "linux", reason="counts what is open by /proc")
def test_a_link_that_is_stopped_leaves_no_socket_open(
    any_broker: Any, ear: Any, topic_root: str
) -> None:
    open_files = Path("/proc/self/fd")
    gc.collect()
    gc.disable()
    try:
        before = len(list(open_files.iterdir()))
        for _ in range(5):
            one = ear(any_broker.url, f"{topic_root}-1", f"{topic_root}/#")
            one.next(Connected)
            one.link.stop()
        assert len(list(open_files.iterdir())) <= before
    finally:
        gc.enable()
