"""The sender's window and messages follow the path: slow or fast, lossy, a slow disk behind it.

The path is a queue in front of a link of a fixed rate; whatever enters it waits for what is in it.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.protocol.messages import MAX_CHUNK_BYTES, Grant
from broker.stream.ranges import RangeSet
from broker.stream.stream import (
    CHUNK_BYTES,
    WINDOW_BYTES,
    Complete,
    Receiver,
    SendChunk,
    Sender,
    WriteChunk,
)

MB = 1e6


@dataclass
class Path:
    """One link: its rate in bytes a second, and the time it takes either way."""

    rate: float
    delay_s: float
    loss: float = 0.0
    disk_rate: float = 1e12
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    queue_bytes: float = 1e12  # what does not fit is lost


@dataclass
class Seen:
    took_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)  # in the queue, of each message
    lengths: list[int] = field(default_factory=list)
    sent_bytes: int = 0
    unwritten_bytes: int = 0


class Transfer:
    """One artifact over a path, event by event."""

    def __init__(self, size_bytes: int, path: Path, *, window_bytes: int = WINDOW_BYTES) -> None:
        self.size_bytes, self.path, self.seen = size_bytes, path, Seen()
        self.now_s = self._free_s = self._disk_free_s = 0.0
        self._unwritten = 0
        self._events: list[tuple[float, int, str, Any]] = []
        self._count = 0
        self._over = False
        self.sender = Sender(size_bytes, CHUNK_BYTES)
        self.receiver = Receiver(size_bytes, CHUNK_BYTES, RangeSet(), window_bytes)

    def run(self) -> Seen:
        self._receives(self.receiver.ask(0.0))
        while not self._over:
            due = [self.sender.next_deadline(), self.receiver.next_deadline()]
            due += [one[0] for one in self._events[:1]]
            at_s = min(one for one in due if one is not None)
            self.now_s = max(self.now_s, at_s)
            assert self.now_s < 3000.0, "it does not come to an end"
            if self._events and self._events[0][0] <= self.now_s:
                _, _, kind, value = heapq.heappop(self._events)
                self._happens(kind, value)
            self._sends(self.sender.on_timer(self.now_s))
            self._receives(self.receiver.on_timer(self.now_s))
        self.seen.took_s = self.now_s
        return self.seen

    def _later(self, at_s: float, kind: str, value: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, self._count, kind, value))

    def _happens(self, kind: str, value: Any) -> None:
        if kind == "grant":
            self._sends(self.sender.on_grant(value, self.now_s))
        elif kind == "written":
            self._unwritten -= value
            self._receives(self.receiver.on_written(value, self.now_s))
        else:
            self._receives(self.receiver.on_chunk(value.index, value.length, self.now_s))

    def _sends(self, chunks: list[SendChunk]) -> None:
        path, seen = self.path, self.seen
        for effect in chunks:
            wait_s = max(0.0, self._free_s - self.now_s)
            seen.sent_bytes += effect.length
            if wait_s * path.rate > path.queue_bytes:
                continue
            seen.waits_s.append(wait_s)
            seen.lengths.append(effect.length)
            self._free_s = max(self._free_s, self.now_s) + effect.length / path.rate
            if path.rng.random() >= path.loss:
                self._later(self._free_s + path.delay_s, "chunk", effect)

    def _receives(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Grant):
                self._later(self.now_s + self.path.delay_s, "grant", effect)
            elif isinstance(effect, Complete):
                self._over = True
            elif isinstance(effect, WriteChunk):
                length = effect.end - effect.begin
                self._unwritten += length
                self.seen.unwritten_bytes = max(self.seen.unwritten_bytes, self._unwritten)
                began_s = max(self._disk_free_s, self.now_s)
                self._disk_free_s = began_s + length / self.path.disk_rate
                self._later(self._disk_free_s, "written", length)


def seconds_of(path: Path, seconds: float) -> int:
    """Return how many bytes pass in so long."""
    return int(path.rate * seconds)


@pytest.mark.parametrize(
    ("rate", "delay_s"),
    [(0.5 * MB, 0.02), (12 * MB, 0.001), (12 * MB, 0.05), (120 * MB, 0.005), (400 * MB, 0.0005)],
)
def test_the_path_is_full_and_its_queue_short(rate: float, delay_s: float) -> None:
    """From a phone's uplink to loopback: most of the rate, and others wait 0.25 s at most."""
    path = Path(rate, delay_s)
    size_bytes = seconds_of(path, 10.0)
    seen = Transfer(size_bytes, path).run()
    assert size_bytes / seen.took_s > 0.85 * rate
    waits_s = sorted(seen.waits_s)
    assert waits_s[int(0.99 * len(waits_s))] < 0.25, "a heartbeat would wait behind it"
    assert seen.sent_bytes < 1.02 * size_bytes, "it is sent twice though nothing is lost"


