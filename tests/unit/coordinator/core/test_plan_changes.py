"""Jobs that operators ask for beside the manifest, and commands for several jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.jobs.causes import cause, in_words
from coordinator.jobs.states import JobState
from coordinator.scheduler import unknown_hosts
from tests.harness.coordinator import Fleet, spec, with_id
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

JOB = {"model": "gbt", "mode": "oracle", "hyper": {"depth": 4}}
SCHEMA = {
    "type": "object",
    "properties": {"depth": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
TRAINERS = {"gbt": m.TrainerInfo(hyper_schema=SCHEMA)}


def _fleet(*specs: Any) -> Fleet:
    return Fleet(*specs, trainers=TRAINERS)


def _run(fleet: Fleet, **job: Any) -> m.OperatorResponse:
    answer = fleet.asks(m.AskRun(id=fleet.new_id(), job=job))
    assert isinstance(answer, m.OperatorResponse)
    return answer


def _errors(answer: m.OperatorResponse) -> list[tuple[str, str]]:
    data: Any = answer.data
    assert not answer.ok
    return [(one["key"], in_words(one["why"])) for one in data["errors"]]


def test_a_job_beside_the_manifest_is_the_same_job_as_one_in_it() -> None:
    """Its id is made of the same; it is given out like any other, and says who has asked for it."""
    fleet = _fleet()
    pi = fleet.host().joins()
    data: Any = _run(fleet, **JOB, min_ram_gib=1.0).data
    assert data["job_id"] == with_id(spec(), depth=4).job_id
    assert data["name"] == f"gbt-oracle-{data['job_id'][:8]}"
    assert (data["added"], data["state"]) == (True, "pending")
    (assign,) = pi.heard(m.Assign)
    assert (assign.hyper, assign.needs.min_ram_gib) == ({"depth": 4}, 1.0)
    shown = fleet.listed()[0]
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
    assert fleet.actions[-1].what == cause("there_already", name="mine", state="pending")


def test_a_reload_leaves_it_in_the_plan() -> None:
    fleet = _fleet(spec("other"))
    _run(fleet, **JOB, name="mine")
    fleet.plan(spec("other"))
    assert fleet.job("mine").in_plan
    fleet.start()
    fleet.plan()
    assert fleet.job("mine").in_plan
    assert not fleet.job("other").in_plan


def test_once_the_manifest_names_it_it_is_one_of_its_jobs() -> None:
    fleet = _fleet()
    data: Any = _run(fleet, **JOB, name="mine").data
    named = with_id(spec("named"), depth=4)
    assert named.job_id == data["job_id"]
    fleet.plan(named)
    assert (fleet.job("named").in_plan, fleet.job("named").submitted_by) == (True, None)
    fleet.plan()
    assert not fleet.job("named").in_plan


def test_a_job_that_the_manifest_has_given_up_is_taken_up_again() -> None:
    """It keeps its name and its state, and stays from now on."""
    mine = spec("mine")
    fleet = Fleet(mine, trainers={"gbt": m.TrainerInfo(hyper_schema={})})
    fleet.plan()
    assert not fleet.job("mine").in_plan
    hyper: dict[str, Any] = {"of": "mine"}
    data: Any = _run(fleet, model="gbt", mode="oracle", hyper=hyper).data
    assert (data["job_id"], data["name"], data["added"]) == (mine.job_id, "mine", True)
    fleet.plan()
    assert fleet.job("mine").in_plan


def test_cancel_and_requeue_work_as_for_any_other() -> None:
    fleet = _fleet()
    _run(fleet, **JOB, name="mine")
    assert fleet.asks(m.AskCancel(id="c1", job="mine")).ok
    assert _run(fleet, **JOB).data["state"] == "cancelled"  # type: ignore[index,call-overload]
    assert fleet.asks(m.AskRequeue(id="r1", job="mine")).ok
    assert fleet.job("mine").state is JobState.PENDING


def test_the_ledger_says_who_asked_for_it(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, trainers=TRAINERS)
    assert coordinator.asks(m.AskRun(id="x", job={**JOB, "name": "mine"})).ok
    job = coordinator.job("mine")
    assert job == coordinator.core.world.book.get(job.job_id)
    assert job.submitted_by == "operator:op"
    told = [(row["event"], row["who"]) for row in coordinator.ledger.events(job.job_id)]
    assert told == [("added", "operator:op")]


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
        ({}, ["model"]),
    ],
)
def test_the_checks_are_those_of_the_manifest(job: dict[str, Any], errors: list[str]) -> None:
    """All errors at once, and nothing is added."""
    fleet = _fleet(spec("taken"))
    answer = _run(fleet, **job)
    assert sorted(key for key, _ in _errors(answer)) == errors
    assert all(message for _, message in _errors(answer))
    assert [one.spec.name for one in fleet.ledger.values()] == ["taken"]


def test_of_several_jobs_each_is_told_of_by_itself() -> None:
    """In the order in which they were named; what is refused of one stops no other."""
    fleet = Fleet(spec("runs", 9), spec("a"), spec("b"))
    fleet.host().joins().runs("runs")
    fleet.asks(m.AskCancel(id="1", job="b"))
    ask = m.AskEach(id="2", action="cancel", jobs=("b", "nobody", "runs", "a", "a"))
    rows = fleet.asks(ask).data["jobs"]
    assert [(row["ok"], row.get("name"), row.get("state")) for row in rows] == [
        (False, "b", "cancelled"), (False, None, None), (True, "runs", "cancelled"),
        (True, "a", "cancelled"), (False, "a", "cancelled"),
    ]  # fmt: skip
    assert [row.get("code") for row in rows[:2]] == ["refused", "not_found"]
    assert rows[0]["why"] == {"code": "over_already", "name": "b", "state": "cancelled"}
    assert [one.spec.name for one in fleet.ledger.values() if one.state != "cancelled"] == []
    over = fleet.actions[-1]
    assert (over.action, over.what) == ("cancel", cause("each", done=2, refused=3))
    fleet.start()
    assert fleet.asks(ask).data["jobs"] == rows, "a repetition is answered alike"


def test_a_job_that_has_moved_since_it_was_chosen_is_left_as_it_is() -> None:
    """Whoever cancels what is pending stops nothing that runs by then."""
    fleet = Fleet(spec("runs", 9), spec("waits"))
    fleet.host().joins().runs("runs")
    ask = m.AskEach(id="1", action="cancel", jobs=("runs", "waits"), states=("pending",))
    rows = fleet.asks(ask).data["jobs"]
    assert [(row["ok"], row["state"]) for row in rows] == [(False, "running"), (True, "cancelled")]
    assert rows[0]["why"] == {"code": "moved", "name": "runs", "state": "running"}
    again = m.AskEach(id="2", action="requeue", jobs=("runs", "waits"), states=("cancelled",))
    assert [row["ok"] for row in fleet.asks(again).data["jobs"]] == [False, True]


def test_jobs_are_listed_by_their_models() -> None:
    jobs = [replace(spec(f"{model}{n}"), model=model) for n in range(3) for model in ("mlp", "gbt")]
    fleet = Fleet(*jobs)
    fleet.asks(m.AskCancel(id="c", job="gbt1"))
    page = fleet.asks(m.AskList(id="l", models=("gbt",), states=("pending",), limit=1)).data
    assert (page["total"], page["next"], page["jobs"][0]["name"]) == (2, 1, "gbt0")


def test_as_many_unknown_hosts_are_told_as_an_answer_holds() -> None:
    """A list of another fleet's hosts: what was too large to be heard was kept all the same."""
    fleet = _fleet()
    fleet.host().joins()
    answer = _run(fleet, **JOB, allowed_hosts=[f"other{number}" for number in range(3000)])
    assert len(_errors(answer)) == unknown_hosts.MOST
    assert len(m.encode(answer)) < m.MAX_PAYLOAD_BYTES
