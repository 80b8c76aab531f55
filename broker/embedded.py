"""The embedded broker: amqtt, mended where the fleet would trip over it; its only importer.

Each override says which behaviour of amqtt 0.12.1 it replaces and has a test that fails on stock
amqtt (tests/conformance/test_embedded_broker.py). They reach into amqtt's internals, so another
version is refused.

It serves a fleet on one machine: loopback only, MQTT 3.1.1, nothing kept on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
from collections import Counter, deque
from collections.abc import Callable, ItemsView, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.errors import BrokerError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OutgoingApplicationMessage, Session

from broker.errors import ConfigError, LinkError
from broker.messages import MAX_CHUNK_BYTES

log = logging.getLogger("fleet.broker")

AMQTT_VERSION: Final = "0.12.1"
TOPIC_ROOM_BYTES: Final = 64 * 1024
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
MAX_UNSENT: Final = 20_000
STOP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the embedded broker listens, and its limits. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 1883
    max_packet_bytes: int = MAX_CHUNK_BYTES + TOPIC_ROOM_BYTES
    max_connections: int = 10_000

    def check(self) -> None:
        """Raise `ConfigError` for an address that is not loopback."""
        try:
            loopback = self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ConfigError(
                f"--listen {self.host}:{self.port}: the embedded broker serves this machine only, "
                "since it asks nobody who they are; listen on 127.0.0.1, or run mosquitto for a "
                "network"
            )
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"--listen {self.host}:{self.port}: the port is 0 to 65535")


class OversizePacketError(Exception):
    """A client announced a packet larger than the limit; its connection is closed."""


class _BoundedReader(StreamReaderAdapter):
    """Replaces: amqtt reads whatever length a packet announces, up to 256 MiB, into memory.

    It follows the packets' frames, since amqtt reads some kinds (SUBSCRIBE) in small pieces, and
    it reports by itself, since amqtt's reader loop swallows every exception.
    """

    def __init__(
        self, reader: asyncio.StreamReader, limit_bytes: int, on_oversize: Callable[[int], None]
    ) -> None:
        super().__init__(reader)
        self._limit_bytes = limit_bytes
        self._on_oversize = on_oversize
        self._body_left_bytes = 0
        self._header = b""
        self._ended = False

    def end(self) -> None:
        """Read nothing more; amqtt takes it for the end of the connection."""
        self._ended = True

    async def read(self, n: int = -1) -> bytes:
        if self._ended:
            return b""
        self._check(n)
        data = await super().read(n)
        body_bytes = min(len(data), self._body_left_bytes)
        self._body_left_bytes -= body_bytes
        for byte in data[body_bytes:]:
            self._follow_header(byte)
        return data

    def _follow_header(self, byte: int) -> None:
        """Take one byte of type or length, seven bits each, lowest first (MQTT 3.1.1, 2.2.3)."""
        self._header += bytes([byte])
        if len(self._header) > 1 and (byte < 0x80 or len(self._header) > 4):
            digits = self._header[1:]
            self._body_left_bytes = sum((d & 0x7F) << 7 * place for place, d in enumerate(digits))
            self._header = b""
            self._check(self._body_left_bytes)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            self._on_oversize(size_bytes)
            raise OversizePacketError(f"a packet of {size_bytes} bytes")


class _Filters(dict[str, list[tuple[Session, int]]]):
    """The subscriptions by filter, with those that have wildcards known apart.

    Replaces: amqtt loops over its dictionary while other connections change it, and now and then a
    connect fails with "dictionary changed size during iteration"; and it compares every message
    with every filter. Iteration here is over a snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wild: dict[str, None] = {}

    def __setitem__(self, key: str, value: list[tuple[Session, int]]) -> None:
        if "+" in key or "#" in key:
            self._wild[key] = None
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._wild.pop(key, None)
        super().__delitem__(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().__iter__()))

    def items(self) -> ItemsView[str, list[tuple[Session, int]]]:  # type: ignore[override]
        return dict(super().items()).items()

    def __repr__(self) -> str:
        return f"<{len(self)} filters>"  # amqtt formats all of them at every SUBSCRIBE

    def clear(self) -> None:
        self._wild.clear()
        super().clear()

    def may_match(self, topic: str) -> list[str]:
        """Return the filters that a topic may match: itself, and those with wildcards."""
        found = list(self._wild)
        if topic in self:
            found.append(topic)
        return found


