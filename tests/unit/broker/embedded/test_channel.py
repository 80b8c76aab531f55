"""Packets are cut out of a stream of bytes, however it is chopped."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.embedded.channel import Channel
from broker.embedded.packets import Code, RefusedError
from tests.harness.rawmqtt import packet

LIMITS = {3: 1_000_000}


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.reads.set()

    def pause_reading(self) -> None:
        self.reads.clear()

    def resume_reading(self) -> None:
        self.reads.set()


def _cut(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the packets of a connection on which these pieces come."""

    async def read() -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        end: asyncio.Future[list[tuple[int, bytes]]] = asyncio.get_running_loop().create_future()
        transport = _Transport()

        async def serve(channel: Channel) -> None:
            channel.limit_of = lambda kind: LIMITS.get(kind, 65_536)
            try:
                while (one := await channel.packet()) is not None:
                    found.append(one)
                end.set_result(found)
            except RefusedError as error:
                end.set_exception(error)
                transport.reads.set()

        channel = Channel(serve)
        channel.connection_made(transport)
        for piece in pieces:
            await transport.reads.wait()
            channel.data_received(piece)
        channel.eof_received()
        return await end

    return asyncio.run(read())


@given(
    st.lists(st.sampled_from([0, 1, 100, 127, 128, 16_384, 200_000]), max_size=6),
    st.lists(st.integers(1, 300_000), max_size=12),
)
def test_packets_are_the_same_however_their_bytes_are_chopped(
    sizes: list[int], cuts: list[int]
) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    rest = b"".join(packet(0x30, body) for body in bodies)
    pieces = []
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    assert _cut([*pieces, rest]) == [(0x30, body) for body in bodies]


@pytest.mark.parametrize(
    ("begins", "code"),
    [
        (b"\x30\xc1\x84\x3d", Code.TOO_LARGE),  # 1,000,001 bytes
        (b"\x82\x81\x80\x04", Code.TOO_LARGE),  # 65,537
        (b"\x30\x80\x80\x80\x80", Code.MALFORMED),
    ],
)
def test_a_packet_that_is_too_long_is_known_by_its_length(begins: bytes, code: Code) -> None:
    for pieces in ([begins], [bytes([byte]) for byte in begins]):
        with pytest.raises(RefusedError) as caught:
            _cut(pieces)
        assert caught.value.code is code
