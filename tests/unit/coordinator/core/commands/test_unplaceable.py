"""Pending jobs that no known host could ever run: how they are found, and where that is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.topics import Topics
from coordinator.cli import lists, status
from coordinator.client.mirror import Going, Mirror
from coordinator.client.rows import job_row
from coordinator.core.commands import prospects
from coordinator.core.effects import LookUp, ManifestRead
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan
from coordinator.top import job_table
from coordinator.ui import terminal, up_live
from coordinator.ui.fleet_columns import DIM, PLAIN
from coordinator.ui.words import by_row
from tests.harness.coordinator import Fleet, joined, spec
from tests.harness.drawn import drawn
from tests.harness.inclient import client_of
from tests.harness.mirrored import told_row

AT = Now(1.0, 1.0)


def marked(fleet: Fleet) -> set[str]:
    """The jobs that are told to be for no host; `why` says the same, and `status` counts them."""
    found = {row["name"] for row in fleet.listed() if row["unplaceable"]}
    said = fleet.status()["unplaceable"]
    assert {one["name"] for one in said["jobs"]} == found
    assert said["count"] == len(found)
    world = fleet.core.world
    waiting = [job for job in world.book.all() if job.state == "pending" and job.in_plan]
    known = any(host.capability for host in world.hosts.values())
    why = {one.spec.name: prospects.why(world, one, fleet.now) for one in waiting}
    assert found == {name for name, one in why.items() if known and one["hopeless"]}
    return found


def test_a_job_that_no_host_could_run_is_told_apart_from_one_that_waits() -> None:
    """By what it needs, by its hosts, its name, its hyperparameters; not by what will pass."""
    schema = {"type": "object", "properties": {"epochs": {"type": "integer", "maximum": 5}}}
    fleet = Fleet()
    pi = fleet.host("pi").joins(trainers={"gbt": m.TrainerInfo(hyper_schema=schema)})
    pc = fleet.host("pc").joins(trainers={"gbt": m.TrainerInfo(hyper_schema=schema)})
    specs: list[JobSpec] = [
        spec("first", priority=9), spec("second", priority=9), spec("waits"),
        spec("big", min_ram_gib=900), spec("just-now", min_ram_gib=7),
        spec("cuda", require_cuda=True), spec("grace", prefer_cuda=True),
        replace(spec("elsewhere"), allowed_hosts=("attic",)),
        replace(spec("here"), allowed_hosts=("pi",)), replace(spec("long"), hyper={"epochs": 9}),
        spec("banned"), replace(spec("other"), model="cnn"),
    ]  # fmt: skip
    policies = {name: HostPolicy(name, deny_jobs=("banned",)) for name in ("pi", "pc")}
    fleet.handle(ManifestRead(Plan(tuple(specs), hosts=policies)))
    never = {"big", "cuda", "elsewhere", "long", "banned", "other"}
    assert marked(fleet) == never
    pi.status("offline", "lost")
    pc.status("offline", "lost")
    assert marked(fleet) == never, "a host that is away may come back"
    fleet.asks(m.AskPause(id="pause"))
    assert marked(fleet) == never, "a pause has an end"
    fleet.host("attic").joins(gpus=(m.Gpu(index=0, vram_total_bytes=2**33),))
    assert marked(fleet) == {"big", "other"}, "somebody has come who can"


def test_what_can_run_again_loses_its_mark() -> None:
    """And what waits for nothing but a `fleet resume` has none; nothing says that it could run."""
    fleet = Fleet()
    assert marked(fleet) == set()
    fleet.plan(spec("a"))
    assert marked(fleet) == set(), "no host is known: whoever comes may take it"
    fleet.host("pi").joins()
    fleet.asks(m.AskDrain(id="d", host="pi"))
    fleet.plan(spec("a"), spec("b"), spec("c", min_cores=64))
    assert marked(fleet) == {"c"}, "a is with its host, b waits for it"
    why = fleet.why("b")
    assert (why["known"], why["hopeless"], why["waits_for"]["what"]) == (1, False, "resume")
    assert [(one["code"], one["hosts"]) for one in why["remedies"]] == [("resume", ["pi"])]
    assert fleet.status()["runnable"] == 0, "`fleet up --until-idle` ends"
    fleet.asks(m.AskPause(id="p"))
    why = fleet.why("b")
    assert (why["paused"]["code"], why["in_time"]) == ("paused", False)
    fleet.asks(m.AskPause(id="q", off=True))
    fleet.asks(m.AskResume(id="r", host="pi"))
    assert marked(fleet) == {"c"}
    fleet.plan(spec("a"), spec("b"), spec("c", min_cores=2))
    assert marked(fleet) == set()
    fleet.plan(spec("a"), spec("b", min_cores=64))
    assert marked(fleet) == {"b"}
    fleet.plan(spec("a"))
    assert marked(fleet) == set(), "what left the manifest has a mark of its own"
    fleet.asks(m.AskShow(id="s", job="a"))
    assert fleet.took(LookUp)[0].data["unplaceable"] is False


def waiting(fleet: Fleet) -> dict[str, Any]:
    """What jobs wait for that no host can take now, by name; `status` and `why` say the same."""
    found = {row["name"]: row["waits_for"] for row in fleet.listed() if "waits_for" in row}
    said = fleet.status()["waiting"]
    assert {one["name"]: one["waits_for"] for one in said["jobs"]} == found
    assert said["count"] == len(found)
    job_table = [one for one in fleet.core.world.book.all() if one.state == "pending"]
    why = {one.spec.name: prospects.why(fleet.core.world, one, fleet.now) for one in job_table}
    assert {name: one["waits_for"] for name, one in why.items() if "waits_for" in one} == found
    return found


def test_a_job_whose_data_is_away_waits_for_it() -> None:
    """It may come back at any time; what no data helps is for no host all the same."""
    fleet = Fleet()
    fleet.asks(m.AskPause(id="p"))
    pi = fleet.host("pi").joins(data_id=None)
    fleet.host("pc").joins()
    fleet.asks(m.AskDrain(id="d", host="pc"))
    names = ("here", "there", "both", "cuda")
    allowed = {"here": ("pi",), "there": ("pc",)}
    fleet.plan(*(
        replace(spec(name, require_cuda=name == "cuda"), allowed_hosts=allowed.get(name, ()))
        for name in names
    ))  # fmt: skip
    data = {"what": "data", "hosts": ["pi"], "more": False}
    resume = {"what": "resume", "hosts": ["pc"], "more": False}
    assert marked(fleet) == {"cuda"}
    assert waiting(fleet) == {"here": data, "both": data, "there": resume}
    fleet.asks(m.AskPause(id="q", off=True))
    assert fleet.status()["runnable"] == 0, "`fleet up --until-idle` ends"
    said = fleet.why("both")
    assert (said["known"], said["hopeless"], said["waits_for"]) == (2, False, data)
    pi.status("offline", "lost")
    assert (marked(fleet), waiting(fleet)["here"]) == ({"cuda"}, data)
    pi.joins()
    assert waiting(fleet) == {"there": resume}
    assert {fleet.job(name).state for name in ("here", "both")} == {"pending", "claimed"}


def test_of_many_hosts_without_data_the_first_are_named() -> None:
    fleet = Fleet()
    for name in "abcdef":
        schema = {"properties": {"epochs": {"type": "integer", "maximum": 5 if name > "b" else 99}}}
        trainer = m.TrainerInfo(hyper_schema=schema)
        fleet.host(name).joins(data_id=None, trainers={"gbt": trainer})
    long = replace(spec("long"), hyper={"epochs": 9})
    fleet.plan(spec("any"), long, replace(spec("two"), allowed_hosts=("e", "f")))
    found = {name: (one["hosts"], one["more"]) for name, one in waiting(fleet).items()}
    assert found == {
        "any": (["a", "b", "c"], True), "long": (["a", "b"], False), "two": (["e", "f"], False)
    }  # fmt: skip


@pytest.mark.words
def test_what_jobs_wait_for_is_told_by_every_face(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the host's place, and in words, those together that wait for the same."""
    monkeypatch.setenv("COLUMNS", "100")
    fleet = Fleet()
    fleet.host("pi").joins(data_id=None)
    fleet.host("pc").joins()
    fleet.asks(m.AskDrain(id="d", host="pc"))
    only = [replace(spec(name), allowed_hosts=("pc",)) for name in ("x", "y")]
    fleet.plan(spec("a"), *only)
    listed = drawn(lists._draw_jobs(fleet.listed()), 100).splitlines()
    assert listed[2].split()[:4] == ["a", "pending", "awaits", "data"]
    assert listed[3].split()[:4] == ["x", "pending", "awaits", "resume"]
    both = ["a waits for data on pi", "x, y wait for `fleet resume pc`"]
    assert listed[-2:] == both
    data = fleet.status()
    told = drawn(status._draw((data, None)), 100).splitlines()
    assert [one.strip() for one in told if one.strip() in both] == both
    mirror = Mirror()
    mirror.load_jobs([_row("a"), _row("b")])
    a = _row("a")["job_id"]
    waits_for = data["waiting"]["jobs"][0]["waits_for"]
    mirror.load_status({"waiting": {"count": 1, "jobs": [{"job_id": a, "waits_for": waits_for}]}})
    said = m.encode(m.JobRow.model_validate(_row("a", priority=3) | {"unplaceable": False}))
    mirror.apply(Topics().parse(Topics().job(a)), said, AT)
    waits, other = (job_row(one, Going()) for one in mirror.snapshot().jobs.values())
    (column,) = [column for column in job_table.COLUMNS if column.key == "host"]
    assert column.cell(waits, 11)[0] == "awaits data"
    assert job_table.remark(waits) == ("waits for data on pi", PLAIN)
    assert (column.cell(other, 11)[0], job_table.remark(other)) == ("", ("", DIM))
    mirror.load_status({"waiting": {"count": 0, "jobs": []}})
    assert all(one.waits_for is None for one in mirror.snapshot().jobs.values())


