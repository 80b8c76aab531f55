"""The texts in the window of one job."""

from __future__ import annotations

import io

from rich.console import Console

from coordinator.jobs.causes import cause
from coordinator.jobs.in_words import remedy, words
from coordinator.top import detail_pages


def test_a_history_is_read_in_any_window() -> None:
    """Words that do not fit go on below themselves; a narrow window leaves columns out."""
    why = "its certificate was revoked by operator:alice, and it is given nothing more"
    event = {"at": "2026-01-02T12:00:00Z", "event": "released", "host": "media-box-4",
             "why": cause("text", text=why),
             "who": "operator:root"}  # fmt: skip
    for window in (51, 90):
        out = io.StringIO()
        Console(file=out, width=window).print(detail_pages.events([event], "host"))
        head, _, *body = out.getvalue().splitlines()
        indent = head.index("WHY")
        assert body[0].index("its certificate") == indent
        assert body[1].startswith(" " * indent)
        assert " ".join(" ".join(line[indent:] for line in body).split()) == why
        assert ("BY" in head) == (window == 90)


def test_reasons_are_told_once_with_their_hosts() -> None:
    """What would help comes first; what no waiting ends before what passes."""
    reasons = [{"code": "no-cuda"}, {"code": "busy", "available": 1}]
    change = {"code": "resume", "host": "pi-0", "hosts": ["pi-0"], "count": 1}
    hosts = [{"host": f"pi-{n}", "reasons": reasons} for n in range(8)]
    data = {
        "state": "pending", "in_plan": True, "paused": None, "known": 9, "fits": 0,
        "hopeless": False, "suitable": {}, "remedies": [change],
        "hosts": [*hosts, {"host": "pc", "reasons": []}],
    }  # fmt: skip
    lines = [line.strip() for line in detail_pages.why(data).plain.splitlines() if line]
    assert lines == [
        "none of 9 known hosts can take it now", "What would change that:", remedy(change),
        *map(words, reasons),
        "8: pi-0, pi-1, pi-2, pi-3, pi-4, pi-5 and 2 more", "can take it", "1: pc",
    ]  # fmt: skip
