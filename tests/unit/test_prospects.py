"""What a coordinator hands out for predictions, and how those are told."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from broker import messages as m
from coordinator import hostpages
from coordinator.cli import render, show, status
from coordinator.cli.client import OperatorClient
from coordinator.cli.outlook import (
    Picture,
    about,
    at,
    end_of_plan,
    look,
    summary_to_dict,
    to_dict,
    views_of,
)
from coordinator.cli.plan import _after, _cells, _last, _prepare, _print, _print_times, after_reload
from coordinator.cli.why import _advice, _print_hosts, _read, _told, _when
from coordinator.durations import History
from coordinator.effects import AnswerWithEvents
from coordinator.estimates import Span
from coordinator.forecast import Forecast, Held
from coordinator.plan import Plan, spec_from_dict
from tests.harness.coordinator import Fleet, spec
from tests.unit.test_durations import ran
from tests.unit.test_forecast import host as view
from tests.unit.test_forecast import named, waits, whole

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def plan(fleet: Fleet, **wanted: Any) -> Any:
    """A page of the running plan."""
    return fleet.asks(m.AskPlan(id="p", **wanted)).data


def _client(fleet: Fleet, *attempts: Any) -> Any:
    """A client that asks the core, with no broker between; `attempts` are what is over."""

    class Client:
        def ask(self, request: Any) -> Any:
            if isinstance(request, m.AskAttempts):
                return {"attempts": [*attempts], "next": None}
            return fleet.asks(request).data

        def ask_ahead(self, request: Any) -> None:
            """It is asked when the answer is wanted."""

        host_pages, list_workers = OperatorClient.host_pages, OperatorClient.list_workers

    return Client()


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


def test_why_names_no_host_that_has_just_refused_it() -> None:
    """It is not given the job again at once, and the table below says so."""
    fleet = Fleet(spec())
    pi = fleet.host("pi").joins()
    (assign,) = pi.heard(m.Assign)
    pi.reports(m.Refused, fleet.job(), request_id=assign.id, reasons=("its disk is full",))
    fleet.asks(m.AskPause(id="h", expires_at=fleet.now.wall_s + 60))
    fleet.host("zeta").joins()

    found = look(_client(fleet)).forecast()
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
    said = m.Progress(attempt=1, epoch=30, epochs=40, eta_s=250.0)
    lab.says(fleet.topics.progress("lab", lost.job_id), said)
    lab.status("offline", "lost")
    for _ in range(35):
        fleet.passes(20.0)
        pi.beats((job.job_id, 1, "running"))
    assert fleet.job("lost").state == "pending"
    fleet.plan(*many, spec("runs", priority=3), spec("lost", priority=2), spec("odd", min_cores=64))
    return fleet


def test_why_and_plan_predict_the_same_of_the_same_state() -> None:
    """Where a job starts, when, after which, when it ends, by what: also with the manifest named.

    One that is retried, and jobs of other epochs than those that are over, among them.
    """
    fleet = _busy()
    past = [
        *(ran(float(s), model="gbt", host="pi", epochs=None) for s in (900, 1000, 1100)),
        ran(500.0, model="gbt", host="pi", epochs=20), ran(70.0, model="gbt", mode="realistic"),
    ]  # fmt: skip
    client = _client(fleet, *past)
    picture, _, predicted, _ = _prepare(client, None)
    planned = {
        one.spec.name: to_dict(one, NOON, paused=False) for one in predicted.outlooks.values()
    }
    names = {"runs", "lost", "odd", *(f"job-{n}" for n in range(1, 5))}
    assert planned.keys() == names
    told = Plan(tuple(job.spec for job in picture.jobs))
    reloaded = _after(picture, after_reload(picture, told), told)
    for name in names:
        found = _read(client, name)["forecast"]
        moments = {key: found.pop(key) for key in ("starts_at", "ends_at", "text", "paused")}
        assert found == {key: planned[name][key] for key in found}
        assert reloaded.outlooks[found["job_id"]] == predicted.outlooks[found["job_id"]]
        likely = {"running": "It will likely end", "starts": "It will likely start", "stuck": ""}
        assert moments["text"].startswith(likely[found["verdict"]])
        if found["rests_on"]:
            assert f", by {found['rests_on']}" in moments["text"]
    verdicts = {name: one["verdict"] for name, one in planned.items()}
    assert (verdicts.pop("odd"), verdicts.pop("runs")) == ("stuck", "running")
    assert set(verdicts.values()) == {"starts"}
    assert planned["lost"]["host"] == "pi"
    rests = {name: one["rests_on"] for name, one in planned.items()}
    assert rests["job-4"] == "3 runs of gbt-oracle here", "as many as one that sets none"
    assert rests["job-2"] == "1 run of gbt-oracle here"
    assert rests["job-1"] == "1 run of gbt-oracle of 20 epochs here, scaled to 10"
    assert planned["job-1"]["scaled_from"] == 20


def test_a_retry_has_an_end_at_once() -> None:
    """Though nothing like it was ever completed: its trainer said how long it takes."""
    fleet = _busy()
    assert _read(_client(fleet), "lost")["forecast"]["basis"] == "earlier", "though it waits"
    lab = fleet.host("lab")
    lab.session, lab.instance = "s-2", "i-2"
    lab.joins(trainers={"gbt": m.TrainerInfo(hyper_schema=EPOCHS)})
    assert (fleet.job("lost").host, fleet.job("lost").state) == ("lab", "claimed")
    found = _read(_client(fleet), "lost")["forecast"]
    assert found["ends_in_s"] == {"quick": 250.0, "median": 250.0, "slow": 1000.0}
    by = "what its trainer said in an earlier attempt, less up to 75% done before"
    assert (found["basis"], found["rests_on"]) == ("earlier", by)
    assert _read(_client(fleet), "runs")["forecast"]["text"] == (
        "How long it will take is unknown: nothing like it was ever completed."
    )


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
        (
            "it failed: … (killed by signal 9, perhaps for want of memory)",
            "if it ran out of memory",
        ),
        ("it failed: lost 3 times, the last time on pi: …", "its hosts went away"),
        ("it failed: exit code 1", "`fleet logs job`"),
    ],
)
def test_a_failed_job_has_a_next_step(summary: str, first: str) -> None:
    """By what has happened."""
    found = _advice({"state": "failed", "name": "job", "summary": summary})
    assert found[0].startswith(first)
    assert not any("requeue" in text for text in found), "the summary has said so"
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
    assert end_of_plan(found, 2).endswith("no known host can run yet (2 hosts are starting)")
    away = whole(waits("a"), views=[view("pi", online=False)])
    assert end_of_plan(away) == "1 job waits for a host to come back"
    bare, drained = view("pi", data=None), view("pc", barred=("drained by x",))
    assert end_of_plan(whole(waits("a"), views=[bare, drained])) == "1 job waits for data on pi"
    said = end_of_plan(whole(waits("a"), waits("b"), views=[drained]))
    assert said == "2 jobs wait for hosts that are drained or in quarantine (pc)"
    quiet = view("pi", snoozed="snoozed until noon")
    assert end_of_plan(whole(waits("a"), views=[quiet])).endswith("for a host that takes none now")


def test_the_end_of_a_plan_says_when_it_rests_on_runs_of_other_epochs() -> None:
    """Only of many more, or far fewer: a single quick run is no measure of two thousand epochs."""
    job = waits("a")
    long = replace(job, spec=replace(job.spec, hyper={"epochs": 2000}))
    for epochs, is_far in ((4, True), (600, False)):
        known = History([ran(12.0, model="gbt", epochs=epochs)])
        said = end_of_plan(whole(long, waits("b", require_cuda=True), views=[view("pi")],
                                 known=known))  # fmt: skip
        assert ("; it rests on runs of other epochs; 1 job no known" in said) is is_far
    vague = whole(long, views=[view("pi")], known=History())
    assert end_of_plan(vague) == "how long 1 job will take is unknown"


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


def test_nothing_starts_now_where_a_slot_is_taken() -> None:
    """It is told what has to end first, in `why` and in `plan`; nor where no host can take it."""
    late, soon = Held(named("now"), "pi", elapsed_s=110.0), Held(named("now"), "pi", eta_s=1.0)
    for held in (late, soon):
        found = whole(waits("a"), views=[view("pi")], held=(held,))
        (one,) = found.of("starts")
        begins = _cells(one, {one.spec.job_id: "a"}, is_paused=False)[2]
        assert begins == "?" if held is late else ":" in begins
        assert "start now" not in _when(one, found)
        assert "when that has finished now" in _when(one, found)
        (busy,) = found.of("running")
        assert ("unknown" in _when(busy, found)) is (held is late)
        last = _last(found.of("starts"), is_paused=False)
        assert last == "nobody knows when" if held is late else last.startswith("at ")
    found = whole(waits("a"), views=[view("pi")])
    (one,) = found.of("starts")
    assert _when(one, found).startswith("It will likely start now, on pi.")
    assert _when(one, found).endswith(
        ", by 1 run of gbt-oracle here, whatever their hyperparameters."
    )  # fmt: skip
    assert _when(one, found, takes=False).startswith("It will likely start soon, on pi.")


def test_why_answers_for_any_number_of_hosts() -> None:
    """A broker, or a client, would not take more; those with the least against them are named."""
    fleet = Fleet()
    for number in range(1500):
        name = f"{number:04}-{'x' * 55}"
        fleet.host(name).joins(physical_cores=2, data_id=None if number % 10 else "d")
    fleet.plan(spec(min_cores=8))
    (answer, payload) = answered(fleet, m.AskWhy(id="w", job="job"))
    assert len(payload) < 200_000
    named = answer["hosts"]
    assert answer["known"] == 1500 > len(named) > 150
    assert [host["host"] for host in named] == sorted(host["host"] for host in named)
    assert sum(len(host["reasons"]) == 1 for host in named) == 150, "they lack cores alone"
    assert "none of 1500 known hosts" in answer["summary"]


def test_hosts_that_would_suit_are_counted_though_not_all_are_named() -> None:
    """Each by what holds it up."""
    fleet = Fleet()
    for number in range(150):
        fleet.host(f"h{number:03}").joins(ram_available_bytes=1)
    for host in [fleet.host(f"h{number:03}") for number in range(150)]:
        host.session, host.instance = f"s-{host.name}", f"i-{host.name}"
        host.status("offline", "lost")
    fleet.plan(spec())
    answer, _ = answered(fleet, m.AskWhy(id="w", job="job"))
    assert answer["suit"] == {"crashed": 150}
    assert len(answer["suitable"]["crashed"]) == 100


def test_hosts_come_in_pages_that_have_the_schemas_of_their_trainers_once() -> None:
    """Whatever number of hosts there is; what was said of each is whole again at the other end."""
    fleet = Fleet()
    schema = {"properties": {f"key{n}": {"type": "number", "title": "x" * 50} for n in range(60)}}
    for number in range(300):
        trainers = {"gbt": m.TrainerInfo(hyper_schema=schema if number % 3 else {})}
        fleet.host(f"h{number:03}").joins(trainers=trainers, physical_cores=number + 1)
    rows: list[dict[str, Any]] = []
    pages, offset = 0, 0
    while offset is not None:
        page, payload = answered(fleet, m.AskWorkers(id=f"w{offset}", offset=offset))
        assert len(payload) < 200_000
        rows += hostpages.whole(page)
        pages, offset = pages + 1, page["next"]
    assert pages <= 4, "each schema alone is 5 KB"
    hosts = fleet.core.world.hosts
    assert [row["host"] for row in rows] == sorted(hosts)
    for row in rows:
        capability = hosts[row["host"]].capability
        assert capability is not None
        assert row["capability"] == capability.model_dump(mode="json")


def test_each_host_is_predicted_with_its_own_trainers() -> None:
    """Those of a page have them in common, and are what they said all the same."""
    fleet = Fleet()
    kinds: list[dict[str, Any]] = [{"gbt": m.TrainerInfo(hyper_schema=EPOCHS)}, {}]
    for number in range(6):
        fleet.host(f"h{number}").joins(trainers=kinds[number % 2], physical_cores=number + 1)
    fleet.host("h9").status("online", "birth")  # which has yet to say what it is
    rows = hostpages.whole(fleet.asks(m.AskWorkers(id="w")).data)
    told = {view.host: view.capability for view in views_of(rows)}
    assert told == {name: fleet.core.world.hosts[name].capability for name in sorted(told)}
    assert [*told] == [f"h{number}" for number in range(6)]


def test_who_comes_and_goes_between_two_pages_is_there_or_not() -> None:
    """Hosts come by name, as they are when a page is asked for."""
    fleet = Fleet()

    def names(**wanted: Any) -> list[str]:
        page: Any = fleet.asks(m.AskWorkers(id=fleet.new_id(), **wanted)).data
        return [row["host"] for row in page["workers"]]

    for name in ("c", "a"):
        fleet.host(name).joins()
    assert names() == ["a", "c"]
    fleet.host("b").joins()
    assert names(limit=2) == ["a", "b"]
    assert names(offset=2, absent=True) == ["c"]
    fleet.host("a").status("offline", "goodbye")
    fleet.asks(m.AskForget(id="f", host="a", expires_at=fleet.now.wall_s + 60))
    assert names() == ["b", "c"]


def answered(fleet: Fleet, ask: Any) -> tuple[Any, bytes]:
    """The data of an answer, and the answer as it goes over the wire."""
    response = fleet.asks(ask)
    return response.data, m.encode(response)


def test_a_job_that_does_not_wait_has_no_conditions_to_tell() -> None:
    """Whatever its spec demands: it is with a host, or over."""
    fleet = Fleet(replace(spec(retries=0, min_cores=1), allowed_hosts=("pi",)))
    pi = fleet.host("pi").joins()
    job = pi.runs()
    held = fleet.asks(m.AskWhy(id="w", job=job.job_id)).data
    assert held["clauses"] == []
    assert "known" not in held, "no host was looked at"
    pi.reports(m.Failed, job, error="boom")
    assert fleet.asks(m.AskWhy(id="x", job=job.job_id)).data["clauses"] == []


def test_while_the_fleet_is_paused_a_prediction_says_so_and_the_remedy_is_to_end_it() -> None:
    """Nothing will start by itself, however free the hosts are."""
    fleet = Fleet()
    fleet.host("pi").joins()
    assert fleet.asks(m.AskPause(id="pause")).ok
    fleet.plan(spec())
    why = fleet.asks(m.AskWhy(id="w", job="job")).data
    assert why["remedies"] == ["after `fleet pause --off`, pi could take it"]
    assert "paused" in plan(fleet)["paused"]
    found = replace(whole(waits("a"), views=[view("pi")]), paused=True)
    assert end_of_plan(found).startswith("paused; if it went on now: ")
    (one,) = found.outlooks.values()
    assert _when(one, found).startswith("If the fleet goes on now, it will likely start now")
    assert fleet.asks(m.AskPause(id="off", off=True)).ok
    assert plan(fleet)["paused"] == ""


def test_while_the_fleet_is_paused_a_job_that_nobody_can_run_is_told_so() -> None:
    """To end the pause would not help it: what would is told as if the fleet went on."""
    fleet = Fleet()
    fleet.host("pi").joins()
    assert fleet.asks(m.AskPause(id="pause")).ok
    fleet.plan(spec(min_ram_gib=900))
    why = fleet.asks(m.AskWhy(id="w", job="job")).data
    assert why["summary"].endswith("lifts it, but the only known host cannot take it even then")
    (remedy,) = why["remedies"]
    assert remedy.startswith("if min_ram_gib were ")
    assert "the fleet was paused" in why["hosts"][0]["reasons"][0]
    fleet.host("pc").joins()
    why = fleet.asks(m.AskWhy(id="w", job="job")).data
    assert why["summary"].endswith("but none of 2 known hosts can take it even then")
    fleet.plan(spec())
    why = fleet.asks(m.AskWhy(id="w", job="job")).data
    assert why["summary"].endswith("`fleet pause --off` lifts it")


def test_pending_jobs_that_the_manifest_has_not_are_told_apart() -> None:
    """`fleet status` counts them as pending, though they will never run."""
    fleet = Fleet(spec("old"), spec("kept"))
    fleet.plan(spec("kept"))
    data = {**fleet.asks(m.AskStatus(id="s")).data, "forecast": None}
    assert (data["jobs"]["pending"], data["orphaned"]) == (2, 1)
    words = "1 pending no longer in the manifest"
    out = io.StringIO()
    for line in status._draw(data):
        Console(file=out, width=200).print(line)
    assert words in out.getvalue()
    fleet.plan(spec("kept"), spec("old"))
    assert fleet.asks(m.AskStatus(id="t")).data["orphaned"] == 0


def test_all_is_named_only_where_a_plan_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Many jobs for one reason are a line: then every job is shown."""
    alike = whole(*(waits(f"{n}", require_cuda=True) for n in range(9)), views=[view("pi")])
    picture = Picture([], [view("pi")], History(), 0.0)
    _print(render.console(), picture, None, alike, show_all=False)
    assert "--all" not in capsys.readouterr().out
    many = whole(*(waits(f"{n}") for n in range(9)), views=[view("pi")])
    _print(Console(height=10), picture, None, many, show_all=False)
    assert "--all shows every job." in capsys.readouterr().out


