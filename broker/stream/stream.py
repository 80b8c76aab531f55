"""The chunk stream: sender and receiver of one artifact, without IO. protocol.md, section 6.

The receiver draws. A grant names the missing ranges of chunks and how many chunks may be in flight;
it acknowledges whatever it no longer names. Chunks that come twice are ignored, what is lost is
sent again, and either side may be replaced at any time: the receiver starts from what is on its
disk, the sender from the next grant.

Two windows bound the sender: the receiver's, which is its room less what it has yet to write, and
its own (`broker.stream.congestion`). Loss is detected as in QUIC (RFC 9002, 6.1.1 and 6.2): a span
is lost when one sent three or more later is acknowledged, or when nothing moves for a time that
follows the measured round trip (RFC 6298). Times are monotonic seconds, handed in.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.errors import BadStream
from broker.protocol.messages import CHUNK_BYTES, MAX_CHUNK_BYTES, Grant
from broker.protocol.topics import MAX_CHUNKS
from broker.stream.congestion import MESSAGE_BYTES, Pace
from broker.stream.ranges import RangeSet

WINDOW_BYTES: Final = 4 * 1024 * 1024
REORDER: Final = 3
MAX_RANGES: Final = 64
MAX_SPAN_CHUNKS: Final = 1024
RTO_INITIAL_S: Final = 1.0
RTO_MIN_S: Final = 0.3
RTO_MAX_S: Final = 10.0
GRANT_BYTES: Final = 1024 * 1024
GRANT_DELAY_S: Final = 0.003
STALL_BASE_S: Final = 0.5
STALL_CAP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Sender: publish `length` bytes from `offset`: whole chunks, the first of which is `index`."""

    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Receiver: write what has just come at `offset`, from its byte `begin` up to `end`.

    It is whole chunks, the first of which is `index`; `on_written` says when it is done.
    """

    index: int
    offset: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Receiver: every chunk has been written; check the whole."""


ReceiverEffect = WriteChunk | Grant | Complete  # a grant is to be published


