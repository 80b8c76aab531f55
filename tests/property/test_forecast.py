"""What is predicted comes true: the forecast against rules it must keep, and against the core."""

from __future__ import annotations

import heapq
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import messages as m
from broker.protocol.messages import (
    AskDrain,
    AskIdentity,
    AskList,
    AskPause,
    AskPlan,
    AskSnooze,
    AskStatus,
    AskWhy,
    AskWorkers,
    Assign,
    Gpu,
    Needs,
    TrainerInfo,
)
from coordinator.client.predictions import Picture, Planned, views_of
from coordinator.core.effects import Collect, Collected, ManifestRead
from coordinator.jobs import host_paging
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan, spec_from_dict
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.durations import History
from coordinator.scheduler.estimates import Span
from tests.harness.coordinator import HEX, Fleet, with_id
from tests.property import test_board as board

GIB = 1024**3
GRACE_S = 300.0
MODELS = ("gbt", "cnn")
TRAINERS = {model: TrainerInfo(hyper_schema={}) for model in MODELS}


def spec(name: str, model: str, priority: int, **needs: Any) -> JobSpec:
    made = JobSpec(
        job_id="", name=name, model=model, mode="oracle", hyper={}, split_recipe="host",
        seed=0, n_resamples=1, priority=priority, needs=Needs(**needs),
    )  # fmt: skip
    return with_id(made, of=name)


@st.composite
def specs(draw: st.DrawFn) -> list[JobSpec]:
    """Up to a dozen jobs; some need a GPU, or prefer one, or so much memory."""
    needs = st.fixed_dictionaries(
        {},
        optional={
            "require_cuda": st.booleans(),
            "prefer_cuda": st.booleans(),
            "min_ram_gib": st.sampled_from([2, 64]),
        },
    )
    count = draw(st.integers(1, 8))
    return [
        spec(f"j{n}", draw(st.sampled_from(MODELS)), draw(st.integers(0, 2)), **draw(needs))
        for n in range(count)
    ]


