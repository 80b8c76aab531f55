"""A client's packets, cut out of its bytes before amqtt sees them.

Replaces: amqtt reads whatever length a packet announces, up to 256 MiB, into memory; it trusts the
lengths within a packet more than the packet's own, so that the rest of one is taken for the next;
and after one that it cannot read it goes on.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, Final, Protocol

from amqtt.adapters import BufferReader, StreamReaderAdapter
from amqtt.errors import AMQTTError, CodecError, MQTTError, NoDataError
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import (
    CONNECT,
    PUBLISH,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    MQTTFixedHeader,
)

LENGTH_BYTES: Final = 4  # of the remaining length (MQTT 3.1.1, 2.2.3)
FLAGS: Final = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}  # of all others but PUBLISH none (2.2.2)
QOS_FLAGS: Final = 0b0110
BAD_PACKET: Final = (AMQTTError, MQTTError, NoDataError, CodecError, ValueError, struct.error)


class OversizePacketError(Exception):
    """A client announced a packet larger than the limit."""


class MalformedPacketError(Exception):
    """A client sent what is no packet, or none that it may send now."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One packet as it came: its fixed header, and the bytes that the header announced."""

    header: MQTTFixedHeader
    body: bytes


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """The largest bodies that are read, in bytes, by type of packet."""

    connect_bytes: int
    publish_bytes: int
    other_bytes: int

    def of(self, kind: int) -> int:
        """Return the limit of one type."""
        if kind == PUBLISH:
            return self.publish_bytes
        limit_bytes = self.connect_bytes if kind == CONNECT else self.other_bytes
        return min(limit_bytes, self.publish_bytes)


class Source(Protocol):
    """Where a client's bytes come from."""

    async def readexactly(self, size_bytes: int, /) -> bytes:
        """Return so many bytes; `asyncio.IncompleteReadError` at the end of the connection."""
        ...


class PacketReader(StreamReaderAdapter):
    """Reads one packet after the other. amqtt itself is not given it to read from."""

    def __init__(self, reader: Source, limits: PacketLimits) -> None:
        super().__init__(reader)
        self._limits = limits

    async def frame(self, only: int | None = None) -> Frame | None:
        """Return the next packet, or none at the end of the connection.

        Raises, before the body is read, `OversizePacketError`, and `MalformedPacketError` also for
        another type than `only`.
        """
        try:
            first = (await self._reader.readexactly(1))[0]
            if only not in {None, first >> 4}:
                raise MalformedPacketError(f"packet type {first >> 4}, not {only}")
            size_bytes = await self._length()
            limit_bytes = self._limits.of(first >> 4)
            if size_bytes > limit_bytes:
                raise OversizePacketError(
                    f"a packet of {size_bytes} bytes, at most {limit_bytes} are taken"
                )
            body = await self._reader.readexactly(size_bytes)
        except (asyncio.IncompleteReadError, OSError):
            return None
        return Frame(MQTTFixedHeader(first >> 4, first & 0x0F, size_bytes), body)

    async def _length(self) -> int:
        """Return the remaining length: seven bits a byte, lowest first (MQTT 3.1.1, 2.2.3)."""
        size_bytes = 0
        for place in range(LENGTH_BYTES):
            byte = (await self._reader.readexactly(1))[0]
            size_bytes |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return size_bytes
        raise MalformedPacketError("a length of more than four bytes")


class Body(BufferReader):
    """The bytes of one packet, for amqtt's decoders, some of which bear that there are too few."""

    def __init__(self, buffer: bytes) -> None:
        super().__init__(buffer)
        self._short = False

    async def read(self, n: int = -1) -> bytes:
        """Return the next bytes, fewer than asked for at the end."""
        data = bytes(await super().read(n))
        self._short = self._short or len(data) < n
        return data

    @property
    def fitted(self) -> bool:
        """Whether it was read to its end, and no further."""
        return not self._short and not self._stream.read(1)


async def decode(frame: Frame) -> Any:
    """Return amqtt's packet. Raises `MalformedPacketError` unless it is just as long as it says."""
    kind, flags = frame.header.packet_type, frame.header.flags
    fitting = flags & QOS_FLAGS != QOS_FLAGS if kind == PUBLISH else flags == FLAGS.get(kind, 0)
    if not fitting:
        raise MalformedPacketError(f"packet type {kind}: flags {flags:04b}")
    body = Body(frame.body)
    try:
        packet = await packet_class(frame.header).from_stream(body, fixed_header=frame.header)
    except BAD_PACKET as error:
        raise MalformedPacketError(f"packet type {kind}: {error}") from None
    if not body.fitted:
        raise MalformedPacketError(f"packet type {kind}: not as long as it says")
    return packet
