"""`fleet show`: how long a job took, with what its earlier attempts took."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.cli.show import _took


def event(minute: int, before: str, after: str) -> dict[str, Any]:
    """A move of a job, at a minute of an hour that is long past."""
    return {"at": f"2026-05-28T20:{minute:02}:00Z", "from": before, "to": after}


FIRST = [
    event(0, "pending", "claimed"), event(1, "claimed", "running"),
    event(3, "running", "running"), event(8, "running", "pending"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "began", "ended", "words"),
    [
        ([], None, None, "-"),
        (FIRST, None, None, "7 min the attempt before"),
        (
            [*FIRST, event(9, "pending", "claimed"), event(10, "claimed", "running"),
             event(12, "running", "completed")],
            10, 12, "2 min the newest attempt, 9 min all 2 together",
        ),
        (
            [*FIRST, event(10, "claimed", "running"), event(12, "running", "pending")],
            None, None, "9 min all 2 together",
        ),
        ([event(10, "claimed", "running"), event(12, "running", "failed")], 10, 12, "2 min"),
    ],
)  # fmt: skip
def test_what_a_job_took_has_its_earlier_attempts(
    events: list[dict[str, Any]], began: int | None, ended: int | None, words: str
) -> None:
    """A move within running starts none and ends none."""
    at = {
        name: None if minute is None else f"2026-05-28T20:{minute:02}:00Z"
        for name, minute in (("started_at", began), ("finished_at", ended))
    }
    assert _took({"events": events, **at}) == words