def test_a_slow_path_gets_small_messages_and_a_fast_one_large_ones() -> None:
    slow, fast = Path(0.5 * MB, 0.3), Path(300 * MB, 0.001)
    assert max(Transfer(seconds_of(slow, 10.0), slow).run().lengths) <= 64 * 1024
    lengths = Transfer(seconds_of(fast, 3.0), fast).run().lengths
    assert sorted(lengths)[len(lengths) // 2] >= 128 * 1024


def test_single_losses_cost_little() -> None:
    path = Path(100 * MB, 0.002)
    size_bytes = seconds_of(path, 5.0)
    undisturbed_s = Transfer(size_bytes, path).run().took_s
    lossy = Transfer(size_bytes, Path(path.rate, path.delay_s, loss=0.01)).run()
    assert undisturbed_s / lossy.took_s > 0.8
    assert lossy.sent_bytes < 1.1 * size_bytes


def test_a_queue_that_overflows_makes_the_window_smaller() -> None:
    """A broker that drops what it has no room for is not flooded again and again."""
    path = Path(50 * MB, 0.02, queue_bytes=1_000_000)
    size_bytes = seconds_of(path, 10.0)
    seen = Transfer(size_bytes, path).run()
    assert seen.sent_bytes < 1.3 * size_bytes
    assert size_bytes / seen.took_s > 0.3 * path.rate


def test_a_slow_disk_holds_the_sender_back() -> None:
    path = Path(200 * MB, 0.001, disk_rate=20 * MB)
    window_bytes = 1024 * 1024
    seen = Transfer(100 * 1000 * 1000, path, window_bytes=window_bytes).run()
    assert seen.unwritten_bytes <= 2 * window_bytes  # the one that is granted, the one on its way
    assert 100 * MB / seen.took_s > 0.9 * path.disk_rate


def test_a_path_that_gets_longer_is_followed() -> None:
    """The shortest round trip is measured anew now and then, or the window would stay too small."""
    path = Path(20 * MB, 0.002)
    transfer = Transfer(seconds_of(path, 60.0), path)
    transfer._later(5.0, "grant", Grant(missing=(), horizon=0, window_chunks=512, span_chunks=64))
    longer = transfer._happens

    def happens(kind: str, value: Any) -> None:
        if transfer.now_s > 5.0:
            path.delay_s = 0.05
        longer(kind, value)

    transfer._happens = happens  # type: ignore[method-assign]
    seen = transfer.run()
    assert transfer.size_bytes / seen.took_s > 0.7 * path.rate


def test_messages_grow_only_as_what_is_twice_as_small_gets_through() -> None:
    """So a broker that takes no large packets is not sent one out of the blue."""
    path = Path(300 * MB, 0.001)
    seen = Transfer(seconds_of(path, 1.0), path).run()
    largest = CHUNK_BYTES
    for length in seen.lengths:
        assert length <= 2 * largest
        largest = max(largest, length)
    assert largest <= MAX_CHUNK_BYTES
