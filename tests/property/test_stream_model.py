"""The chunk stream over a bad network, step by step against one byte string."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.protocol.messages import Grant
from broker.stream.ranges import RangeSet
from broker.stream.stream import (
    Complete,
    Receiver,
    SendChunk,
    Sender,
    WriteChunk,
    chunk_count,
)

CHUNK, WINDOW = 10, 4
KIND_STEPS = 4000


class StreamMachine(RuleBasedStateMachine):
    """Chunks and grants are lost, repeated, late; either side is replaced at any time."""

    @initialize(size=st.integers(1, 400), seed=st.integers(0, 10_000))
    def begin(self, size: int, seed: int) -> None:
        """A sender with the bytes, a receiver with none."""
        self.rng = random.Random(seed)
        self.data = self.rng.randbytes(size)
        self.disk = bytearray(size)
        self.written = RangeSet()
        self.complete = False
        self.now_s = 0.0
        self.chunks: list[tuple[int, int]] = []
        self.unwritten = 0
        self.grants: list[Grant] = []
        self._new_receiver(self.written)
        self._new_sender()

    def _new_sender(self) -> None:
        self.sender = Sender(len(self.data), CHUNK)
        self._take(list(self.receiver.ask(self.now_s)))

    def _new_receiver(self, have: RangeSet) -> None:
        self.written = RangeSet(have)
        self.unwritten = 0
        self.receiver = Receiver(len(self.data), CHUNK, RangeSet(have), WINDOW * CHUNK)

    def _take(self, effects: list[object]) -> None:
        for effect in effects:
            match effect:
                case SendChunk(index, offset, length):
                    assert self.data[offset : offset + length]
                    assert offset == index * CHUNK
                    self.chunks.append((index, length))
                case Grant():
                    self.grants.append(effect)
                case Complete():
                    self.complete = True

    def _chunk_comes(self, index: int, length: int) -> None:
        """What comes is written now or later, each byte once."""
        data = self.data[index * CHUNK : index * CHUNK + length]
        effects = list(self.receiver.on_chunk(index, length, self.now_s))
        for effect in effects:
            if isinstance(effect, WriteChunk):
                piece = data[effect.begin : effect.end]
                assert len(piece) == effect.end - effect.begin
                stop = effect.index + chunk_count(len(piece), CHUNK)
                assert not self.written.overlaps(effect.index, stop), "written twice"
                self.disk[effect.offset : effect.offset + len(piece)] = piece
                self.written.add(effect.index, stop)
                self.unwritten += len(piece)
        self._take(effects)

    @rule(share=st.floats(0, 1))
    def disk_gets_on(self, share: float) -> None:
        """A slow disk takes some of what waits for it."""
        if self.unwritten:
            length = max(1, int(self.unwritten * share))
            self.unwritten -= length
            self._take(list(self.receiver.on_written(length, self.now_s)))

    @rule(lost=st.booleans(), again=st.booleans(), which=st.integers(0, 1000))
    def network_moves_a_chunk(self, lost: bool, again: bool, which: int) -> None:
        """Any chunk on its way: lost, delivered, or delivered and still on its way."""
        if self.chunks:
            span = self.chunks.pop(which % len(self.chunks))
            if again:
                self.chunks.append(span)
            if not lost:
                self._chunk_comes(*span)

    @rule(lost=st.booleans(), again=st.booleans(), which=st.integers(0, 1000))
    def network_moves_a_grant(self, lost: bool, again: bool, which: int) -> None:
        if self.grants:
            grant = self.grants.pop(which % len(self.grants))
            if again:
                self.grants.append(grant)
            if not lost:
                before_bytes = self.sender.in_flight_bytes
                self._take(list(self.sender.on_grant(grant, self.now_s)))
                room_bytes = grant.window_chunks * CHUNK
                assert self.sender.in_flight_bytes <= max(room_bytes, before_bytes)

    @rule(seconds=st.floats(0.01, 30.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        for side in (self.sender, self.receiver):
            due_s = side.next_deadline()
            if due_s is not None and due_s <= self.now_s:
                self._take(list(side.on_timer(self.now_s)))

    @rule()
    def sender_restarts(self) -> None:
        """A new process of the agent knows nothing of the stream."""
        self._new_sender()

    @rule(keep=st.integers(0, 100))
    def receiver_restarts(self, keep: int) -> None:
        """A new process of the coordinator has what is surely on its disk: maybe less."""
        if self.complete:
            return
        kept = RangeSet()
        for start, stop in self.written:
            for index in range(start, stop):
                if self.rng.randrange(100) < keep:
                    kept.add(index, index + 1)
        self._new_receiver(kept)
        self._take(list(self.receiver.ask(self.now_s)))

    @invariant()
    def what_is_written_is_right(self) -> None:
        """A part of the bytes, at its place; all of them when it says complete."""
        if not hasattr(self, "data"):
            return
        for start, stop in self.written:
            span = slice(start * CHUNK, stop * CHUNK)
            assert self.disk[span] == self.data[span]
        if self.complete:
            assert bytes(self.disk) == self.data

    def teardown(self) -> None:
        """Once the network is kind, it completes."""
        if not hasattr(self, "data"):
            return
        for _ in range(KIND_STEPS):
            if self.complete:
                break
            if self.grants:
                self._take(list(self.sender.on_grant(self.grants.pop(0), self.now_s)))
            elif self.chunks:
                self._chunk_comes(*self.chunks.pop(0))
            else:
                self.disk_gets_on(1.0)
                self.time_passes(1.0)
        assert self.complete, f"stuck with {self.written} of {chunk_count(len(self.data), CHUNK)}"
        assert bytes(self.disk) == self.data


StreamMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None
)  # fmt: skip
TestStream = StreamMachine.TestCase