@st.composite
def capabilities(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    found = {}
    for number in range(draw(st.integers(1, 3))):
        gpu = Gpu(index=0, vram_total_bytes=8 * GIB, vram_free_bytes=8 * GIB)
        found[f"h{number}"] = {
            "gpus": (gpu,) if draw(st.booleans()) else (),
            "slots": draw(st.integers(1, 2)),
            "ram_total_bytes": 6 * GIB,  # as much as the harness's heartbeats say is free
            "ram_available_bytes": 6 * GIB,
            "trainers": TRAINERS,
        }
    return found


def history(hosts: Any, took_s: dict[tuple[str, str], float]) -> History:
    """Each model has run once on each host."""
    return History(
        {"end": "completed", "whole": True, "model": model, "mode": "oracle", "host": host,
         "s": took_s[model, host]}
        for model in MODELS for host in hosts
    )  # fmt: skip


@st.composite
def durations(draw: st.DrawFn) -> dict[tuple[str, str], float]:
    """How long each model takes on each host.

    No two are alike and none is whole, so that nothing ends together, or with the grace.
    """
    seconds = draw(st.lists(st.integers(20, 400), min_size=6, max_size=6, unique=True))
    keys = [(model, f"h{number}") for model in MODELS for number in range(3)]
    return {key: value + 0.01 for key, value in zip(keys, seconds)}


@settings(max_examples=25)
@given(specs(), capabilities(), durations())
def test_what_is_forecast_is_what_the_coordinator_does(
    jobs: list[JobSpec], hosts: dict[str, Any], took_s: dict[tuple[str, str], float]
) -> None:
    """Played against the real core, with hosts that take as long as they have always taken.

    Every job starts where and when it was said that it would, and those that were said to be stuck
    never do.
    """
    alone = Fleet(*jobs)  # what is asked before anybody has been given anything
    rows = alone.asks(AskPlan(id="p")).data
    planned = [Planned(spec_from_dict(row["spec"]), row) for row in rows["jobs"]]
    reality = Reality(hosts, took_s)
    workers = host_paging.whole(reality.fleet.asks(AskWorkers(id="w")).data)
    picture = Picture(planned, views_of(workers), history(hosts, took_s), rows["grace_s"])
    said = picture.forecast()
    real = reality.plays(jobs)
    for one in said.outlooks.values():
        if one.verdict == "stuck":
            assert one.spec.job_id not in real
        else:
            assert one.start is not None
            host, start_s = real[one.spec.job_id]
            assert (one.host, round(one.start.median_s)) == (host, round(start_s)), one.spec.name
            assert one.start == Span(*(one.start.median_s,) * 3)


class Reality:
    """A core and its hosts; each attempt takes as long as the table says."""

    def __init__(self, hosts: Any, took_s: dict[tuple[str, str], float]) -> None:
        self.fleet, self.took_s = Fleet(), took_s
        self.fleet.stored[HEX] = 2000  # every result is the same, and there: nothing is sent
        self.fleet.start()
        self.hosts = {name: self.fleet.host(name) for name in hosts}
        for name, capability in hosts.items():
            self.hosts[name].joins(**capability)
        self.due: list[tuple[float, str, str]] = []
        self.found: dict[str, tuple[str, float]] = {}
        self.begun_s = 0.0

    def plays(self, jobs: list[JobSpec]) -> dict[str, tuple[str, float]]:
        """Run until nothing more happens; return where and when each job started."""
        fleet = self.fleet
        self.begun_s = fleet.mono_s
        fleet.plan(*jobs)
        self.start()
        while self.due or fleet.mono_s < self.begun_s + 2 * GRACE_S:
            # A grace may end while nobody is at work: who starts then, starts at that moment.
            next_s = fleet.core.next_deadline() or fleet.mono_s
            soon_s = max(next_s, fleet.mono_s + 1.0)
            until_s = min([fleet.mono_s + 60.0, soon_s, *(one[0] for one in self.due[:1])])
            fleet.passes(until_s - fleet.mono_s)
            for _ in fleet.took(Collect):
                fleet.handle(Collected({HEX: 2000}))
            self.start()
            while self.due and self.due[0][0] <= fleet.mono_s:
                _, name, ended = heapq.heappop(self.due)
                self.hosts[name].finishes(fleet.ledger[ended])
                assert fleet.ledger[ended].state == "completed"
                self.start()
            self.beat()
        return self.found

    def start(self) -> None:
        """Let every host take what it was given."""
        for name, host in self.hosts.items():
            for given_ in host.heard(Assign):
                job = self.fleet.ledger[given_.job_id]
                host.reports(m.Accepted, job, request_id=given_.id)
                host.reports(m.Started, job, slot=0, pid=1)
                self.found[job.job_id] = (name, self.fleet.mono_s - self.begun_s)
                end_s = self.fleet.mono_s + self.took_s[job.spec.model, name]
                heapq.heappush(self.due, (end_s, name, job.job_id))

    def beat(self) -> None:
        """Let every host say what it holds."""
        for name, host in self.hosts.items():
            held = [job for job in self.fleet.ledger.values() if job.is_held and job.host == name]
            host.beats(*((job.job_id, job.attempt, "running") for job in held))
        self.start()


HOW = st.sampled_from(
    ("free", "drained", "drained", "snoozed", "quiet", "away", "revoked", "bare", "bare")
)  # fmt: skip
known_hosts = st.dictionaries(board.hosts, st.tuples(board.capabilities(), HOW), min_size=1)


@settings(max_examples=100)
@given(
    st.lists(board.jobs(), unique_by=lambda job: job.job_id, min_size=1, max_size=8),
    board.policies(), known_hosts, st.booleans(),
)  # fmt: skip
def test_every_face_agrees_on_what_no_host_can_run(
    jobs: list[JobSpec],
    policies: dict[str, HostPolicy],
    hosts: dict[str, tuple[dict[str, Any], str]],
    paused: bool,
) -> None:
    fleet = Fleet()
    if paused:
        fleet.asks(AskPause(id="pause"))
    for name, (capability, how) in hosts.items():
        host = fleet.host(name).joins(**capability)
        match how:
            case "drained":
                fleet.asks(AskDrain(id=f"d-{name}", host=name))
            case "snoozed":
                fleet.asks(AskSnooze(id=f"s-{name}", host=name, for_s=600.0))
            case "quiet":
                host.beats(refuses=(m.Why(code="quiet"),))
            case "away":
                host.status("offline", "lost")
            case "bare":
                host.joins(**capability | {"data_id": None})
            case "revoked":
                made_at = fleet.now.wall_s
                entry = AskIdentity(id=f"r-{name}", action="revoke", name=name, made_at=made_at)
                assert fleet.asks(entry, "operator:alice/cli").ok
    fleet.handle(ManifestRead(Plan(tuple(jobs), policies, GRACE_S)))

    def ask(request: Any) -> Any:
        return fleet.asks(request).data

    rows = [row for row in ask(AskList(id="l"))["jobs"] if row["state"] == "pending"]
    marked = {row["job_id"] for row in rows if row["unplaceable"]}
    page = ask(AskPlan(id="p"))
    planned = [Planned(spec_from_dict(row["spec"]), row) for row in page["jobs"]]
    views = views_of(host_paging.whole(ask(AskWorkers(id="w"))))
    said = Picture(planned, views, History(), page["grace_s"]).forecast()
    assert {one.spec.job_id for one in said.of("stuck")} == marked
    waits = {row["job_id"]: row["waits_for"]["what"] for row in rows if "waits_for" in row}
    absent = {one.spec.job_id: one.awaits for one in said.of("absent")}
    asked = {
        one: wait.name.lower() for one, wait in absent.items() if wait in {Wait.DATA, Wait.RESUME}
    }
    assert asked == waits
    status = ask(AskStatus(id="s"))
    assert status["unplaceable"]["count"] == len(marked)
    assert status["waiting"]["count"] == len(waits)
    if not paused:
        why = {row["job_id"]: ask(AskWhy(id="y", job=row["job_id"])) for row in rows}
        assert {job_id for job_id, one in why.items() if one["hopeless"]} == marked