def test_only_what_counts_is_counted_against_a_job() -> None:
    """An attempt that is given back costs nothing; what counts has its limit beside it."""
    fleet = Fleet(spec(retries=2))

    def shown() -> Any:
        fleet.asks(m.AskShow(id="s", job="job"))
        return fleet.took(AnswerWithEvents)[0].data

    pi = fleet.host("pi").joins()
    job = pi.runs("job")
    fleet.asks(m.AskDrain(id="d", host="pi", now=True))
    pi.reports(m.Released, job, reason="drained")
    data = shown()
    assert (data["attempt"], data["losses"], data["retries"]) == (1, [0, 3], [0, 2])
    assert show._counted(data) == ""
    assert show._counted(data | {"losses": [1, 3]}) == "lost 1 of 3 times"
    fleet.asks(m.AskResume(id="r", host="pi"))
    pi.reports(m.Failed, pi.runs("job"), error="CUDA out of memory", transient=True)
    assert show._counted(shown()) == "1 of 2 retries used"


@pytest.mark.parametrize(("event", "said"), [("enroll", "of pi"), ("drain", "on pi")])
def test_a_host_is_enrolled_elsewhere(
    capsys: pytest.CaptureFixture[str], event: str, said: str
) -> None:
    """On the CA's machine: the host is whom it was for."""
    render.print_event(
        {"at": "2026-01-02T12:00:00Z", "who": "ca:al", "event": event, "outcome": "done",
         "name": None, "host": "pi", "why": ""}
    )  # fmt: skip
    assert said in capsys.readouterr().out


