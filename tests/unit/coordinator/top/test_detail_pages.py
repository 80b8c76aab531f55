"""The texts in the window of one job."""

from __future__ import annotations

import pytest

from coordinator.jobs.reason_words import remedy, words
from coordinator.top import detail


@pytest.mark.words
def test_reasons_are_told_once_with_their_hosts() -> None:
    """What would help comes first; what no waiting ends before what passes."""
    reasons = [{"code": "no-cuda"}, {"code": "busy", "available": 1}]
    change = {"code": "resume", "host": "pi-0", "hosts": ["pi-0"], "count": 1}
    hosts = [{"host": f"pi-{n}", "reasons": reasons} for n in range(8)]
    data = {
        "state": "pending", "in_plan": True, "paused": None, "known": 9,
        "hopeless": False, "suitable": {}, "remedies": [change],
        "hosts": [*hosts, {"host": "pc", "reasons": []}],
    }  # fmt: skip
    lines = [line.strip() for line in detail.why(data).plain.splitlines() if line]
    assert lines == [
        "none of 9 known hosts can take it now", "What would change that:", remedy(change),
        *map(words, reasons),
        "8: pi-0, pi-1, pi-2, pi-3, pi-4, pi-5 and 2 more", "nothing else is against it", "1: pc",
    ]  # fmt: skip
