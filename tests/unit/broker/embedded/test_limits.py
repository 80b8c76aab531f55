"""Refusals are counted, and logged without filling the log."""

from __future__ import annotations

import logging

import pytest

from broker.embedded.limits import Reason, Refusals


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