def test_a_job_that_only_revoked_hosts_could_run_is_for_none() -> None:
    """`fleet why` says how to let the host in again, and never to resume it."""
    fleet, _ = joined()
    pc = fleet.host("pc").joins(gpus=(m.Gpu(index=0, vram_total_bytes=2**33),))
    fleet.asks(m.AskDrain(id="d", host="pc"))
    fleet.plan(spec("cuda", require_cuda=True))
    assert marked(fleet) == set(), "an operator may resume it"
    fleet.asks(m.AskResume(id="r", host="pc"))
    pc.status("offline", "lost")

    def tell(action: Any, at_s: float) -> None:
        entry = m.AskIdentity(id=f"i-{at_s:.0f}", action=action, name="pc", made_at=at_s)
        assert fleet.asks(entry, "operator:alice/cli").ok

    tell("revoke", fleet.now.wall_s)
    assert marked(fleet) == {"cuda"}
    why = fleet.why("cuda")
    assert why["hopeless"]
    assert {"code": "enroll", "host": "pc", "hosts": ["pc"], "count": 1} in why["remedies"]
    assert "resume" not in str(why)
    (out,) = (one for one in why["clauses"] if one["clause"] == "revoked")
    assert (out["against"], out["hosts"]) == (1, ["pc"])
    tell("enroll", fleet.now.wall_s + 1)
    assert marked(fleet) == set(), "it is one of the fleet again, and away"
    tell("revoke", fleet.now.wall_s + 2)
    fleet.asks(m.AskPause(id="p"))
    fleet.host("pd").joins(gpus=(m.Gpu(index=0, vram_total_bytes=2**33),))
    assert fleet.job("cuda").state == "pending"
    assert marked(fleet) == set(), "one like it is not revoked"


