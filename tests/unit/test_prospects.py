"""What a coordinator hands out for predictions, and how those are told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from broker import messages as m
from coordinator.cli.outlook import about, at, end_of_plan
from coordinator.cli.why import _advice
from coordinator.durations import Span
from coordinator.forecast import Forecast
from coordinator.plan import spec_from_dict
from tests.harness.coordinator import Fleet, spec
from tests.unit.test_forecast import host as view
from tests.unit.test_forecast import waits, whole

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def plan(fleet: Fleet, **wanted: Any) -> Any:
    """A page of the running plan."""
    return fleet.asks(m.AskPlan(id="p", **wanted)).data


def test_the_plan_tells_what_a_prediction_needs() -> None:
    """How long a job has waited or run, how far it is, and whether it takes a slot."""
    fleet = Fleet(spec("first", priority=1), spec("second"))
    fleet.passes(40.0)
    pi = fleet.host().joins()
    job = pi.runs("first")
    fleet.passes(20.0)
    topic = fleet.topics.progress("pi", job.job_id)
    pi.says(topic, m.Progress(attempt=1, epoch=3, epochs=10, eta_s=70.0))
    pi.seq += 1
    held = m.HeldJob(job_id=job.job_id, attempt=1, phase="running", progress=0.3)
    pi.says(fleet.topics.heartbeat("pi"), m.Heartbeat(
        session=pi.session, instance=pi.instance, seq=pi.seq, ram_available_bytes=6 * 2**30,
        jobs=(held,),
    ))  # fmt: skip
    first, second = plan(fleet)["jobs"]
    assert spec_from_dict(first["spec"]) == spec("first", priority=1)
    assert (first["state"], first["host"], first["elapsed_s"]) == ("running", "pi", 20.0)
    assert (first["share"], first["eta_s"], first["uses_slot"]) == (0.3, 70.0, True)
    assert (second["state"], second["waited_s"], second["ready_in_s"]) == ("pending", 60.0, 0.0)
    pi.finishes(fleet.job("first"))
    (sent,) = plan(fleet, states=("running",))["jobs"]
    assert not sent["uses_slot"], "its result is on the way, and the slot is free"


def test_a_retry_says_when_it_may_begin() -> None:
    """So that nobody predicts it sooner."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    pi.reports(m.Failed, pi.runs(), error="boom", transient=True)
    (row,) = plan(fleet)["jobs"]
    assert 0 < row["ready_in_s"] <= 30.0


def test_a_plan_of_any_size_comes_in_pages_that_fit() -> None:
    """No answer is larger than what a client takes; every job comes once."""
    many = [spec(f"job-{number:04}") for number in range(1500)]
    fleet = Fleet(*many)
    seen: list[str] = []
    offset: Any = 0
    while offset is not None:
        response = fleet.asks(m.AskPlan(id="p", offset=offset, limit=1000))
        assert len(m.encode(response)) < m.MAX_PAYLOAD_BYTES
        seen += [row["spec"]["name"] for row in response.data["jobs"]]
        offset = response.data["next"]
    assert sorted(seen) == [one.name for one in many]


def test_why_tells_how_the_hosts_are() -> None:
    """A host that is asleep counts as such, and the clauses leave fewer and fewer."""
    fleet = Fleet(spec(min_cores=8))
    fleet.host("pi").joins()
    laptop = fleet.host("laptop").joins(physical_cores=8, battery=True)
    laptop.runs()
    fleet.plan(spec(min_cores=8), spec("other", min_cores=8))
    fleet.passes(90.0)
    laptop.status("offline", "lost")
    why = fleet.asks(m.AskWhy(id="w", job="other")).data
    assert why["suitable"] == {"asleep": ["laptop"]}
    assert [(one["clause"], one["against"], one["left"]) for one in why["clauses"]] == [
        ("min_cores = 8", 1, 1), ("is online", 1, 0), ("has a free slot", 1, 0)
    ]  # fmt: skip
    assert why["clauses"][1]["detail"] == "1 asleep"
    assert why["remedies"] == ["if min_cores were 4 instead of 8, pi could take it"]


@pytest.mark.parametrize(
    ("summary", "first"),
    [
        ("it failed: CUDA out of memory; …", "it ran out of memory"),
        ("it failed: lost 3 times, the last time on pi: …", "its hosts went away"),
        ("it failed: exit code 1", "`fleet logs job`"),
    ],
)
def test_a_failed_job_has_a_next_step(summary: str, first: str) -> None:
    """By what has happened."""
    found = _advice({"state": "failed", "name": "job", "summary": summary})
    assert found[0].startswith(first)
    assert any("fleet requeue job" in text for text in found)
    assert _advice({"state": "running", "name": "job", "summary": ""}) == []


def test_moments_are_told_as_people_say_them() -> None:
    """The time today, the day this week, the date later; with distance and spread."""
    here = NOON.astimezone()
    assert at(3600.0, NOON) == f"{here.replace(hour=here.hour + 1):%H:%M}"
    assert at(2 * 86400.0, NOON) == f"Mon {here:%H:%M}"
    assert at(33 * 86400.0, NOON) == "Dec 24"
    assert about(Span(0.0, 1.0, 900.0), NOON) == "any moment now"
    same = about(Span(600.0, 600.0, 600.0), NOON)
    assert same.endswith(", in 10 min")
    assert about(Span(300.0, 600.0, 1200.0), NOON).startswith(same)


def test_the_end_of_a_plan_is_one_line() -> None:
    """With what nobody knows, what waits and what cannot be; empty when nothing is left."""
    assert end_of_plan(Forecast({}, None, 0)) == ""
    found = whole(waits("a"), waits("b", require_cuda=True), views=[view("pi")])
    said = end_of_plan(found)
    assert said.startswith("about 2 min left, until ")
    assert said.endswith("; 1 job no known host can run")
    away = whole(waits("a"), views=[view("pi", online=False)])
    assert end_of_plan(away) == "1 job waits for a host to come back"
