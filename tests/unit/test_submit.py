"""Jobs that operators ask for beside the manifest, and an end of all that is pending."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from broker import messages as m
from coordinator import hostnames
from coordinator.ledger import Ledger
from coordinator.plan import job_id
from coordinator.states import JobState
from tests.harness.coordinator import Fleet, spec

JOB = {"model": "gbt", "mode": "oracle", "hyper": {"depth": 4}}
SCHEMA = {
    "type": "object",
    "properties": {"depth": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}


def _fleet(*specs: Any) -> Fleet:
    return Fleet(*specs, trainers={"gbt": dict(SCHEMA)})


def _run(fleet: Fleet, **job: Any) -> m.OperatorResponse:
    answer = fleet.asks(m.AskRun(id=fleet.new_id(), job=job))
    assert isinstance(answer, m.OperatorResponse)
    return answer


def _errors(answer: m.OperatorResponse) -> list[tuple[str, str]]:
    data: Any = answer.data
    assert not answer.ok
    return [(one["key"], one["message"]) for one in data["errors"]]


def test_a_job_beside_the_manifest_is_the_same_job_as_one_in_it() -> None:
    """Its id is made of the same; it is given out like any other, and says who has asked for it."""
    fleet = _fleet()
    pi = fleet.host().joins()
    data: Any = _run(fleet, **JOB, min_ram_gib=1.0).data
    assert data["job_id"] == job_id("gbt", "oracle", {"depth": 4}, "host", (), 0)
    assert data["name"] == f"gbt-oracle-{data['job_id'][:8]}"
    assert (data["added"], data["state"]) == (True, "pending")
    (assign,) = pi.heard(m.Assign)
    assert (assign.hyper, assign.needs.min_ram_gib) == ({"depth": 4}, 1.0)
    shown = fleet.asks(m.AskList(id="l1")).data["jobs"][0]
    assert (shown["submitted_by"], shown["in_plan"]) == ("operator:op", True)
    assert fleet.actions[-1].job_id == data["job_id"]


def test_asked_for_again_it_is_there_already() -> None:
    """With its state; what differs from what is asked for now is said, and stays as it is."""
    fleet = _fleet()
    _run(fleet, **JOB, name="mine")
    before = dict(fleet.ledger)
    answer: Any = _run(fleet, **JOB, priority=7, name="yours").data
    assert (answer["added"], answer["name"], answer["state"]) == (False, "mine", "pending")
    assert answer["differs"] == ["name", "priority"]
    assert fleet.ledger == before
    assert _run(fleet, **JOB).data["differs"] == []  # type: ignore[index,call-overload]
    assert fleet.actions[-1].what == "mine is there already, pending"


def test_what_was_not_asked_for_is_not_said_to_differ() -> None:
    """A priority or a need of the job that is there is no concern of who asks without one."""
    fleet = _fleet()
    _run(fleet, **JOB, name="mine", priority=7, min_ram_gib=1.0)
    again: Any = _run(fleet, **JOB, min_ram_gib=2.0).data
    assert again["differs"] == ["min_ram_gib"]


def test_a_reload_leaves_it_in_the_plan() -> None:
    """Also when the manifest has had it for a while."""
    fleet = _fleet(spec("other"))
    _run(fleet, **JOB, name="mine")
    fleet.plan(spec("other"))
    assert fleet.job("mine").in_plan
    fleet.start()
    fleet.plan()
    assert fleet.job("mine").in_plan
    assert not fleet.job("other").in_plan


def test_a_job_that_the_manifest_has_given_up_is_taken_up_again() -> None:
    """It keeps its name and its state, and stays from now on."""
    mine = spec("mine")
    fleet = _fleet(mine)
    fleet.plan()
    assert not fleet.job("mine").in_plan
    hyper: dict[str, Any] = {"of": "mine"}
    fleet.core.world.settings.trainers["gbt"].pop("additionalProperties")  # type: ignore[attr-defined]
    data: Any = _run(fleet, model="gbt", mode="oracle", hyper=hyper).data
    assert (data["job_id"], data["name"], data["added"]) == (mine.job_id, "mine", True)
    fleet.plan()
    assert fleet.job("mine").in_plan


def test_cancel_and_requeue_work_as_for_any_other() -> None:
    """And it is in the ledger as it is in memory."""
    fleet = _fleet()
    _run(fleet, **JOB, name="mine")
    assert fleet.asks(m.AskCancel(id="c1", job="mine")).ok
    assert _run(fleet, **JOB).data["state"] == "cancelled"  # type: ignore[index,call-overload]
    assert fleet.asks(m.AskRequeue(id="r1", job="mine")).ok
    assert fleet.job("mine").state is JobState.PENDING
    ledger, other = Ledger(":memory:"), _fleet()
    other.core.handle(_said(other, m.AskRun(id="x", job={**JOB, "name": "mine"})), other.now)
    changes, _ = other.core.take()
    ledger.commit(changes)
    (job,) = ledger.load().values()
    assert job == next(iter(other.core.world.book.all()))
    assert job.submitted_by == "operator:op"
    told = [(row["event"], row["who"]) for row in _story(ledger)]
    assert told == [("added", "operator:op")]
    ledger.close()


def _said(fleet: Fleet, ask: m.AskRun) -> Any:
    from broker.wire import Incoming

    topic = fleet.topics.operator_request("operator:op/cli")
    return Incoming(topic, m.encode(ask))


def _story(ledger: Ledger) -> Any:
    from coordinator.records import StoryFilter

    return ledger.story(StoryFilter())["events"]


@pytest.mark.parametrize(
    ("job", "errors"),
    [
        ({"model": "gbt"}, ["mode"]),
        ({**JOB, "model": "gtb"}, ["model"]),
        ({**JOB, "hyper": {"dept": 4}}, ["hyper.dept"]),
        ({**JOB, "hyper": {"depth": 0}, "min_ram_gib": -1}, ["hyper.depth", "min_ram_gib"]),
        ({**JOB, "memory": 4, "seed": -1}, ["memory", "seed"]),
        ({**JOB, "name": "no spaces, please"}, ["name"]),
        ({**JOB, "allowed_hosts": ["A B"]}, ["allowed_hosts"]),
        ({**JOB, "name": "taken"}, ["name"]),
        ({}, ["mode", "model"]),
    ],
)
def test_the_checks_are_those_of_the_manifest(job: dict[str, Any], errors: list[str]) -> None:
    """All errors at once, and nothing is added."""
    fleet = _fleet(spec("taken"))
    answer = _run(fleet, **job)
    assert sorted(key for key, _ in _errors(answer)) == errors
    assert all(message for _, message in _errors(answer))
    assert [one.spec.name for one in fleet.ledger.values()] == ["taken"]


def test_an_observer_may_not() -> None:
    """Neither add a job, nor cancel, pause, or snooze."""
    fleet = _fleet(spec())
    for number, ask in enumerate((
        m.AskRun(id="1", job=JOB), m.AskCancelPending(id="2", most=9), m.AskPause(id="3"),
        m.AskSnooze(id="4", host="pi", for_s=9.0),
    )):  # fmt: skip
        answer = fleet.asks(ask, "observer:bob/cli")
        assert (answer.ok, answer.code) == (False, "refused")
        assert len(fleet.actions) == number + 2, "after the reload"
    assert [job.state for job in fleet.ledger.values()] == [JobState.PENDING]


def test_a_repeated_request_is_carried_out_once() -> None:
    """It is answered alike, after a restart too."""
    fleet = _fleet()
    ask = m.AskRun(id="r9", job=JOB)
    first = fleet.asks(ask)
    fleet.start()
    assert fleet.asks(ask) == first
    assert first.data["added"]
    assert len(fleet.ledger) == 1


def test_all_that_is_pending_is_cancelled_and_nothing_else() -> None:
    """If it is no more than whoever asks has seen."""
    fleet = Fleet(spec("runs", 9), spec("a"), spec("b"))
    fleet.host().joins().runs("runs")
    refused = fleet.asks(m.AskCancelPending(id="1", most=1))
    assert not refused.ok
    assert "2 jobs are pending by now, not 1" in refused.message
    answer = fleet.asks(m.AskCancelPending(id="2", most=2))
    assert answer.data == {"cancelled": 2, "names": ["a", "b"]}
    states = {job.spec.name: job.state.value for job in fleet.ledger.values()}
    assert states == {"runs": "running", "a": "cancelled", "b": "cancelled"}
    assert (fleet.actions[-1].action, fleet.actions[-1].what) == ("cancel-pending", "2 jobs")
    assert fleet.asks(m.AskCancelPending(id="3", most=0)).data["cancelled"] == 0


def _many() -> Fleet:
    return Fleet(*(spec(f"job{number}") for number in range(50)), cancel_at_once=10)


def test_many_jobs_are_cancelled_part_by_part_and_answered_once_at_the_end() -> None:
    """In between the fleet is heard, nothing is assigned, and a repetition starts nothing anew."""
    fleet = _many()
    ask = m.AskCancelPending(id="1", most=50)
    assert fleet.asks(ask) is None
    assert _states(fleet) == {"cancelled": 10, "pending": 40}
    pi = fleet.host().joins(slots=4)
    assert fleet.asks(m.AskStatus(id="s")).data["hosts"]["online"] == 1
    assert not pi.heard(m.Assign)
    assert fleet.asks(ask) is None
    other = fleet.asks(m.AskCancelPending(id="2", most=50), "operator:ben/cli")
    assert (other.ok, "already" in other.message) == (False, True)
    fleet.passes(1)
    (answer,) = [one for _, one in fleet.sent if isinstance(one, m.OperatorResponse)][-1:]
    assert (answer.id, answer.data["cancelled"], len(answer.data["names"])) == ("1", 50, 20)
    assert _states(fleet) == {"cancelled": 50}
    assert fleet.asks(ask) == answer
    assert [one.what for one in fleet.actions if one.action == "cancel-pending"][-1] == "50 jobs"
    assert _run(fleet, **JOB).data["state"] == "pending"
    assert pi.heard(m.Assign), "afterwards jobs are given out again"


def test_a_restart_amid_many_cancellations_leaves_the_rest_to_the_repetition() -> None:
    """What is cancelled stays so; the command was not answered, and is carried on with."""
    fleet = _many()
    ask = m.AskCancelPending(id="1", most=50)
    fleet.asks(ask)
    fleet.start()
    fleet.passes(1)
    assert _states(fleet) == {"cancelled": 10, "pending": 40}
    fleet.asks(ask)
    fleet.passes(1)
    assert _states(fleet) == {"cancelled": 50}
    assert fleet.asks(ask).data["cancelled"] == 40


def _states(fleet: Fleet) -> dict[str, int]:
    return {**Counter(job.state.value for job in fleet.ledger.values())}


def test_as_many_unknown_hosts_are_told_as_an_answer_holds() -> None:
    """A list of another fleet's hosts: what was too large to be heard was kept all the same."""
    fleet = _fleet()
    fleet.host().joins()
    answer = _run(fleet, **JOB, allowed_hosts=[f"other{number}" for number in range(3000)])
    assert len(_errors(answer)) == hostnames.MOST
    assert len(m.encode(answer)) < m.MAX_PAYLOAD_BYTES
