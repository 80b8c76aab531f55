"""What the full-screen view says of a job: columns, order, filters, remarks."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.top import job_table, layout
from coordinator.top.detail_pages import job_facts
from coordinator.ui import words
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
            for column, width in layout.fit(job_table.COLUMNS, window)}  # fmt: skip


def names(fleet: Mirrored, order: str = "activity", kind: str = "all") -> list[str]:
    """The jobs of a kind in an order."""
    fleet.update()
    rows = filter(job_table.KINDS[kind], fleet.tables.jobs.rows.values())
    return [row["name"] for row in sorted(rows, key=job_table.ORDERS[order])]


def facts(fleet: Mirrored, name: str) -> str:
    """What the window of a job says above."""
    return job_facts(
        fleet.seen.jobs[job_id(name)], fleet.job_row(name), fleet.seen, 76
    ).plain  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "said"),
    [(0.1, "0.1000"), (-0.25, "-0.250"), (1234.5678, "1234.5"), (123456.7, "123456"),
     (12345.678, "12345"), (1234567.8, "1e+06"), (-123456.7, "-1e+05"), (1e308, "1e+308")],
)  # fmt: skip
def test_a_loss_that_grows_is_not_cut_to_a_smaller_one(
    fleet: Mirrored, loss: float, said: str
) -> None:
    """A training that diverges is seen to: digits before the point are all there, or none."""
    fleet.job("a", "running", host="pi")
    fleet.progress("a", "pi", 3, loss)
    assert cells(fleet, "a")["LOSS"] == said


def test_a_row_says_what_the_list_says_of_it(fleet: Mirrored) -> None:
    """How long it took and will take, its result, its host; and nothing where there is nothing."""
    fleet.job("waits", attempt=0)
    fleet.job("at-work", "running", host="pi", **STARTED)
    fleet.progress("at-work", "pi", 5, 0.1)
    for name, ran_s in (("short", 14.6), ("longer", 108.0), ("long", 3 * 3600.0)):
        fleet.job(name, "completed", host="pi", ran_s=ran_s, metrics={"auroc": 0.91239})
    said = {}
    for job in fleet.seen.jobs.values():
        row = job.model_dump(mode="json") | {"left_s": 125.0 if job.name == "at-work" else None}
        shown = cells(fleet, job.name, 170)
        said[job.name] = [shown[name] for name in ("HOST", "AUROC", "TOOK", "ETA")]
        assert said[job.name] == [
            words.host(row), words.score(row["metrics"]), words.took(row), words.left(row)
        ]  # fmt: skip
    assert said["waits"] == ["", "", "", ""]
    assert said["at-work"][3] == "2 min"
    assert [said[name][2] for name in ("short", "longer", "long")] == ["15 s", "2 min", "3.0 h"]


def test_what_runs_stands_first_and_what_is_done_last(fleet: Mirrored) -> None:
    """Pending jobs stand as they will be claimed; of what is over, the newest stands first."""
    fleet.job("old", "completed", finished_at="2026-01-02T12:00:00Z")
    fleet.job("new", "completed", finished_at="2026-01-02T13:00:00Z")
    fleet.job("second")
    fleet.job("broken", "failed", finished_at="2026-01-02T13:00:00Z", error="no memory\nTraceback")
    fleet.job("stopped", "cancelled", finished_at="2026-01-02T12:30:00Z")
    fleet.job("urgent", priority=5)
    fleet.job("at-work", "running", host="pi")
    by_activity = ["at-work", "urgent", "second", "broken", "new", "stopped", "old"]
    assert names(fleet) == by_activity
    rows = [row.model_dump(mode="json") for row in fleet.seen.jobs.values()]
    listed = [row["name"] for row in sorted(rows, key=words.by_row)]
    assert listed == by_activity, "as in `fleet list`"
    assert names(fleet, "name") == sorted(by_activity)
    assert names(fleet, kind="failed") == ["broken"]
    assert names(fleet, kind="active") == ["at-work"]
    assert "no memory" in job_table.words(fleet.job_row("broken"))


def test_a_running_job_shows_how_far_it_is(fleet: Mirrored) -> None:
    """Bar, epochs, time left, loss and curve."""
    fleet.job("cnn", "running", host="pi", **STARTED)
    fleet.host("pi", "cnn")
    for epoch, loss in ((1, 0.9), (2, 0.5), (5, 0.1)):
        fleet.progress("cnn", "pi", epoch, loss)
    shown = cells(fleet, "cnn")
    assert "━╌" in shown["PROGRESS"]
    assert shown["PROGRESS"].endswith(" 5/10")
    assert (shown["ETA"], shown["LOSS"], shown["CURVE"]) == ("2 min", "0.1000", "█▅▁")
    assert "0.9000 → 0.1000, best 0.1000" in facts(fleet, "cnn")
    assert job_table.remark(fleet.job_row("cnn")) is None
    fleet.status("pi", "offline", "lost")
    assert cells(fleet, "cnn")["ETA"] == "?", "when a job ends whose host is away nobody knows"


@pytest.mark.parametrize(("since_s", "left"), [(130.0, "soon"), (140.0, "late")])
def test_an_end_that_has_passed_is_said_to_be_late(
    fleet: Mirrored, since_s: float, left: str
) -> None:
    """What its trainer said of it is that old."""
    fleet.job("cnn", "running", host="pi")
    fleet.passes(-since_s)
    fleet.progress("cnn", "pi", 5, 0.1)
    assert cells(fleet, "cnn")["ETA"] == left
    assert ("it should be over" in facts(fleet, "cnn")) is (left == "late")


def test_what_is_over_or_waits_has_a_remark_and_no_progress(fleet: Mirrored) -> None:
    """What came of it, how long it ran, what it waits for; `*` marks what the manifest lacks."""
    ended = STARTED | {"finished_at": "2026-01-02T12:00:14.600Z"}
    made: dict[str, tuple[str, dict[str, Any], layout.Cell]] = {
        "begun": ("cancelled", ended, ("took 15 s", layout.DIM)),
        "waited": ("cancelled", {"finished_at": "2026-01-02T12:00:15Z"}, ("", layout.DIM)),
        "bad": ("failed", {"error": "no memory\nTraceback …"}, ("no memory", layout.BAD)),
        "good": ("completed", ended | {"metrics": {"auroc": 0.9}},
                 ("AUROC 0.900, took 15 s", layout.PLAIN)),
        "replaced": ("pending", {"in_plan": False}, ("no longer in the manifest", layout.DIM)),
    }  # fmt: skip
    for name, (state, more, remark) in made.items():
        fleet.job(name, state, **more)
        assert job_table.remark(fleet.job_row(name)) == remark, name
    assert cells(fleet, "replaced")["STATE"] == "pending*"
