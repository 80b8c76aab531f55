"""No answer is larger than who asks takes: in bytes, whatever script people write in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.topic_table import Kind
from tests.harness.coordinator import OPERATOR, Fleet, joined, spec
from tests.harness.shell import Coordinator, ledgers_closed

__all__ = ["ledgers_closed"]
WORD = "\u8aa4"  # three bytes
REFUSES = (m.Why(code="data", text=WORD * 1900),)
FULL = m.Objection(code="full", said=WORD * 1900)


@pytest.mark.parametrize("offset", [0, 6])
def test_a_page_of_jobs_that_failed_is_heard(offset: int) -> None:
    """Each tells the end of its trainer's output."""
    fleet, pi = joined(*(spec(f"job{number}", retries=0) for number in range(12)))
    for _ in range(12):
        name = pi.heard(m.Assign)[-1].name
        pi.reports(m.Failed, fleet.job(name), error=WORD * 15_000, transient=False)
    answer = fleet.asks(m.AskList(id="l", offset=offset))
    assert 1 < len(answer.data["jobs"]) < 6
    assert answer.data["next"] == offset + len(answer.data["jobs"])


def test_why_and_the_status_are_heard_where_many_hosts_say_much() -> None:
    """Their owners' words are told as they are, by the status those of some hosts."""
    fleet = Fleet(spec())
    for number in range(100):
        fleet.host(f"host{number}").joins(trainers={}).beats(refuses=REFUSES)
    assert fleet.why()["known"] == 100
    told = fleet.status()["restrained"]
    assert told[0]["reasons"] == [{"code": "refuses", "holds": [one.told() for one in REFUSES]}]
    assert len(told) > 10


def test_a_job_with_thousands_of_namesakes_is_heard_of() -> None:
    """Each change of an entry of the plan leaves one; the newest are told."""
    fleet = Fleet()
    fleet.plan(*(replace(spec("other", seed=n), name="job") for n in range(3000)), spec())
    for ask in (m.AskWhy(id="w", job=spec().job_id), m.AskCancel(id="c", job=spec().job_id)):
        answer = fleet.asks(ask)
        assert answer.ok
        assert 0 < len(answer.data["others"]) < 100


def test_what_becomes_of_as_many_jobs_as_a_command_names_is_heard() -> None:
    """Each of many namesakes, or with a refusal that repeats what was asked."""
    fleet = Fleet()
    fleet.plan(*(
        replace(spec(f"{n}-{twin}", seed=100 * n + twin), name=("x" * 60 + f"{n:04}"))
        for n in range(m.MAX_JOBS) for twin in range(18)
    ))  # fmt: skip
    fleet.plan(*(replace(spec(f"{n}"), name=("x" * 60 + f"{n:04}")) for n in range(m.MAX_JOBS)))
    names = tuple(job.spec.name for job in fleet.ledger.values() if job.in_plan)
    for asked in (names, ("\U0001f600" * 200,) * m.MAX_JOBS):
        answer = fleet.asks(m.AskEach(id=fleet.new_id(), action="cancel", jobs=asked))
        assert len(answer.data["jobs"]) == m.MAX_JOBS
        assert len(m.encode(answer)) < m.MAX_PAYLOAD_BYTES


def a_host(fleet: Fleet, name: str, chars: int) -> None:
    """One whose trainer's schema is so long."""
    schema = {"type": "object", "description": name * chars}
    fleet.host(name).joins(trainers={"gbt": m.TrainerInfo(hyper_schema=schema)})


def test_one_host_that_says_much_keeps_nobody_from_hearing_of_the_others() -> None:
    """It is told without what it said of itself, where no answer holds that."""
    fleet = Fleet()
    for name, chars in (("a", 100), ("b", 261_400), ("c", 240_000), ("d", 100)):
        a_host(fleet, name, chars)
    rows: dict[str, bool] = {}
    offset = 0
    while offset is not None:
        page = fleet.asks(m.AskWorkers(id=f"w{offset}", offset=offset)).data
        rows |= {row["host"]: row["capability"] is not None for row in page["workers"]}
        offset = page["next"]
    assert rows == {"a": True, "b": False, "c": True, "d": True}


def test_hosts_that_say_much_keep_nobody_from_hearing_of_the_trainers() -> None:
    """Of what no answer holds, any hyperparameters are right as far as is told."""
    fleet = Fleet()
    for name in "ab":
        a_host(fleet, name, 150_000)
    known = fleet.asks(m.AskTrainers(id="t")).data["trainers"]
    assert known["gbt"]["hyper_schema"] == {}


def test_of_a_long_history_the_newest_is_heard(tmp_path: Path) -> None:
    """A host may have refused a job again and again, and said why at length."""
    coordinator = Coordinator(tmp_path)
    pi = coordinator.host().joins()
    for _ in range(60):
        coordinator.passes(3600)
        pi.beats()
        pi.refuses(why=FULL)
    ask = m.encode(m.AskShow(id="s", job="job"))
    coordinator.handle(Incoming(coordinator.topics.operator_request(OPERATOR), ask))
    (answer,) = [said for topic, said in coordinator.sent if topic.kind is Kind.OPERATOR_RESPONSE]
    assert answer.data["events"][-1]["event"] == "refused"
    assert len(answer.data["events"]) > 10
