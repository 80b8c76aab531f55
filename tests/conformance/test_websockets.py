"""MQTT in websockets, as dashboards in a browser speak it: the same rights, on every broker."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_to
from websockets.typing import Subprotocol

from broker.embedded import Reason, ServerSettings
from broker.errors import ConfigError
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.protocol.topics import MAX_CHUNKS, Topics
from tests.harness.inthread import InThread
from tests.harness.secure import House
from tests.harness.secured import HOSTS, PEOPLE, Actor, Secured
from tests.harness.traits import trait
from tests.harness.waiting import wait_until

# paho leaves the socket open when no websocket comes of it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TOPICS = Topics()
CONNECT = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x14\x00\x02hi"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.fixture
def connect(broker: Secured, connect_to: Callable[..., Actor]) -> Callable[..., Actor]:
    """`connect(name, ...)`: a client, by a websocket if not told otherwise."""

    def connected(name: str, *, websocket: bool = True, **options: Any) -> Actor:
        return connect_to(broker, name, websocket=websocket, **options)

    return connected


def test_the_largest_chunk_goes_both_ways(broker: Secured, connect: Callable[..., Actor]) -> None:
    agent, watcher = connect("one"), connect("operator:alice")
    topic, chunk = TOPICS.chunk("one", "a" * 64, MAX_CHUNKS - 1), bytes(MAX_CHUNK_BYTES)
    plain = connect("coordinator", websocket=False)
    plain.subscribe("fleet/+/artifact/+/chunk/+")
    agent.publish(topic, chunk)
    assert plain.next() == (topic, chunk)
    if trait("1 MiB to a websocket", broker.kind) != "at once":
        chunk = chunk[:60_000]  # which takes more than a second already
    watcher.subscribe("fleet/+/artifact/+/chunk/+")
    agent.publish(topic, chunk)
    assert watcher.next() == (topic, chunk)


def test_who_is_nobody_gets_no_websocket(broker: Secured, tmp_path: Path) -> None:
    stranger = House.make(tmp_path / "stranger")
    for options in ({"house": stranger}, {"anonymous": True}, {"plain": True}):
        actor = Actor("operator:alice", broker, websocket=True, **options)
        assert not actor.try_connect(), options


def test_a_page_of_somewhere_else_may_not(broker: Secured) -> None:
    """A browser would show its user's certificate for any page; not every broker looks."""
    careful = trait("a websocket for a page of elsewhere", broker.kind) == "refused"
    own = f"https://127.0.0.1:{broker.ports.websocket}"
    for page, may in ((own, True), ("https://example.org", not careful)):
        actor = Actor("operator:alice", broker, websocket=True, page=page)
        assert actor.try_connect() == may, page
        actor.stop()


def test_nats_looks_where_a_page_is_from(new_secured: Callable[..., Secured]) -> None:
    broker = new_secured("nats", people=PEOPLE, hosts=HOSTS, origins=("https://desk.lan",))
    for page, may in (("https://desk.lan", True), ("https://desk.lan:1", False)):
        actor = Actor("operator:alice", broker, websocket=True, page=page)
        assert actor.try_connect() == may, page
        actor.stop()


class Local:
    """The embedded broker on loopback, without certificates."""

    def __init__(self, running: InThread) -> None:
        self.running = running
        self.port: int = running.broker.websocket_port

    def answer(self, page: str, host: str) -> int:
        """The HTTP status that a browser with that page gets."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as browser:
            browser.sendall(
                f"GET /mqtt HTTP/1.1\r\nHost: {host}\r\nOrigin: {page}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Protocol: mqtt\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
            return int(browser.makefile("rb").readline().split()[1])

    def open(self) -> ClientConnection:
        """A websocket without MQTT in it yet."""
        return connect_to(f"ws://127.0.0.1:{self.port}/mqtt", subprotocols=[Subprotocol("mqtt")])

    def refuses(self, reason: Reason) -> None:
        """Check that one thing was refused, for this reason."""
        wait_until(lambda: self.running.broker.refused == {reason: 1}, f"not {reason}")


@pytest.fixture
def local(new_embedded: Callable[..., InThread]) -> Callable[..., Local]:
    """`local(setting=...)`: stopped at the test's end."""

    def start(**settings: Any) -> Local:
        return Local(new_embedded(websocket=0, **settings))

    return start


@pytest.mark.parametrize(
    ("page", "named", "answer"),
    [
        ("http://localhost:8080", (), 101),
        ("http://example.org", (), 403),
        ("https://desk.lan", ("https://desk.lan",), 101),
        ("https://desk.lan:1", ("https://desk.lan",), 403),
        ("null", (), 403),
    ],
)
def test_on_loopback_pages_of_this_machine_may_and_those_that_were_named(
    page: str, named: tuple[str, ...], answer: int, local: Callable[..., Local]
) -> None:
    """Nobody is asked who they are there: any page in a browser could command the fleet."""
    assert local(origins=named).answer(page, "127.0.0.1") == answer


def test_whoever_calls_their_server_by_this_machines_address_may_not(
    local: Callable[..., Local],
) -> None:
    """A page of a name that leads to 127.0.0.1 by now (DNS rebinding) is of that name still."""
    broker = local()
    assert broker.answer("http://evil.example:9001", "evil.example:9001") == 403
    broker.refuses(Reason.WEBSOCKET)


