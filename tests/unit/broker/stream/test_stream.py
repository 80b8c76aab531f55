"""The chunk stream: two real ends on a wire that loses, repeats, delays and reorders."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from broker.errors import BadStream
from broker.protocol.messages import Grant, decode, encode
from broker.stream.ranges import RangeSet
from broker.stream.stream import (
    Complete,
    Receiver,
    SendChunk,
    Sender,
    WriteChunk,
    chunk_count,
)

_GRANT = TypeAdapter(Grant)
CHUNK = 1024
LIMIT_S = 4000.0


class Wire:
    """Sender, receiver and what lies between them; grants are encoded and decoded."""

    def __init__(self, size: int, seed: int, *, loss: float = 0.0, repeat: float = 0.0,
                 delay_s: float = 0.01, window: int = 16) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.loss, self.repeat, self.delay_s, self.window = loss, repeat, delay_s, window
        self.content = self.rng.randbytes(size)
        self.disk = bytearray(size)
        self.have = RangeSet()
        self.now_s = 0.0
        self.sent: list[int] = []
        self.most_in_flight = 0
        self.over: Any = None
        self._queue: list[tuple[float, int, str, Any]] = []
        self._count = 0
        self.sender = Sender(size, CHUNK)
        self.replace_receiver()

    def replace_receiver(self) -> None:
        """Begin, or go on from what is on the disk; the sender has announced the artifact."""
        room_bytes = self.window * CHUNK
        self.receiver = Receiver(len(self.content), CHUNK, RangeSet(self.have), room_bytes)
        self._receives(self.receiver.ask(self.now_s), b"")

    def run(self, steps: int = 10**9) -> None:
        """Let things happen until all is there, or for some steps."""
        for _ in range(steps):
            if self.over is not None:
                return
            self._step()

    def _step(self) -> None:
        due = [self.sender.next_deadline(), self.receiver.next_deadline()]
        due += [self._queue[0][0]] if self._queue else []
        self.now_s = max(self.now_s, min(at_s for at_s in due if at_s is not None))
        assert self.now_s < LIMIT_S, "the stream does not come to an end"
        while self._queue and self._queue[0][0] <= self.now_s:
            _, _, target, message = heapq.heappop(self._queue)
            (self._to_sender if target == "sender" else self._to_receiver)(message)
        self._sends(self.sender.on_timer(self.now_s))
        self._receives(self.receiver.on_timer(self.now_s), b"")

    def _post(self, target: str, message: Any) -> None:
        if self.rng.random() < self.loss:
            return
        for _ in range(2 if self.rng.random() < self.repeat else 1):
            self._count += 1
            at_s = self.now_s + self.delay_s * self.rng.random()
            heapq.heappush(self._queue, (at_s, self._count, target, message))

    def _to_sender(self, payload: bytes) -> None:
        self._sends(self.sender.on_grant(decode(_GRANT, payload), self.now_s))

    def _to_receiver(self, message: Any) -> None:
        index, data = message
        self._receives(self.receiver.on_chunk(index, len(data), self.now_s), data)
        self._receives(self.receiver.on_written(len(data), self.now_s), b"")

    def _sends(self, chunks: list[SendChunk]) -> None:
        for chunk in chunks:
            count = chunk_count(chunk.length, CHUNK)
            self.sent += range(chunk.index, chunk.index + count)
            data = self.content[chunk.offset : chunk.offset + chunk.length]
            self._post("receiver", (chunk.index, data))
        self.most_in_flight = max(self.most_in_flight, self.sender.in_flight_bytes)

    def _receives(self, effects: list[Any], data: bytes) -> None:
        for effect in effects:
            if isinstance(effect, WriteChunk):
                piece = data[effect.begin : effect.end]
                stop = effect.index + chunk_count(len(piece), CHUNK)
                assert not self.have.overlaps(effect.index, stop), "written twice"
                self.disk[effect.offset : effect.offset + len(piece)] = piece
                self.have.add(effect.index, stop)
            elif isinstance(effect, Grant):
                self._post("sender", encode(effect))
            elif isinstance(effect, Complete):
                self.over = effect


sizes = st.one_of(
    st.integers(1, 3 * CHUNK), st.integers(1, 40).map(lambda chunks: chunks * CHUNK),
    st.integers(1, 200 * CHUNK),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    sizes, st.integers(0, 2**32), st.floats(0, 0.6), st.floats(0, 0.5), st.floats(0, 2.0),
    st.integers(1, 40),
)  # fmt: skip
def test_whatever_the_wire_does_the_bytes_arrive(
    size: int, seed: int, loss: float, repeat: float, delay_s: float, window: int
) -> None:
    """S1 to S4: in the end the receiver has exactly what the sender had, within its window."""
    wire = Wire(size, seed, loss=loss, repeat=repeat, delay_s=delay_s, window=window)
    wire.run()
    assert bytes(wire.disk) == wire.content
    assert wire.most_in_flight <= window * CHUNK


@settings(max_examples=80, deadline=None)
@given(sizes, st.integers(0, 2**32), st.lists(st.booleans(), max_size=4), st.integers(1, 60))
def test_either_side_may_be_replaced_at_any_time(
    size: int, seed: int, replacements: list[bool], steps: int
) -> None:
    """S5: a new receiver goes on from what is surely on disk, a new sender from the next grant."""
    wire = Wire(size, seed, loss=0.1)
    for replace_sender in replacements:
        wire.run(steps)
        if wire.over is not None:
            break
        if replace_sender:
            wire.sender = Sender(size, CHUNK)
        else:
            wire.have = RangeSet(span for span in wire.have if wire.rng.random() < 0.5)
            wire.replace_receiver()
    wire.run()
    assert bytes(wire.disk) == wire.content


@pytest.mark.parametrize("size", [1, CHUNK, CHUNK + 1, 16 * CHUNK, 100 * CHUNK, 100 * CHUNK - 1])
def test_on_a_good_wire_nothing_is_sent_twice(size: int) -> None:
    wire = Wire(size, 1, delay_s=0.0)
    wire.run()
    assert sorted(wire.sent) == list(range(-(-size // CHUNK)))


def test_many_holes_are_named_a_part_at_a_time() -> None:
    wire = Wire(1000 * CHUNK, 1, loss=1.0)
    wire.loss = 0.0  # what was said before is lost
    wire.have = RangeSet((index, index + 1) for index in range(0, 1000, 2))
    for index in range(0, 1000, 2):
        wire.disk[index * CHUNK : (index + 1) * CHUNK] = wire.content[
            index * CHUNK : (index + 1) * CHUNK
        ]
    wire.replace_receiver()
    wire.run()
    assert bytes(wire.disk) == wire.content
    assert set(wire.sent) == set(range(1, 1000, 2)), "a chunk that was there is sent"


def test_a_lost_chunk_is_sent_again_before_any_time_is_over() -> None:
    """Three later ones acknowledged: that is enough (S3)."""
    sender = Sender(100 * CHUNK, CHUNK)
    first = sender.on_grant(Grant(missing=((0, 100),), horizon=100, window_chunks=8), 0.1)
    assert [chunk.index for chunk in first if isinstance(chunk, SendChunk)] == list(range(8))
    again = sender.on_grant(Grant(missing=((0, 1), (4, 100)), horizon=100, window_chunks=8), 0.2)
    assert SendChunk(0, 0, CHUNK) in again


@pytest.mark.parametrize(
    ("index", "length"), [(-1, CHUNK), (3, CHUNK), (0, CHUNK - 1), (2, CHUNK), (2, 0)]
)
def test_a_chunk_that_does_not_fit_is_refused(index: int, length: int) -> None:
    """S4: by its index, or by its length."""
    receiver = Receiver(2 * CHUNK + 10, CHUNK, RangeSet())
    with pytest.raises(BadStream):
        receiver.on_chunk(index, length, 0.0)
    (grant,) = receiver.ask(0.0)
    assert isinstance(grant, Grant)
    assert grant.missing == ((0, 3),)


@pytest.mark.parametrize("missing", [((0, 9),), ((3, 3),), ((2, 4), (3, 5))])
def test_a_grant_that_does_not_fit_is_refused(missing: Any) -> None:
    sender = Sender(5 * CHUNK, CHUNK)
    with pytest.raises(BadStream):
        sender.on_grant(Grant(missing=missing, horizon=9, window_chunks=4), 0.0)


def test_a_receiver_that_asks_again_and_again_does_not_keep_its_sender_from_sending() -> None:
    """All that was sent is lost, and grants come sooner than the sender waits for an answer."""
    sender, grant = Sender(4 * CHUNK, CHUNK), Grant(missing=((0, 4),), horizon=4, window_chunks=4)
    sent = sender.on_grant(grant, 0.0)
    due_s = sender.next_deadline()
    assert sent
    assert due_s is not None
    assert sender.on_grant(grant, 0.9 * due_s) == [], "it may be on its way"
    assert sender.on_timer(due_s), "the grant has not put that off"


def test_a_sender_knows_how_much_has_arrived() -> None:
    sender = Sender(1000, 100)
    assert sender.share is None
    sender.on_grant(Grant(missing=((0, 10),), horizon=10, window_chunks=4), 1.0)
    assert sender.share == 0.0
    sender.on_grant(Grant(missing=((4, 6), (8, 10)), horizon=10, window_chunks=4), 2.0)
    assert sender.share == 0.6
    sender.on_grant(Grant(missing=((4, 5),), horizon=5, window_chunks=4), 3.0)
    assert sender.share == 0.4, "of what is past the horizon nothing is known"
