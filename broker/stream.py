"""The chunk stream: sender and receiver of one artifact, without IO. docs/protocol.md, section 6.

The receiver draws. A grant names the missing ranges of chunks and how many chunks may be in
flight; it acknowledges whatever it no longer names. Chunks that come twice are ignored, what is
lost is sent again, and either side may be replaced by a new one at any time: the receiver starts
from what is on its disk, the sender from the next grant. A stale grant costs some repeated chunks,
nothing else.

Loss is told as QUIC tells it (RFC 9002, 6.1.1 and 6.2): a chunk is lost when one that was sent
three or more later has been acknowledged, or when nothing moves for a time that follows the
measured round trip (RFC 6298). Times are monotonic seconds, handed in.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.errors import BadStream
from broker.messages import Grant, GrantMessage, Rejected, Stored
from broker.ranges import RangeSet

WINDOW_CHUNKS: Final = 16
REORDER: Final = 3
MAX_RANGES: Final = 64
RTO_INITIAL_S: Final = 1.0
RTO_MIN_S: Final = 0.3
RTO_MAX_S: Final = 10.0
OFFER_BASE_S: Final = 1.0
OFFER_CAP_S: Final = 30.0
GRANT_DELAY_S: Final = 0.05
STALL_BASE_S: Final = 0.5
STALL_CAP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SendOffer:
    """Sender: publish the offer (again)."""


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Sender: publish `length` bytes from `offset` as chunk `index`."""

    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Done:
    """Sender: the receiver has stored the artifact."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Sender: the receiver does not take the artifact; `final` if it never will."""

    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Receiver: write the chunk just received at `offset`."""

    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class SendGrant:
    """Receiver: publish this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Complete:
    """Receiver: every chunk has been written; check the whole."""


SenderEffect = SendOffer | SendChunk | Done | Refused
ReceiverEffect = WriteChunk | SendGrant | Complete