def _row(name: str, **more: Any) -> dict[str, Any]:
    row = told_row(name, **{"attempt": 0} | more).model_dump(mode="json")
    return row | {"unplaceable": more.get("unplaceable", False)}


def _said(count: int, *names: str) -> dict[str, Any]:
    job_table = [{"job_id": _row(name)["job_id"], "name": name} for name in names]
    return {"unplaceable": {"count": count, "jobs": job_table}}


def _marked(mirror: Mirror) -> set[str]:
    return {row.name for row in mirror.snapshot().jobs.values() if row.unplaceable}


def test_a_live_view_learns_of_it_by_the_list_and_by_each_status() -> None:
    """Hosts come and go between two lists; a row that is published in between does not know."""
    mirror, topics = Mirror(), Topics()
    mirror.load_jobs([_row("a", unplaceable=True), _row("b"), _row("c")])
    assert _marked(mirror) == {"a"}

    def hears(row: dict[str, Any]) -> None:
        said = m.encode(m.JobRow.model_validate(row | {"unplaceable": False}))
        mirror.apply(topics.parse(topics.job(row["job_id"])), said, AT)

    hears(_row("a", priority=3))
    assert _marked(mirror) == {"a"}
    mirror.load_status(_said(2, "a", "b"))
    assert _marked(mirror) == {"a", "b"}
    hears(_row("b", state="claimed", host="pi", attempt=1))
    assert _marked(mirror) == {"a"}
    mirror.load_status(_said(2, "a", "b"))
    assert _marked(mirror) == {"a"}, "it is with a host by now"
    mirror.load_status(_said(300, "c"))
    assert _marked(mirror) == {"a", "c"}, "not all of 300 are named"
    mirror.load_status(_said(0))
    assert _marked(mirror) == set()
    mirror.load_status({})  # of an older coordinator
    assert _marked(mirror) == set()


