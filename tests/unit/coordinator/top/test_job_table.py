"""What the full-screen view says of a job: columns, order, filters, remarks, reasons."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.jobs import reason_words
from coordinator.top import job_table
from coordinator.top.detail import job_facts, why
from coordinator.top.table import fitted
from coordinator.ui import words
from coordinator.ui.facts import in_lines
from coordinator.ui.fleet_columns import BAD, DIM, PLAIN, Cell
from tests.harness.drawn import drawn
from tests.harness.mirrored import Mirrored, job_id

STARTED = {"started_at": "2026-01-02T12:00:00Z"}


@pytest.fixture
def fleet() -> Mirrored:
    """A fleet that is told of by now's clock."""
    return Mirrored(time.time())


def cells(fleet: Mirrored, name: str, window: int = 80) -> dict[str, str]:
    """What the columns say of a job."""
    row = job_table.with_losses(fleet.job_row(name), fleet.seen)
    return {column.title: column.cell(row, width)[0]
            for column, width in fitted(job_table.COLUMNS, window)}  # fmt: skip


def names(fleet: Mirrored, order: str = "activity", kind: str = "all") -> list[str]:
    """The jobs of a kind in an order."""
    fleet.update()
    rows = filter(job_table.KINDS[kind], fleet.tables.jobs.rows.values())
    return [row["name"] for row in sorted(rows, key=job_table.ORDERS[order])]


def facts(fleet: Mirrored, name: str) -> str:
    """What the window of a job says above."""
    row = fleet.job_row(name)
    return drawn(in_lines(job_facts(fleet.seen.jobs[job_id(name)], row, fleet.seen, 76)))


def test_what_runs_stands_first_and_what_is_done_last(fleet: Mirrored) -> None:
    fleet.job("old", "completed", finished_at="2026-01-02T12:00:00Z")
    fleet.job("new", "completed", finished_at="2026-01-02T13:00:00Z")
    fleet.job("second")
    fleet.job("broken", "failed", finished_at="2026-01-02T13:00:00Z", error="no memory\nTraceback")
    fleet.job("stopped", "cancelled", finished_at="2026-01-02T12:30:00Z", priority=9)
    fleet.job("given", "claimed", host="pc")
    fleet.job("urgent", priority=5)
    fleet.job("at-work", "running", host="pi")
    by_activity = ["at-work", "given", "urgent", "second", "broken", "new", "stopped", "old"]
    assert names(fleet) == by_activity
    rows = [row.model_dump(mode="json") for row in fleet.seen.jobs.values()]
    listed = [row["name"] for row in sorted(rows, key=words.by_row)]
    assert listed == by_activity, "as in `fleet list`"
    assert names(fleet, "name") == sorted(by_activity)
    assert names(fleet, kind="failed") == ["broken"]
    assert names(fleet, kind="active") == ["at-work", "given"]
    assert "no memory" in job_table.words(fleet.job_row("broken"))


def test_a_job_of_a_program_names_it_and_is_found_by_it(fleet: Mirrored) -> None:
    fleet.job("own", model="vision", mode="", program="ab" * 32)
    assert "vision@abababababab" in facts(fleet, "own")
    assert "ab" * 32 in job_table.words(fleet.job_row("own"))


@pytest.mark.words
def test_a_running_job_shows_how_far_it_is(fleet: Mirrored) -> None:
    fleet.job("cnn", "running", host="pi", **STARTED)
    fleet.host("pi", "cnn")
    for epoch, loss in ((1, 0.9), (2, 0.5), (5, 0.1)):
        fleet.progress("cnn", "pi", epoch, loss)
    shown = cells(fleet, "cnn")
    assert "━╌" in shown["Done"]
    assert shown["Done"].endswith(" 5/10")
    assert (shown["Left"], shown["Loss"], shown["Curve"]) == ("2 min", "0.1000", "█▅▁")
    assert "0.9000 → 0.1000, best 0.1000" in facts(fleet, "cnn")
    assert job_table.remark(fleet.job_row("cnn")) is None
    fleet.status("pi", "offline", "lost")
    assert cells(fleet, "cnn")["Left"] == "?", "when a job ends whose host is away nobody knows"


@pytest.mark.words
@pytest.mark.parametrize(("since_s", "left"), [(130.0, "soon"), (140.0, "late")])
def test_an_end_that_has_passed_is_said_to_be_late(
    fleet: Mirrored, since_s: float, left: str
) -> None:
    fleet.job("cnn", "running", host="pi")
    fleet.passes(-since_s)
    fleet.progress("cnn", "pi", 5, 0.1)
    assert cells(fleet, "cnn")["Left"] == left
    assert ("it should be over" in facts(fleet, "cnn")) is (left == "late")


@pytest.mark.words
def test_what_is_over_or_waits_has_a_remark_and_no_progress(fleet: Mirrored) -> None:
    ended = STARTED | {"finished_at": "2026-01-02T12:00:14.600Z"}
    made: dict[str, tuple[str, dict[str, Any], Cell]] = {
        "begun": ("cancelled", ended, ("took 15 s", DIM)),
        "waited": ("cancelled", {"finished_at": "2026-01-02T12:00:15Z"}, ("", DIM)),
        "bad": ("failed", {"error": "no memory\nTraceback …"}, ("no memory", BAD)),
        "good": ("completed", ended | {"metrics": {"auroc": 0.9}},
                 ("AUROC 0.900, took 15 s", PLAIN)),
        "replaced": ("pending", {"in_plan": False}, ("no longer in the manifest", DIM)),
    }  # fmt: skip
    for name, (state, more, remark) in made.items():
        fleet.job(name, state, **more)
        assert job_table.remark(fleet.job_row(name)) == remark, name
    assert cells(fleet, "replaced")["State"] == "pending*"
    key = fleet.job("big")
    said = {"count": 1, "jobs": [{"job_id": key, "name": "big"}]}
    fleet.mirror.load_status({"unplaceable": said})
    assert cells(fleet, "big")["Host"] == "no host can"
    assert job_table.remark(fleet.job_row("big")) == ("no known host can; why: Enter, 3", BAD)


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
    lines = [line.strip() for line in why(data).plain.splitlines() if line]
    assert lines == [
        "none of 9 known hosts can take it now", "What would change that:",
        reason_words.remedy(change), *map(reason_words.words, reasons),
        "8: pi-0, pi-1, pi-2, pi-3, pi-4, pi-5 and 2 more", "nothing else is against it", "1: pc",
    ]  # fmt: skip