def test_a_host_that_gave_a_job_back_is_named_as_the_host() -> None:
    """The row of the event has none any more."""
    event = {"at": "2026-01-02T12:00:00Z", "event": "released", "attempt": 1, "host": None,
             "who": "host:pi", "why": "drained"}  # fmt: skip
    assert show._event(event)[3:5] == ("pi", "host")
    assert show._event(event | {"who": "coordinator"})[3:5] == ("-", "coordinator")


def test_the_plan_of_a_paused_fleet_names_no_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing starts now: what would follow is told as a distance from when the pause ends."""
    runs = Held(waits("runs").spec, "pi", 10.0, 0.5, 600.0, uses_slot=True)
    found = replace(whole(waits("a"), held=[runs], views=[view("pi")]), paused=True)
    _print_times(render.console(), found, 10)
    running, pending = capsys.readouterr().out.splitlines()[-3:-1]
    assert ("running" in running, ":" in running) == (True, True)
    assert "+10 min" in pending
    assert ":" not in pending
    free = replace(whole(waits("a"), views=[view("pi")]), paused=True)
    _print_times(render.console(), free, 10)
    said = capsys.readouterr().out
    assert "paused, until `fleet pause --off`" in said
    assert "paused" in said.splitlines()[-2]
    assert "now" not in said


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("exit code 1", "; `fleet requeue` tries again"),
        ("bad_input: no channel 'x'", "; the same input would fail again: correct the manifest"),
    ],
)
def test_what_helps_a_failed_job_depends_on_why_it_failed(error: str, remedy: str) -> None:
    """To try bad input again is pointless."""
    fleet = Fleet(spec(retries=0))
    pi = fleet.host("pi").joins()
    pi.reports(m.Failed, pi.runs(), error=error)
    summary = fleet.asks(m.AskWhy(id="w", job="job")).data["summary"]
    assert summary.startswith(f"it failed: {error}{remedy}")
    assert summary.count("requeue") == 1


def test_nothing_is_said_twice_and_one_is_one() -> None:
    """A state, then what there is to say beyond it."""
    assert _told("completed", "it is completed") == ""
    assert _told("running", "it is running on pi") == " on pi"
    assert _told("failed", "it failed: boom; …") == ": boom; …"
    assert _told("cancelled", "it was cancelled; `fleet requeue` …") == ": `fleet requeue` …"
    assert _told("pending", "it is about to be assigned") == ": it is about to be assigned"
    fleet = Fleet(spec(min_cores=9))
    fleet.host("pi").joins()
    said = fleet.asks(m.AskWhy(id="w", job="job")).data["summary"]
    assert said == "the only known host cannot take it"


def test_what_no_waiting_ends_comes_first_and_is_not_told_as_passing() -> None:
    """`now` where waiting helps alone; a busy slot is the least of a host without CUDA."""
    fleet = Fleet(spec("first", priority=1), spec("second"), spec("gru", require_cuda=True))
    pi = fleet.host("pi").joins()
    pi.runs("first")
    never = fleet.asks(m.AskWhy(id="w1", job="gru")).data
    assert never["summary"] == "the only known host cannot take it"
    (host,) = never["hosts"]
    assert host["reasons"] == ["needs CUDA; this host has none", "its only slot is busy"]
    soon = fleet.asks(m.AskWhy(id="w2", job="second")).data
    assert soon["summary"] == "the only known host cannot take it now"


def test_scripts_learn_no_hour_of_what_waits_for_a_paused_fleet() -> None:
    """Only the distance from when it goes on; what runs ends when it ends."""
    runs = Held(waits("runs").spec, "pi", 10.0, 0.5, 600.0, uses_slot=True)
    views = [view("pi"), view("attic")]
    found = replace(whole(waits("a"), held=[runs], views=views), paused=True)
    rows = {one.spec.name: to_dict(one, NOON, paused=True) for one in found.outlooks.values()}
    assert (rows["a"]["starts_at"], rows["a"]["ends_at"]) == (None, None)
    assert rows["a"]["starts_in_s"]["median"] == 0.0
    assert rows["runs"]["ends_at"] == "2026-11-21T12:10:00Z"
    assert summary_to_dict(found, NOON)["ends_at"] is None
    goes_on = replace(found, paused=False)
    assert to_dict(goes_on.outlooks[waits("a").spec.job_id], NOON, paused=False)["starts_at"]


def test_what_the_summary_says_of_all_hosts_is_not_said_of_each() -> None:
    """The pause, once; and how a host is has one name, in its reasons and in the list of hosts."""
    fleet = Fleet()
    fleet.host("pi").joins()
    desk = fleet.host("desk").joins()
    fleet.plan(spec(min_cores=64))
    desk.status("offline", "lost")
    assert fleet.asks(m.AskPause(id="pause")).ok
    data = fleet.asks(m.AskWhy(id="w", job="job")).data
    (row,) = (row for row in fleet.asks(m.AskWorkers(id="k")).data["workers"]
              if row["host"] == "desk")  # fmt: skip
    assert f"offline ({row['presence']})" in data["hosts"][0]["reasons"]
    out = Console(file=io.StringIO(), width=1000)
    _print_hosts(out, data["hosts"], data["summary"])
    said = out.file.getvalue()  # type: ignore[attr-defined] # it is a StringIO
    assert "paused" in data["summary"]
    assert "paused" not in said
    assert "needs 64 cores" in said


def test_reasons_begin_in_one_column_beside_hosts_of_any_name() -> None:
    """Hosts that share theirs stand above them, and take no room in it."""
    hosts = [
        {"host": "alpha", "reasons": ["needs CUDA", "busy"]},
        {"host": "pi", "reasons": ["drained"]},
        *({"host": f"workstation-{n}", "reasons": ["asleep"]} for n in (1, 2)),
    ]
    out = Console(file=io.StringIO(), width=1000)
    _print_hosts(out, hosts, "")
    assert out.file.getvalue().splitlines() == [  # type: ignore[attr-defined] # a StringIO
        "",
        "  alpha  needs CUDA",
        "         busy",
        "  pi     drained",
        "  workstation-1, workstation-2",
        "    asleep",
    ]


def test_what_a_prediction_rests_on_gives_way_before_what_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a window that is not wide enough for all of it."""
    monkeypatch.setenv("COLUMNS", "120")
    known = History([ran(s, model="gbt", epochs=5) for s in (900.0, 1200.0)])
    long = replace(named("gbt-oracle-of-many-epochs"), hyper={"epochs": 100})
    jobs = (replace(waits("a"), spec=long), waits("next", "2"))
    found = whole(*jobs, views=[view("workstation")], known=known)
    _print_times(render.console(), found, 10)
    line = capsys.readouterr().out.splitlines()[2]
    end = found.outlooks[long.job_id].end
    assert end is not None
    assert line.startswith("gbt-oracle-of-many-epochs  workstation  now ")
    assert at(end.median_s) in line
    assert "2 runs of gbt-oracle of" in line
    assert "scaled to 100" not in line
