"""What a coordinator hands out for predictions, and how those are told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.reasons import reason
from coordinator.cli.plan import _after, _cells, _last, _prepare, _times, after_reload
from coordinator.cli.why_lines import read, to_json
from coordinator.client.predictions import look
from coordinator.jobs.plan_entries import Plan, spec_from_dict
from coordinator.scheduler.forecast import Forecast
from coordinator.scheduler.play import Held
from coordinator.ui import terminal
from coordinator.ui.outlook import end_of_plan, likely, rests_on, to_dict
from tests.harness.coordinator import Fleet, joined, spec
from tests.harness.inclient import client_of
from tests.unit.coordinator.scheduler.test_durations import ran
from tests.unit.coordinator.scheduler.test_forecast import host as view
from tests.unit.coordinator.scheduler.test_forecast import named, waits, whole
from tests.unit.coordinator.scheduler.test_rules import DRAINED

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def plan(fleet: Fleet, **wanted: Any) -> Any:
    return fleet.asks(m.AskPlan(id="p", **wanted)).data


def test_the_plan_tells_what_a_prediction_needs() -> None:
    """How long a job has waited or run, how far it is, and whether it takes a slot."""
    fleet = Fleet(spec("first", priority=1), spec("second"))
    fleet.passes(40.0)
    pi = fleet.host().joins()
    job = pi.runs("first")
    fleet.passes(20.0)
    pi.trains(job, 3, 10, eta_s=70.0)
    pi.beats(m.HeldJob(job_id=job.job_id, attempt=1, phase="running", progress=0.3))
    first, second = plan(fleet)["jobs"]
    assert spec_from_dict(first["spec"]) == spec("first", priority=1)
    assert (first["state"], first["host"], first["elapsed_s"]) == ("running", "pi", 20.0)
    assert (first["share"], first["eta_s"], first["uses_slot"]) == (0.3, 70.0, True)
    assert (second["state"], second["waited_s"], second["ready_in_s"]) == ("pending", 60.0, 0.0)
    pi.finishes(fleet.job("first"))
    (sent,) = plan(fleet, states=("running",))["jobs"]
    assert not sent["uses_slot"], "its result is on the way, and the slot is free"


def test_a_retry_says_when_it_may_begin_and_what_went_wrong() -> None:
    fleet, pi = joined(spec())
    pi.reports(m.Failed, pi.runs(), error="boom", transient=True)
    (row,) = plan(fleet)["jobs"]
    assert 0 < row["ready_in_s"] <= 30.0
    (at_pi,) = fleet.asks(m.AskWhy(id=fleet.new_id(), job="job")).data["hosts"]
    failed = {"code": "failed", "quoted": "boom"}
    assert {"code": "refused", "reasons": [failed]} in at_pi["reasons"]


def test_why_names_no_host_that_has_just_refused_it() -> None:
    """It is not given the job again at once, and the table below says so."""
    fleet, pi = joined(spec())
    pi.refuses()
    fleet.asks(m.AskPause(id="h", expires_at=fleet.now.wall_s + 60))
    fleet.host("zeta").joins()

    found = look(client_of(fleet)).forecast()
    assert found.outlooks[fleet.job().job_id].host == "zeta"
    row = plan(fleet)["jobs"][0]
    assert 0 < row["refused"]["pi"] <= 30.0


EPOCHS = {"properties": {"epochs": {"type": "integer", "default": 40}}}


def _busy() -> Fleet:
    """One job runs, one was lost by a host that is back, five wait; hosts with one slot each."""
    many = [replace(spec(f"job-{n}", seed=n), hyper={"epochs": 10 * n}) for n in range(1, 5)]
    fleet = Fleet(spec("runs", priority=3), spec("lost", priority=2), *many)
    pi = fleet.host("pi").joins(trainers={"gbt": m.TrainerInfo(hyper_schema=EPOCHS)})
    job = pi.runs("runs")
    lab = fleet.host("lab").joins(trainers={"gbt": m.TrainerInfo(hyper_schema=EPOCHS)})
    lost = lab.runs("lost")
    lab.trains(lost, 30, 40, eta_s=250.0)
    lab.status("offline", "lost")
    for _ in range(35):
        fleet.passes(20.0)
        pi.beats((job.job_id, 1, "running"))
    assert fleet.job("lost").state == "pending"
    fleet.plan(*many, spec("runs", priority=3), spec("lost", priority=2), spec("odd", min_cores=64))
    return fleet


@pytest.mark.words
def test_why_and_plan_predict_the_same_of_the_same_state() -> None:
    """Where a job starts, when, after which, when it ends, by what: also with the manifest named.

    One that is retried, and jobs of other epochs than those that are over, among them.
    """
    fleet = _busy()
    past = [
        *(ran(float(s), model="gbt", host="pi", epochs=None) for s in (900, 1000, 1100)),
        ran(500.0, model="gbt", host="pi", epochs=20), ran(70.0, model="gbt", mode="realistic"),
    ]  # fmt: skip
    client = client_of(fleet, *past)
    picture, _, predicted, *_ = _prepare(client, None)
    planned = {
        one.spec.name: to_dict(one, NOON, paused=False) for one in predicted.outlooks.values()
    }
    names = {"runs", "lost", "odd", *(f"job-{n}" for n in range(1, 5))}
    assert planned.keys() == names
    told = Plan(tuple(job.spec for job in picture.jobs))
    reloaded = _after(picture, after_reload(picture, told), told)
    for name in names:
        found = to_json(read(client, name))["forecast"]
        for key in ("starts_at", "ends_at", "paused"):
            del found[key]
        assert found == {key: planned[name][key] for key in found}
        assert reloaded.outlooks[found["job_id"]] == predicted.outlooks[found["job_id"]]
        begins = {"running": "It will likely end", "starts": "It will likely start", "stuck": ""}
        one = predicted.outlooks[found["job_id"]]
        assert likely(one, predicted).startswith(begins[found["verdict"]])
        assert one.verdict == "running" or to_dict(one, NOON, paused=True)["ends_at"] is None
        if one.estimate:
            assert f", by {rests_on(one.estimate)}" in likely(one, predicted)
    verdicts = {name: one["verdict"] for name, one in planned.items()}
    assert (verdicts.pop("odd"), verdicts.pop("runs")) == ("stuck", "running")
    assert set(verdicts.values()) == {"starts"}
    assert planned["lost"]["host"] == "pi"
    rests = {
        one.spec.name: rests_on(one.estimate)
        for one in predicted.outlooks.values() if one.estimate
    }  # fmt: skip
    assert rests["job-4"] == "3 runs of gbt-oracle here", "as many as one that sets none"
    assert rests["job-2"] == "1 run of gbt-oracle here"
    assert rests["job-1"] == "1 run of gbt-oracle of 20 epochs here, scaled to 10"
    assert planned["job-1"]["scaled_from"] == 20


@pytest.mark.parametrize(("count", "chars"), [(1500, 0), (40, 5000)])
def test_a_plan_of_any_size_comes_in_pages_that_fit(count: int, chars: int) -> None:
    """No answer is larger than what a client takes; every job comes once."""
    hyper = {"of": "\u8aa4" * chars}  # each of which has three bytes
    many = [replace(spec(f"job-{number:04}"), hyper=hyper) for number in range(count)]
    fleet = Fleet(*many)
    seen: list[str] = []
    offset: Any = 0
    while offset is not None:
        response = fleet.asks(m.AskPlan(id="p", offset=offset, limit=1000))
        assert len(m.encode(response)) < m.MAX_PAYLOAD_BYTES
        assert 1 < len(response.data["jobs"]) < response.data["total"] == count
        seen += [row["spec"]["name"] for row in response.data["jobs"]]
        offset = response.data["next"]
    assert sorted(seen) == [one.name for one in many]


@pytest.mark.words
def test_the_end_of_a_plan_is_one_line() -> None:
    """With what nobody knows, what waits and what cannot be; empty when nothing is left."""
    assert end_of_plan(Forecast({}, None, 0)) == ""
    found = whole(waits("a"), waits("b", require_cuda=True), views=[view("pi")])
    said = end_of_plan(found)
    assert said.startswith("about 2 min left, until ")
    assert said.endswith("; 1 job no known host can run")
    assert end_of_plan(found, 2).endswith("no known host can run yet (2 hosts are starting)")
    away = whole(waits("a"), views=[view("pi", online=False)])
    assert end_of_plan(away) == "1 job waits for a host to come back"
    bare, drained = view("pi", data=None), view("pc", restraints=(DRAINED,))
    assert end_of_plan(whole(waits("a"), views=[bare, drained])) == "1 job waits for data on pi"
    said = end_of_plan(whole(waits("a"), waits("b"), views=[drained]))
    assert said == "2 jobs wait for hosts that are drained or in quarantine (pc)"
    quiet = view("pi", restraints=(reason("snoozed"),))
    assert end_of_plan(whole(waits("a"), views=[quiet])).endswith("for a host that takes none now")


@pytest.mark.words
def test_the_end_of_a_plan_with_unknown_jobs_is_unknown_first() -> None:
    """What can be predicted comes after that, and only where it says something."""
    late = Held(named("late"), "pi", elapsed_s=110.0)
    found = whole(waits("a"), views=[view("pi")], held=(late,))
    assert end_of_plan(found) == "how long 2 jobs will take is unknown"
    soon = Held(named("soon"), "pc", eta_s=1.0)
    found = whole(waits("a"), views=[view("pi")], held=(late, soon))
    assert end_of_plan(found) == "how long 2 jobs will take is unknown"
    part = Held(named("soon"), "pc", eta_s=120.0)
    said = end_of_plan(whole(waits("a"), views=[view("pi")], held=(late, part)))
    first = "how long 2 jobs will take is unknown; the part that can be predicted ends about "
    assert said.startswith(first)
    assert said.endswith(", in 2 min")


@pytest.mark.words
def test_nothing_starts_now_where_a_slot_is_taken() -> None:
    """It is told what has to end first, in `why` and in `plan`; nor where no host can take it."""
    late, soon = Held(named("now"), "pi", elapsed_s=110.0), Held(named("now"), "pi", eta_s=1.0)
    for held in (late, soon):
        found = whole(waits("a"), views=[view("pi")], held=(held,))
        (one,) = found.of("starts")
        begins = _cells(one, {one.spec.job_id: "a"}, is_paused=False)[2]
        assert begins == "?" if held is late else ":" in begins
        assert "start now" not in likely(one, found)
        assert "when that has finished now" in likely(one, found)
        (busy,) = found.of("running")
        assert ("unknown" in likely(busy, found)) is (held is late)
        last = _last(found.of("starts"), is_paused=False)
        assert last == "nobody knows when" if held is late else last.startswith("at ")
    found = whole(waits("a"), views=[view("pi")])
    (one,) = found.of("starts")
    assert likely(one, found).startswith("It will likely start soon, on pi.")
    assert likely(one, found).endswith(
        ", by 1 run of gbt-oracle here, whatever their parameters."
    )  # fmt: skip


@pytest.mark.words
def test_while_the_fleet_is_paused_a_prediction_says_so_and_the_remedy_is_to_end_it() -> None:
    """Nothing will start by itself, however free the hosts are."""
    fleet, _ = joined()
    assert fleet.asks(m.AskPause(id="pause")).ok
    fleet.plan(spec())
    why = fleet.why()
    assert [(one["code"], one["hosts"]) for one in why["remedies"]] == [("unpause", ["pi"])]
    assert plan(fleet)["paused"]["code"] == "paused"
    found = replace(whole(waits("a"), views=[view("pi")]), paused=True)
    assert end_of_plan(found).startswith("paused; if it went on now: ")
    (one,) = found.outlooks.values()
    assert likely(one, found).startswith("If the fleet goes on now, it will likely start now")
    assert fleet.asks(m.AskPause(id="off", off=True)).ok
    assert plan(fleet)["paused"] is None


@pytest.mark.words
def test_the_plan_of_a_paused_fleet_names_no_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing starts now: what would follow is told as a distance from when the pause ends."""
    runs = Held(waits("runs").spec, "pi", 10.0, 0.5, 600.0, uses_slot=True)
    found = replace(whole(waits("a"), held=[runs], views=[view("pi")]), paused=True)
    terminal.put(terminal.console(), _times(found, 10))
    running, pending = capsys.readouterr().out.splitlines()[-3:-1]
    assert ("running" in running, ":" in running) == (True, True)
    assert "+10 min" in pending
    assert ":" not in pending
    free = replace(whole(waits("a"), views=[view("pi")]), paused=True)
    terminal.put(terminal.console(), _times(free, 10))
    said = capsys.readouterr().out
    assert "paused, until `fleet pause --off`" in said
    assert "paused" in said.splitlines()[-2]
    assert "now" not in said
