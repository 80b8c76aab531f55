"""The replay of histories, on which the simulation rests, notices what does not fit."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from broker.clock import Now
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import spec
from tests.harness.replay import contradiction

NOW = Now(1.0, 1.8e9)
MOVES: list[tuple[Event, dict[str, Any]]] = [
    (Event.ASSIGNED, {"host": "pi", "attempt": 1}),
    (Event.STARTED, {}),
    (Event.COMPLETED, {"artifact_id": "ab" * 32}),
    (Event.REQUEUED, {"host": None}),
    (Event.ASSIGNED, {"host": "pi", "attempt": 2}),
]


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (1, {"attempt": 3}, "attempt 3 after 0"),
        (1, {"host": None}, "claimed without a host"),
        (2, {"host": "po"}, "host po, the event before had pi"),
        (2, {"to": "completed"}, "from claimed to completed"),
        (4, {"from": "failed"}, "event before led to completed"),
        (4, {"event": "added", "from": None}, "a job is added once"),
        (4, {"event": "vanished"}, "'vanished' is not a valid Event"),
        (5, {"host": "po"}, "host po, the row has pi"),
    ],
)
def test_an_event_that_does_not_fit_is_told(
    number: int, change: dict[str, Any], words: str
) -> None:
    book = JobBook()
    job = book.add(spec(), NOW, "test")
    for event, changes in MOVES:
        job = book.move(job, event, NOW, "test", **changes)
    with closing(Ledger(":memory:")) as ledger:
        ledger.commit(book.take_changes())
        events: list[dict[str, Any]] = ledger.events(job.job_id)
    assert contradiction(job, events) == ""
    assert contradiction(replace(job, attempt=7), events)
    events[number] |= change
    assert words in contradiction(job, events)