def chunk_count(size_bytes: int, chunk_bytes: int) -> int:
    """Return how many chunks an artifact has."""
    return -(-size_bytes // chunk_bytes)


@dataclass(slots=True)
class _Sent:
    order: int
    at_s: float
    again: bool


class Sender:
    """Sends the chunks that are granted, a window at a time."""

    def __init__(self, size_bytes: int, chunk_bytes: int) -> None:
        """Set what there is to send; both in bytes, both positive."""
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._chunks = chunk_count(size_bytes, chunk_bytes)
        self._todo = RangeSet()
        self._in_flight: OrderedDict[int, _Sent] = OrderedDict()
        self._window = WINDOW_CHUNKS
        self._order = 0
        self._acked_order = 0
        self._srtt_s: float | None = None
        self._rttvar_s = 0.0
        self._silences = 0
        self._deadline_s: float | None = None
        self._offers = False
        self._over = False
        self.share: float | None = None  # of the chunks, as far as the receiver has said

    def start(self, now_s: float) -> list[SenderEffect]:
        """Offer the artifact; not called for a download, where the receiver speaks first."""
        self._offers = True
        self._deadline_s = now_s + OFFER_BASE_S
        return [SendOffer()]

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is wanted, or none."""
        return self._deadline_s

    def on_grant(self, message: GrantMessage, now_s: float) -> list[SenderEffect]:
        """Take what the receiver says. Raises `BadStream` for ranges outside the artifact."""
        if self._over:
            return []
        if isinstance(message, Stored | Rejected):
            self._over, self._deadline_s = True, None
            self._in_flight.clear()
            return [
                Done() if isinstance(message, Stored) else Refused(message.reason, message.final)
            ]
        missing = self._missing(message)
        self.share = max(0, min(message.horizon, self._chunks) - missing.count()) / self._chunks
        self._window = message.window_chunks
        self._acknowledge(message, missing, now_s)
        self._silences = 0
        return self._send(now_s)

    def on_timer(self, now_s: float) -> list[SenderEffect]:
        """Nothing has moved: send the oldest again; if the receiver stays silent, offer again."""
        if self._over or self._deadline_s is None or now_s < self._deadline_s:
            return []
        self._silences += 1
        if self._silences == 1 and self._in_flight:
            self._deadline_s = now_s + self._rto_s()
            return [self._chunk(index, now_s) for index in list(self._in_flight)[:2]]
        if not self._offers:
            self._deadline_s = None  # a client that still wants something will say so
            return []
        wait_s = min(OFFER_CAP_S, OFFER_BASE_S * 2.0 ** min(self._silences, 16))
        self._deadline_s = now_s + wait_s
        return [SendOffer()]

    def _missing(self, grant: Grant) -> RangeSet:
        edge = 0
        for start, stop in grant.missing:
            if not edge <= start < stop <= min(self._chunks, grant.horizon):
                raise BadStream(f"grant names chunks {start} to {stop} of {self._chunks}")
            edge = stop
        return RangeSet(grant.missing)

    def _acknowledge(self, grant: Grant, missing: RangeSet, now_s: float) -> None:
        stalled = self._silences > 0
        known = [index for index in self._in_flight if index < grant.horizon]
        for index in known:
            if index not in missing:
                sent = self._in_flight.pop(index)
                self._acked_order = max(self._acked_order, sent.order)
                if not sent.again:  # Karn: a chunk sent twice measures nothing
                    self._measure(now_s - sent.at_s)
        for index in known:
            kept = self._in_flight.get(index)
            if kept and (stalled or kept.order + REORDER <= self._acked_order):
                del self._in_flight[index]
        self._todo = missing
        for index in self._in_flight:
            self._todo.discard(index, index + 1)

    def _send(self, now_s: float) -> list[SenderEffect]:
        effects: list[SenderEffect] = []
        while len(self._in_flight) < self._window and (index := self._todo.first()) is not None:
            self._todo.discard(index, index + 1)
            effects.append(self._chunk(index, now_s))
        self._deadline_s = now_s + self._rto_s()
        return effects

    def _chunk(self, index: int, now_s: float) -> SendChunk:
        again = index in self._in_flight
        self._order += 1
        self._in_flight[index] = _Sent(self._order, now_s, again)
        self._in_flight.move_to_end(index)
        offset = index * self._chunk_bytes
        return SendChunk(index, offset, min(self._chunk_bytes, self._size_bytes - offset))

    def _measure(self, rtt_s: float) -> None:
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
        window_chunks: int = WINDOW_CHUNKS,
    ) -> None:
        """Set what there is to receive; sizes in bytes, the window in chunks."""
        self._size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._chunks = chunk_count(size_bytes, chunk_bytes)
        self._have = have
        self._window = window_chunks
        self._new = 0
        self._stalls = 0
        self._deadline_s: float | None = None
        self._complete = False
        self.idle_since = 0.0

    @property
    def received_chunks(self) -> int:
        """How many chunks are there."""
        return self._have.count()

    def on_offer(self, now_s: float) -> list[ReceiverEffect]:
        """The sender offers (again), or this receiver begins: say what is missing."""
        self.idle_since = now_s
        return self._grant(now_s)

    def on_chunk(self, index: int, length: int, now_s: float) -> list[ReceiverEffect]:
        """A chunk has come. Raises `BadStream` when its index or length does not fit."""
        if not 0 <= index < self._chunks:
            raise BadStream(f"chunk {index} of {self._chunks}")
        offset = index * self._chunk_bytes
        due_bytes = min(self._chunk_bytes, self._size_bytes - offset)
        if length != due_bytes:
            raise BadStream(f"chunk {index} has {length} bytes instead of {due_bytes}")
        self.idle_since = now_s
        self._stalls = 0
        if index in self._have or self._complete:
            # The sender does not know yet; it learns by the next grant, soon.
            self._deadline_s = now_s + GRANT_DELAY_S if not self._complete else None
            return []
        self._have.add(index, index + 1)
        self._new += 1
        effects: list[ReceiverEffect] = [WriteChunk(index, offset)]
        if self._have.count() == self._chunks or self._new >= max(1, self._window // 4):
            return effects + self._grant(now_s)
        self._deadline_s = now_s + GRANT_DELAY_S
        return effects

    def on_timer(self, now_s: float) -> list[ReceiverEffect]:
        """Grant what was held back a moment, or again since nothing comes."""
        if self._complete or self._deadline_s is None or now_s < self._deadline_s:
            return []
        if not self._new:
            self._stalls += 1
        return self._grant(now_s)

    def next_deadline(self) -> float | None:
        """Return when `on_timer` is wanted, or none."""
        return self._deadline_s

    def _grant(self, now_s: float) -> list[ReceiverEffect]:
        missing = self._have.missing(self._chunks, MAX_RANGES)
        self._new = 0
        if not missing:
            first, self._complete, self._deadline_s = not self._complete, True, None
            return [Complete()] if first else []
        horizon = self._chunks if len(missing) < MAX_RANGES else missing[-1][1]
        wait_s = min(STALL_CAP_S, STALL_BASE_S * 2.0 ** min(self._stalls, 16))
        self._deadline_s = now_s + wait_s
        grant = Grant(missing=tuple(missing), horizon=horizon, window_chunks=self._window)
        return [SendGrant(grant)]
