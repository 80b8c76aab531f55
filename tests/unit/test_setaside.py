"""What a requeue loses is told by its answer, by the history, and by every question before it."""

from __future__ import annotations

from typing import Any

import pytest

from broker import messages as m
from coordinator.setaside import set_aside, share_of
from tests.harness.coordinator import HEX, Fleet, spec


def _requeue(fleet: Fleet) -> tuple[Any, str]:
    """The answer's data, and why it was done by the history."""
    data: Any = fleet.asks(m.AskRequeue(id="r", job="job")).data
    (why,) = [change.why for change in fleet.changes if change.event == "requeued"]
    return data, why


def test_a_result_that_is_set_aside_is_named() -> None:
    """With its metric and its artifact: nothing else tells afterwards what there was."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    fleet.core.world.stored[HEX] = 2000
    pi.finishes(pi.runs())
    data, why = _requeue(fleet)
    assert data["set_aside"] == f"its result is set aside: AUROC 0.900, artifact {HEX[:12]}"
    assert data["artifact_id"] == HEX
    assert why == data["set_aside"]


@pytest.mark.parametrize("told", [True, False])
def test_work_that_is_thrown_away_is_named(told: bool) -> None:
    """How far it was where that is known, and where it ran."""
    fleet = Fleet(spec())
    pi = fleet.host("lap").joins()
    job = pi.runs()
    if told:
        progress = m.Progress(attempt=1, epoch=37, epochs=100)
        pi.says(fleet.topics.progress("lap", job.job_id), progress)
    data, why = _requeue(fleet)
    at = " at 37 %" if told else ""
    assert data["set_aside"] == f"it is stopped{at} on lap, and begins again"
    assert why == data["set_aside"]


def test_where_nothing_is_lost_nothing_is_said() -> None:
    """A job that was cancelled while it waited had neither result nor work."""
    fleet = Fleet(spec())
    fleet.asks(m.AskCancel(id="c", job="job"))
    data, why = _requeue(fleet)
    assert (data["set_aside"], why) == ("", "")


def test_an_orphan_that_is_pending_is_told_that_it_waits_for_nobody() -> None:
    """It is in the queue already, and would stay there for ever."""
    fleet = Fleet(spec())
    fleet.plan()
    answer = fleet.asks(m.AskRequeue(id="r", job="job"))
    assert answer.message is not None
    assert "is pending already, and is given to no host, being in no manifest" in answer.message
    assert "fleet cancel" in answer.message


@pytest.mark.parametrize(
    ("row", "share"),
    [
        ({"progress": {"epoch": 3, "epochs": 12}, "held": None}, 0.25),
        (
            {
                "progress": {"epoch": 3, "epochs": None},
                "held": {"phase": "running", "progress": 0.5},
            },
            0.5,
        ),
        ({"progress": None, "held": {"phase": "uploading", "progress": 0.5}}, None),
        ({"progress": None, "held": None}, None),
    ],
)
def test_how_much_is_done_is_the_training_alone(row: dict[str, Any], share: float | None) -> None:
    """Not how much of the result was handed over."""
    assert share_of(row) == share


def test_a_result_without_a_known_metric_is_its_artifact() -> None:
    """A trainer of one's own may tell others."""
    assert set_aside("completed", "pi", None, {"mine": 1.0}, HEX).endswith(f": artifact {HEX[:12]}")


def test_a_metric_that_no_float_holds_is_not_told_as_a_score() -> None:
    """JSON has whole numbers of any length, and a requeue is to work all the same."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    fleet.core.world.stored[HEX] = 2000
    pi.reports(
        m.Finished, pi.runs(), artifact_id=HEX, size_bytes=2000,
        metrics={"auroc": 10**400, "f1": 0.5},
    )  # fmt: skip
    data, _why = _requeue(fleet)
    assert data["set_aside"] == f"its result is set aside: F1 0.500, artifact {HEX[:12]}"


def test_a_result_that_came_after_the_job_was_given_up_is_not_lost() -> None:
    """A requeue completes the job with it."""
    assert set_aside("failed", "pi", None, {"auroc": 0.9}, HEX) == ""