@pytest.mark.words
def test_what_is_left_over_waits_or_is_for_no_host() -> None:
    """`fleet up --until-idle` ends for both, and says which it is; so does `fleet status`."""
    fleet = Fleet(spec("a"), spec("b", min_cores=64))
    fleet.asks(m.AskPause(id="p"))
    fleet.host("pi").joins()
    fleet.asks(m.AskDrain(id="d", host="pi"))
    fleet.asks(m.AskPause(id="q", off=True))

    client = client_of(fleet)
    data = fleet.status()
    stuck = "no known host can run b; `fleet why b` says why"
    assert stuck in drawn(status._draw((data, None)), 200), "the counts alone do not say it"
    del data["unplaceable"]  # an older coordinator
    assert "no known host" not in drawn(status._draw((data, None)), 200)

    def said(*names: str) -> list[str]:
        left = up_live.left_over(client, [row for row in fleet.listed() if row["name"] in names])
        return [*up_live.in_words(client, left, len(left))]

    both = said("a", "b")
    assert both[0] == "Left over (2), since no host here takes them now:"
    assert "  a: after `fleet resume pi`, pi could take it" in both
    assert said("b")[0] == "Left over (1), since no host here can run them:"


@pytest.mark.words
def test_the_list_says_that_a_job_is_kept_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fleet, pi = joined()
    fleet.plan(
        spec("a", prefer_cuda=True), spec("b", prefer_cuda=True, min_cores=64),
        spec("c", require_cuda=True),
    )  # fmt: skip
    found = {row["name"]: row.get("awaits_cuda_s") for row in fleet.listed()}
    grace_s = fleet.core.world.grace_s()
    assert found == {"a": pytest.approx(grace_s, abs=1.0), "b": None, "c": None}
    lines = drawn(lists._draw_jobs(sorted(fleet.listed(), key=by_row)), 80).splitlines()
    assert lines[2].split()[:4] == ["a", "pending", "awaits", "CUDA"]
    span = terminal.span(grace_s)
    assert f"awaits CUDA: a prefers it; in {span} any host may have it" in lines
    left = []
    for _ in range(int(grace_s // 20) + 1):
        fleet.passes(20)
        pi.beats()
        left += [row["awaits_cuda_s"] for row in fleet.listed() if "awaits_cuda_s" in row]
    assert left == pytest.approx([grace_s - 20 * n for n in range(1, len(left) + 1)], abs=1.0)
    assert len(left) >= grace_s // 20 - 1
    assert not any(row.get("awaits_cuda_s") for row in fleet.listed())
    (a,) = (row for row in fleet.listed() if row["name"] == "a")
    assert (a["state"], a["host"]) == ("claimed", "pi")