class EmbeddedBroker(Broker):
    """amqtt's broker with the overrides of this module. Raises `LinkError` on another amqtt."""

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare a broker for the running event loop."""
        version = importlib.metadata.version("amqtt")
        if version != AMQTT_VERSION:
            raise LinkError(
                f"amqtt {version} is installed; the embedded broker is made for {AMQTT_VERSION}: "
                f"pip install amqtt=={AMQTT_VERSION}"
            )
        super().__init__(
            BrokerConfig.from_dict(
                {
                    "listeners": {
                        "default": {
                            "type": "tcp",
                            "bind": f"{settings.host}:{settings.port}",
                            "max_connections": settings.max_connections,
                        }
                    },
                    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}},
                }
            )
        )
        self._settings = settings
        self._subscriptions = _Filters()
        self._unsent: Counter[str] = Counter()
        self._unsent_bytes: Counter[str] = Counter()
        self._sending: set[asyncio.Task[OutgoingApplicationMessage]] = set()
        self._slow: set[str] = set()
        self._oversize = 0

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        sockets = self._servers["default"].instance.sockets
        return int(next(iter(sockets)).getsockname()[1])

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        """Replaces: amqtt's own, to bound the size of packets (`_BoundedReader`)."""
        try:
            await self._client_connected(
                listener_name,
                _BoundedReader(reader, self._settings.max_packet_bytes, self._count_oversize),
                StreamWriterAdapter(writer),
            )
        except OversizePacketError:
            pass  # counted by the reader
        finally:
            writer.close()

    def _count_oversize(self, size_bytes: int) -> None:
        self._oversize += 1
        if self._oversize == 1:
            log.warning(
                "closed a connection for a packet of %d bytes, at most %d are taken "
                "(further ones are only counted)",
                size_bytes,
                self._settings.max_packet_bytes,
            )

    async def shutdown(self) -> None:
        """Replaces: amqtt cancels the tasks of its own queue, which `_send` does not use."""
        for task in self._sending:
            task.cancel()
        await super().shutdown()

    async def _stop_handler(self, handler: BrokerProtocolHandler) -> None:
        """Replaces: amqtt cancels a client's reader and waits for its end, but asyncio loses a
        cancel that comes at the same time as a packet (before Python 3.12), and nothing ends.
        """  # noqa: D205 - one sentence
        if isinstance(handler.reader, _BoundedReader):
            handler.reader.end()
        await super()._stop_handler(handler)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Replaces: amqtt sends a new client the retained messages of everybody's filters."""
        holders = self._subscriptions.get(subscription[0], ())
        if any(holder is session for holder, _ in holders):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _run_broadcast(
        self,
        running_tasks: deque[asyncio.Task[OutgoingApplicationMessage]],  # noqa: ARG002 - see _send
    ) -> None:
        """Replaces: amqtt formats every payload for a debug line that nobody reads, scans all
        filters, and queues without limit for a subscriber that does not read.
        """  # noqa: D205 - one sentence
        broadcast = await self._broadcast_queue.get()
        topic: str = broadcast["topic"]
        filters = self._subscriptions
        if not isinstance(filters, _Filters):
            raise BrokerError("the subscriptions were replaced")
        for name in filters.may_match(topic):
            if not self._matches(topic, name):
                continue
            for session, granted_qos in list(filters.get(name, ())):
                if session.transitions.state != "connected":
                    continue  # every client has a clean session: nothing is kept for later
                if await self._topic_filtering(session, topic, Action.RECEIVE):
                    qos = broadcast.get("qos", granted_qos)
                    self._send(session, topic, broadcast["data"], qos)

    def _send(self, session: Session, topic: str, data: bytes | bytearray, qos: int) -> None:
        """Replaces: amqtt's queue of tasks lets go of its head alone, so that one subscriber that
        does not read keeps the payloads of everybody's later messages in memory.
        """  # noqa: D205 - one sentence
        handler = self._get_handler(session)
        client = session.client_id or ""
        if handler is None:
            return
        full = self._unsent_bytes[client] + len(data) > MAX_UNSENT_BYTES
        if full or self._unsent[client] >= MAX_UNSENT:
            if client not in self._slow:
                self._slow.add(client)
                log.warning("client %r does not keep up; messages for it are dropped", client)
            return
        self._unsent[client] += 1
        self._unsent_bytes[client] += len(data)
        task = asyncio.ensure_future(handler.mqtt_publish(topic, data, qos, retain=False))

        def sent(done: asyncio.Task[OutgoingApplicationMessage]) -> None:
            self._sending.discard(done)
            if not done.cancelled():
                done.exception()  # looked at, or asyncio complains: a client that went away
            self._unsent[client] -= 1
            self._unsent_bytes[client] -= len(data)
            if not self._unsent[client]:
                del self._unsent[client], self._unsent_bytes[client]
                self._slow.discard(client)

        task.add_done_callback(sent)
        self._sending.add(task)


async def serve(
    settings: ServerSettings, ready: Callable[[int], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; `ready` is given the port. Raises `LinkError` if it cannot."""
    settings.check()
    # What amqtt says at ERROR are clients' faults and tracebacks of what is told better here.
    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    logging.getLogger("transitions").setLevel(logging.ERROR)
    broker = EmbeddedBroker(settings)
    try:
        await broker.start()
    except BrokerError as error:
        raise LinkError(
            f"cannot listen on {settings.host}:{settings.port}: {_plain(error)}; is another broker "
            "running there? choose another port"
        ) from None
    ready(broker.port)
    await stop.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(broker.shutdown(), STOP_TIMEOUT_S)


def _plain(error: BaseException) -> str:
    cause = error.__cause__
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)
