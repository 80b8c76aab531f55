"""Refusals are counted, and logged without filling the log; the load is measured."""

from __future__ import annotations

import logging

import pytest

from broker.embedded.limits import Meter, Reason, Refusals
from broker.protocol.messages import BROKER_LOAD, decode, encode


def test_what_is_refused_is_logged_once_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    with caplog.at_level(logging.WARNING, "fleet.broker"):
        for _ in range(5):
            refusals.add(Reason.PUBLISH, "client 'a' may not publish to 'b'")
        refusals.add(Reason.WILL, "client 'a' may not have a will")
        now_s = 59.0
        refusals.add(Reason.PUBLISH, "again")
        now_s = 61.0
        refusals.add(Reason.PUBLISH, "again" * 1000)
    lines = [record.message for record in caplog.records]
    assert len(lines) == 3
    assert lines[0] == "refused (publish): client 'a' may not publish to 'b'"
    assert lines[2].endswith("(and 5 more since the last line)")
    assert len(lines[2]) < 400
    assert refusals.counts == {Reason.PUBLISH: 7, Reason.WILL: 1}


class Clocks:
    """Time and processor time, as a test says."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0
        self.meter = Meter(lambda: self.now_s, lambda: self.cpu_s)

    def pass_(
        self, seconds: int, *, messages: int = 0, cpu_s: float = 0.0, late_s: float = 0.0
    ) -> None:
        """Let seconds pass with so much in each."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.cpu_s += cpu_s
            self.meter.messages += messages
            self.meter.size_bytes += 100 * messages
            self.meter.tick(late_s)


def test_the_load_is_the_mean_of_what_was_done() -> None:
    clocks = Clocks()
    clocks.pass_(10, messages=50, cpu_s=0.25)
    load = clocks.meter.load(clients=3, max_clients=10)
    assert (load.messages_s, load.bytes_s, load.busy) == (50.0, 5_000, 0.25)
    assert (load.clients, load.max_clients) == (3, 10)
    assert decode(BROKER_LOAD, encode(load)) == load


def test_what_was_a_minute_ago_is_over() -> None:
    clocks = Clocks()
    clocks.pass_(3_600, messages=1_000, cpu_s=1.0, late_s=2.0)
    clocks.pass_(62)
    load = clocks.meter.load(1, 10)
    assert (load.messages_s, load.busy, load.lag_p99_s) == (0.0, 0.0, 0.0)


def test_one_late_moment_of_many_does_not_count() -> None:
    clocks = Clocks()
    clocks.pass_(1, late_s=5.0)
    clocks.pass_(100)
    assert clocks.meter.load(1, 10).lag_p99_s == 0.0
    clocks.pass_(3, late_s=0.4)
    assert clocks.meter.load(1, 10).lag_p99_s == 0.4