def chunk_count(size_bytes: int, chunk_bytes: int) -> int:
    """Return how many chunks an artifact has."""
    return -(-size_bytes // chunk_bytes)


def chunk_size(size_bytes: int, most_bytes: int = MAX_CHUNK_BYTES) -> int:
    """Return a size of chunks, at most `most_bytes`, that an artifact of any size can have."""
    chunk_bytes = CHUNK_BYTES
    while chunk_count(size_bytes, chunk_bytes) > MAX_CHUNKS:
        chunk_bytes *= 2
    return min(chunk_bytes, most_bytes)


@dataclass(slots=True)
class _Sent:
    stop: int  # one past its last chunk
    length: int  # bytes
    order: int
    sent_s: float
    again: bool


class Sender:
    """Sends the chunks that are granted, a window at a time."""

    def __init__(
        self, size_bytes: int, chunk_bytes: int, message_bytes: int = MESSAGE_BYTES
    ) -> None:
        """Set what there is to send, and how much a message may carry; in bytes, all positive."""
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._chunks = chunk_count(size_bytes, chunk_bytes)
        self._todo = RangeSet()
        self._in_flight: OrderedDict[int, _Sent] = OrderedDict()
        self.in_flight_bytes = 0
        self._window_chunks = 0
        self._span_chunks = 1
        self._reached = 0  # one past the highest chunk that was sent
        self._pace = Pace(chunk_bytes, message_bytes)
        self._order = 0
        self._acked_order = 0
        self._srtt_s: float | None = None
        self._rttvar_s = 0.0
        self._is_stalled = False
        self._deadline_s: float | None = None
        self.share: float | None = None  # of the chunks, as far as the receiver has said

    @property
    def message_bytes(self) -> int:
        """How large a message is at present."""
        return self._pace.message_bytes

    def reaching(self) -> int | None:
        """Return the largest message (bytes) that has arrived, if a larger one is in flight."""
        proven_bytes = self._pace.proven_bytes
        larger = any(sent.length > proven_bytes for sent in self._in_flight.values())
        return proven_bytes if larger else None

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is wanted, or none."""
        return self._deadline_s

    def on_grant(self, grant: Grant, now_s: float) -> list[SendChunk]:
        """Send what the receiver lacks. Raises `BadStream` for ranges outside the artifact."""
        missing = self._missing(grant)
        self.share = max(0, min(grant.horizon, self._chunks) - missing.count()) / self._chunks
        self._window_chunks = grant.window_chunks
        self._span_chunks = grant.span_chunks
        flying = len(self._in_flight)
        self._acknowledge(grant, missing, now_s)
        self._is_stalled = False
        return self._send(now_s, moves=len(self._in_flight) < flying)

    def on_timer(self, now_s: float) -> list[SendChunk]:
        """Nothing has moved: send the oldest again, once; then the receiver has to ask."""
        if self._deadline_s is None or now_s < self._deadline_s:
            return []
        self._deadline_s = None  # until the next grant
        self._is_stalled = True
        oldest = [(index, sent.stop) for index, sent in self._in_flight.items()][:2]
        return [self._chunk(start, stop, now_s) for start, stop in oldest]

    def _missing(self, grant: Grant) -> RangeSet:
        edge = 0
        for start, stop in grant.missing:
            if not edge <= start < stop <= min(self._chunks, grant.horizon):
                raise BadStream(f"grant names chunks {start} to {stop} of {self._chunks}")
            edge = stop
        return RangeSet(grant.missing)

    def _acknowledge(self, grant: Grant, missing: RangeSet, now_s: float) -> None:
        flying_bytes = self.in_flight_bytes
        newest: _Sent | None = None
        known = [one for one in self._in_flight.items() if one[1].stop <= grant.horizon]
        for index, sent in known:
            if not missing.overlaps(index, sent.stop):
                self._land(index)
                newest = sent if newest is None or sent.order > newest.order else newest
                self._pace.proven_bytes = max(self._pace.proven_bytes, sent.length)
                if not sent.again:  # Karn: what was sent twice measures nothing
                    self._measure(now_s - sent.sent_s, now_s)
        if newest is not None:
            self._acked_order = max(self._acked_order, newest.order)
            self._pace.on_acked(flying_bytes - self.in_flight_bytes)
        for index, sent in known:
            late = sent.order + REORDER <= self._acked_order
            if index in self._in_flight and (self._is_stalled or late):
                self._land(index)
                if not self._is_stalled:
                    self._pace.on_lost()
        self._todo = missing
        for index, sent in self._in_flight.items():
            self._todo.discard(index, sent.stop)

    def _land(self, index: int) -> None:
        self.in_flight_bytes -= self._in_flight.pop(index).length

    def _send(self, now_s: float, *, moves: bool) -> list[SendChunk]:
        """Send what the window has room for; `moves`: some that were in flight are not any more.

        A grant by which nothing moves does not put off the deadline (RFC 6298, 5.3): a receiver
        that asks again and again would else keep its sender from ever sending again.
        """
        chunks: list[SendChunk] = []
        granted_bytes = self._window_chunks * self._chunk_bytes
        window_bytes = min(self._pace.window_bytes, granted_bytes)
        # A small window is of some messages all the same, so that one is under way at any time.
        most_chunks = max(1, min(self._span_chunks, window_bytes // self._chunk_bytes // 4))
        most_chunks = min(most_chunks, self._pace.message_bytes // self._chunk_bytes)
        while (found := self._todo.first_range()) is not None:
            start, stop = found[0], min(found[1], found[0] + most_chunks)
            if self.in_flight_bytes + (stop - start) * self._chunk_bytes > window_bytes:
                break
            self._todo.discard(start, stop)
            chunks.append(self._chunk(start, stop, now_s))
        if moves or chunks or self._deadline_s is None:
            self._deadline_s = now_s + self._rto_s()
        return chunks

    def _chunk(self, start: int, stop: int, now_s: float) -> SendChunk:
        if start in self._in_flight:
            self._land(start)
        again, self._reached = start < self._reached, max(self._reached, stop)
        offset = start * self._chunk_bytes
        length = min(stop * self._chunk_bytes, self._size_bytes) - offset
        self._order += 1
        self._in_flight[start] = _Sent(stop, length, self._order, now_s, again)
        self.in_flight_bytes += length
        return SendChunk(start, offset, length)

    def _measure(self, rtt_s: float, now_s: float) -> None:
        self._pace.on_round_trip(rtt_s, now_s)
        if self._srtt_s is None:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
            return
        self._rttvar_s = 0.75 * self._rttvar_s + 0.25 * abs(self._srtt_s - rtt_s)
        self._srtt_s = 0.875 * self._srtt_s + 0.125 * rtt_s

    def _rto_s(self) -> float:
        if self._srtt_s is None:
            return RTO_INITIAL_S
        return min(RTO_MAX_S, max(RTO_MIN_S, self._srtt_s + 4 * self._rttvar_s + GRANT_DELAY_S))


class Receiver:
    """Draws the chunks that are missing. `have` are those on disk already; it is taken over."""

    def __init__(
        self,
        size_bytes: int,
        chunk_bytes: int,
        have: RangeSet,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Set what there is to receive, and how much of it there is room for; in bytes."""
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._chunks = chunk_count(size_bytes, chunk_bytes)
        self._have = have
        self.window_bytes = window_bytes  # may be changed; the next grant says so
        self._granted_chunks = 0
        self._unwritten_bytes = 0
        self._new_bytes = 0
        self._stalls = 0
        self._grant_due_s: float | None = None
        self._stall_due_s: float | None = None
        self._complete = False
        self.idle_since = 0.0

    def ask(self, now_s: float) -> list[ReceiverEffect]:
        """Say what is missing: the sender is there, perhaps another one than before."""
        self.idle_since = now_s
        return self._grant(now_s)

    def on_chunk(self, index: int, length: int, now_s: float) -> list[ReceiverEffect]:
        """Some chunks have come. Raises `BadStream` when index or length does not fit.

        What is there already is not written again: the bytes that came first are the ones that
        were hashed.
        """
        stop = self._stop_of(index, length)
        self.idle_since = now_s
        self._stalls = 0
        if self._complete:
            return []
        offset, effects = index * self._chunk_bytes, list[ReceiverEffect]()
        for start, end in self._have.gaps(index, stop):
            self._have.add(start, end)
            first = start * self._chunk_bytes
            last = min(end * self._chunk_bytes, self._size_bytes)
            effects.append(WriteChunk(start, first, first - offset, last - offset))
            self._new_bytes += last - first
            self._unwritten_bytes += last - first
        whole = self._have.count() == self._chunks
        if whole or self._new_bytes >= min(GRANT_BYTES, self.window_bytes // 4):
            return effects + self._grant(now_s)
        if self._grant_due_s is None:
            # Also for one that came twice: its sender does not know yet.
            self._grant_due_s = now_s + GRANT_DELAY_S
        return effects

    def on_written(self, length: int, now_s: float) -> list[ReceiverEffect]:
        """So many bytes of what was to be written are: there is room again."""
        self._unwritten_bytes = max(0, self._unwritten_bytes - length)
        room_chunks = self._room_chunks()
        worth_chunks = max(1, 2 * self._granted_chunks, self.window_bytes // self._chunk_bytes // 4)
        if self._complete or room_chunks < worth_chunks:
            return []
        return self._grant(now_s)

    def on_timer(self, now_s: float) -> list[ReceiverEffect]:
        """Grant what was held back a moment, or again since nothing comes."""
        due_s = self.next_deadline()
        if self._complete or due_s is None or now_s < due_s:
            return []
        if self._grant_due_s is None:
            self._stalls += 1
        return self._grant(now_s)

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is wanted, or none."""
        if self._complete or self._stall_due_s is None:
            return self._grant_due_s
        return min(self._stall_due_s, self._grant_due_s or self._stall_due_s)

    def _stop_of(self, index: int, length: int) -> int:
        stop = index + chunk_count(length, self._chunk_bytes)
        if not 0 <= index < stop <= self._chunks:
            raise BadStream(f"{length} bytes from chunk {index} of {self._chunks}")
        due_bytes = min(stop * self._chunk_bytes, self._size_bytes) - index * self._chunk_bytes
        if length != due_bytes:
            raise BadStream(f"{length} bytes from chunk {index} on instead of {due_bytes}")
        return stop

    def _room_chunks(self) -> int:
        window_bytes = max(self.window_bytes, self._chunk_bytes)
        return max(0, window_bytes - self._unwritten_bytes) // self._chunk_bytes

    def _grant(self, now_s: float) -> list[ReceiverEffect]:
        missing = self._have.gaps(0, self._chunks, MAX_RANGES)
        self._new_bytes = 0
        self._grant_due_s = None
        if not missing:
            first, self._complete, self._stall_due_s = not self._complete, True, None
            return [Complete()] if first else []
        horizon = self._chunks if len(missing) < MAX_RANGES else missing[-1][1]
        wait_s = min(STALL_CAP_S, STALL_BASE_S * 2.0 ** min(self._stalls, 16))
        self._stall_due_s = now_s + wait_s
        self._granted_chunks = self._room_chunks()
        grant = Grant(
            missing=tuple(missing),
            horizon=horizon,
            window_chunks=self._granted_chunks,
            span_chunks=min(MAX_SPAN_CHUNKS, max(1, MAX_CHUNK_BYTES // self._chunk_bytes)),
        )
        return [grant]