def test_packets_may_be_cut_into_frames_anywhere(local: Callable[..., Local]) -> None:
    """MQTT 3.1.1, 6: a receiver must not rely on where frames begin and end; pings are answered."""
    with local().open() as one:
        for byte in CONNECT[:5]:
            one.send(bytes([byte]))
        assert one.ping().wait(60)
        one.send([CONNECT[5:7], CONNECT[7:]])  # a message in several frames
        assert one.recv(10) == b"\x20\x02\x00\x00"
        one.send(PINGREQ + PINGREQ)
        heard = b""
        while len(heard) < 2 * len(PINGRESP):
            heard += bytes(one.recv(10))
        assert heard == PINGRESP + PINGRESP


def test_a_browser_that_is_gone_without_a_word_is_forgotten(local: Callable[..., Local]) -> None:
    broker = local()
    one = broker.open()
    one.send(CONNECT)
    assert one.recv(10) == b"\x20\x02\x00\x00"
    assert len(broker.running.broker.router.connected) == 1
    one.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not broker.running.broker.router.connected, "it is there still")
    one.close()


def test_what_is_no_mqtt_ends_the_websocket(local: Callable[..., Local]) -> None:
    broker = local()
    with broker.open() as one:
        one.send("text")
        with pytest.raises(ConnectionClosedError) as ended:
            one.recv(10)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1003
    broker.refuses(Reason.MALFORMED)
    broker = local(max_packet_bytes=1000)
    with broker.open() as one:
        one.send(CONNECT)
        assert one.recv(10) == b"\x20\x02\x00\x00"
        one.send(bytes(2000))
        with pytest.raises(ConnectionClosedError) as ended:
            one.recv(10)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1009
    broker.refuses(Reason.OVERSIZE)
    broker = local()
    with socket.create_connection(("127.0.0.1", broker.port), 10) as plain:
        plain.sendall(CONNECT + b"\r\n\r\n")
        assert not plain.recv(100).startswith(b"\x20")
    broker.refuses(Reason.WEBSOCKET)


def _frame(kind: int, data: bytes) -> bytes:
    """A browser's frame of less than 126 bytes, whose mask is zero."""
    return bytes([0x80 | kind, 0x80 | len(data)]) + bytes(4) + data


REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
LARGE = b"\x82\xff" + (1 << 20).to_bytes(8, "big") + bytes(4)  # the head of a frame of 1 MiB


@contextlib.contextmanager
def _opened(port: int) -> Iterator[tuple[socket.socket, BinaryIO]]:
    """A browser's websocket, by hand, and what it reads."""
    with socket.create_connection(("127.0.0.1", port), 10) as browser:
        browser.sendall(REQUEST + b"\r\n")
        with browser.makefile("rb") as answers:
            while answers.readline() != b"\r\n":
                pass
            yield browser, answers


def test_nobody_takes_much_memory_before_a_connect(local: Callable[..., Local]) -> None:
    broker = local(connect_timeout_s=600.0)
    with _opened(broker.port) as (browser, _):
        browser.sendall(LARGE + bytes(100_000))
        broker.refuses(Reason.OVERSIZE)
    broker = local(connect_timeout_s=600.0)
    with socket.create_connection(("127.0.0.1", broker.port), 10) as browser:
        lines = (b"X-%d: %s\r\n" % (number, b"x" * 8_000) for number in range(12))
        browser.sendall(REQUEST + b"".join(lines))
        broker.refuses(Reason.WEBSOCKET)


def test_what_comes_in_one_with_the_connect_may_be_large(local: Callable[..., Local]) -> None:
    """A client need not wait for the CONNACK (MQTT 3.1.1, 3.1.4)."""
    broker = local()
    with _opened(broker.port) as (browser, answers):
        body = b"\0\1a" + bytes(300_000)
        size = bytes((len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F | 0x80, len(body) >> 14))
        publish = b"\x30" + size + body
        frame = b"\x82\xff" + len(publish).to_bytes(8, "big") + bytes(4) + publish
        browser.sendall(_frame(2, CONNECT) + frame + _frame(2, PINGREQ))
        assert answers.read(6) == b"\x82\x04\x20\x02\0\0"
        assert answers.read(4) == b"\x82\x02" + PINGRESP


def test_answers_to_pings_that_nobody_reads_do_not_pile_up(local: Callable[..., Local]) -> None:
    broker, binary, ping = local(), 2, 9
    with socket.socket() as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        browser.settimeout(60)
        browser.connect(("127.0.0.1", broker.port))
        browser.sendall(REQUEST + b"\r\n")
        answers = browser.makefile("rb")
        while answers.readline() != b"\r\n":
            pass
        browser.sendall(_frame(binary, CONNECT))
        assert answers.read(6) == b"\x82\x04\x20\x02\0\0"
        (one,) = broker.running.broker.router.connected.values()
        for _ in range(16):
            browser.sendall(_frame(ping, bytes(120)) * 8_000)
            assert one.channel.unsent_bytes < 1_000_000
        browser.sendall(_frame(binary, PINGREQ))
        while (head := answers.read(2)) == b"\x8a\x78":
            answers.read(120)
        assert head + answers.read(2) == b"\x82\x02" + PINGRESP


def test_beyond_this_machine_a_websocket_needs_an_identity() -> None:
    with pytest.raises(ConfigError, match="fleet init"):
        ServerSettings(host="0.0.0.0", websocket=9001).check()  # noqa: S104 - refused
    with pytest.raises(ConfigError, match="choose another"):
        ServerSettings(port=9001, websocket=9001).check()
    with pytest.raises(ConfigError, match=r"--origin pi\.lan: write it as a browser does"):
        ServerSettings(websocket=9001, origins=("pi.lan",)).check()
