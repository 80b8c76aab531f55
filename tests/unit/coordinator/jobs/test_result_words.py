"""What a requeue loses is told by its answer, by the history, and by every question before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker.protocol import messages as m
from coordinator.cli import job_lines, lists
from coordinator.client.mirror import Mirror
from coordinator.client.rows import Tables
from coordinator.core.effects import LookUp
from coordinator.jobs.causes import in_words, set_aside
from coordinator.jobs.result_words import share_of
from coordinator.top import detail, job_table
from coordinator.ui import follow, up_live
from coordinator.ui.terminal import put
from tests.harness.coordinator import HEX, Fleet, joined, spec


def _requeue(fleet: Fleet) -> tuple[Any, Any]:
    """The answer's data, and why it was done by the history."""
    data: Any = fleet.asks(m.AskRequeue(id="r", job="job")).data
    (why,) = [change.why for change in fleet.changes if change.event == "requeued"]
    return data, why


@pytest.mark.words
def test_a_result_that_is_set_aside_is_named() -> None:
    """With its metric and its artifact: nothing else tells afterwards what there was."""
    fleet, pi = joined(spec())
    fleet.core.world.stored[HEX] = 2000
    pi.finishes(pi.runs())
    data, why = _requeue(fleet)
    assert in_words(why) == f"its result is set aside: AUROC 0.900, artifact {HEX[:12]}"
    assert data["artifact_id"] == HEX
    assert why == data["set_aside"]


@pytest.mark.words
@pytest.mark.parametrize("told", [True, False])
def test_work_that_is_thrown_away_is_named(told: bool) -> None:
    """How far it was where that is known, and where it ran."""
    fleet = Fleet(spec())
    pi = fleet.host("lap").joins()
    job = pi.runs()
    if told:
        pi.trains(job, 37)
    data, why = _requeue(fleet)
    at = " at 37 %" if told else ""
    assert in_words(why) == f"it is stopped{at} on lap, and begins again"
    assert why == data["set_aside"]


def test_where_nothing_is_lost_nothing_is_said() -> None:
    """A job that was cancelled while it waited had neither result nor work."""
    fleet = Fleet(spec())
    fleet.asks(m.AskCancel(id="c", job="job"))
    data, why = _requeue(fleet)
    assert (data["set_aside"], why) == ({}, {})


def test_an_orphan_that_is_pending_is_told_that_it_waits_for_nobody() -> None:
    """It is in the queue already, and would stay there for ever."""
    fleet = Fleet(spec())
    fleet.plan()
    answer = fleet.asks(m.AskRequeue(id="r", job="job"))
    told = {"name": "job", "in_plan": False, "wait_s": 0.0}
    assert answer.why == {"code": "pending_already", **told}


@pytest.mark.parametrize(
    ("row", "share"),
    [
        ({"share": 0.25, "held": None}, 0.25),
        ({"share": 0.5, "held": {"phase": "running"}}, 0.5),
        ({"share": 0.5, "held": {"phase": "uploading"}}, None),
        ({"share": None, "held": None}, None),
    ],
)
def test_how_much_is_done_is_the_training_alone(row: dict[str, Any], share: float | None) -> None:
    """Not how much of the result was handed over."""
    assert share_of(row) == share


def test_a_metric_that_no_float_holds_is_not_told_as_a_score() -> None:
    """JSON has whole numbers of any length, and a requeue is to work all the same."""
    fleet, pi = joined(spec())
    fleet.core.world.stored[HEX] = 2000
    pi.reports(
        m.Finished, pi.runs(), artifact_id=HEX, size_bytes=2000,
        metrics={"auroc": 10**400, "f1": 0.5},
    )  # fmt: skip
    data, _why = _requeue(fleet)
    assert data["set_aside"]["metrics"] == {"f1": 0.5}


def test_a_result_that_came_after_the_job_was_given_up_is_not_lost() -> None:
    """A requeue completes the job with it."""
    assert set_aside("failed", "pi", None, {"auroc": 0.9}, HEX) == {}


@pytest.mark.words
@pytest.mark.parametrize(
    ("interval", "is_below"),
    [
        ([0.36, 0.465], True),
        ([0.36, 0.5], False),
        (None, False),
        ([0.36], False),
        (["a", 1], False),
    ],
)
def test_a_result_below_chance_is_marked_on_every_face(
    interval: Any, is_below: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As data in the job's row, and in words beside its figures; completed it is all the same."""
    fleet, pi = joined(spec())
    fleet.core.world.stored[HEX] = 2000
    metrics = {"auroc": 0.406, "auroc_ci": interval}
    pi.reports(m.Finished, pi.runs(), artifact_id=HEX, size_bytes=2000, metrics=metrics)
    mirror, job = Mirror(), fleet.job()
    mirror.apply(fleet.topics.parse(fleet.topics.job(job.job_id)), m.encode(job.row()), fleet.now)
    (row,) = fleet.asks(m.AskList(id="l")).data["jobs"]
    fleet.asks(m.AskShow(id="s", job="job"))
    (asked,) = fleet.took(LookUp)
    shown = asked.data | {"events": [], "results": []}
    assert (row["state"], row.get("marks", [])) == ("completed", ["below_chance"] * is_below)
    up_live._results([row], Path())
    told = capsys.readouterr().out
    put(Console(width=300), [*lists._draw_jobs([row]), *job_lines.in_lines(shown)])
    told += capsys.readouterr().out
    assert told.count("below chance: the 95 % interval of its AUROC, 0.360 to") == 3 * is_below
    seen = mirror.snapshot()
    assert ("below chance" in follow.outcome(row)) is is_below
    (found,) = Tables().update(seen, fleet.now)[0].add
    assert ("below chance" in str(job_table.remark(found))) is is_below
    facts = dict(detail.job_facts(seen.jobs[job.job_id], found, seen, 80))
    assert ("below chance" in str(facts["State"])) is is_below
    assert found["marked"].startswith("below chance") is is_below


@pytest.mark.words
@pytest.mark.parametrize(
    ("code", "figure"), [("metrics_unread", " 8192 "), ("metrics_left_out", ": 64 ")]
)
def test_metrics_that_were_not_kept_are_told_with_their_limit(
    code: str, figure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, pi = joined(spec())
    fleet.core.world.stored[HEX] = 2000
    pi.reports(m.Finished, pi.runs(), artifact_id=HEX, size_bytes=2000, metrics={"marks": [code]})
    fleet.asks(m.AskShow(id="s", job="job"))
    (asked,) = fleet.took(LookUp)
    shown = asked.data | {"events": [], "results": []}
    put(Console(width=300), [*job_lines.in_lines(shown)])
    told = capsys.readouterr().out
    assert (figure in told, "Metrics" in told) == (True, False)
