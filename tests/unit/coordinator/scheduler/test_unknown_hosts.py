"""Names of hosts that nobody knows are told wherever hosts are known."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from broker.protocol import messages as m
from coordinator.client.predictions import look
from coordinator.core.commands.host_list import PAGE_BYTES
from coordinator.core.effects import ManifestRead, Warn
from coordinator.jobs.causes import in_words
from coordinator.jobs.plan_entries import HostPolicy, Plan
from coordinator.scheduler import unknown_hosts
from tests.harness.coordinator import Fleet, spec
from tests.harness.inclient import client_of

TYPO = replace(spec(), allowed_hosts=("dekstop",))
PLAN = Plan((TYPO,), {"dekstop": HostPolicy("dekstop"), "pi": HostPolicy("pi")})


def _fleet(*hosts: str) -> Fleet:
    fleet = Fleet(trainers={"gbt": m.TrainerInfo(hyper_schema={"type": "object"})})
    for name in hosts:
        fleet.host(name).joins()
    return fleet


def test_a_reload_answers_with_what_is_doubtful() -> None:
    """Each name once, with every place and what may be meant; it is a warning, and logged."""
    fleet = _fleet("desktop", "pi")
    fleet.handle(ManifestRead(PLAN, "operator:op/cli", "r1"))
    (answer,) = (said for _, said in fleet.sent if isinstance(said, m.OperatorResponse))
    data: Any = answer.data
    about = {"name": "dekstop", "meant": "desktop", "declared": True, "jobs": ["job"], "more": 0}
    why = {"code": "unknown_name", **about}
    assert (answer.ok, data["changes"]["added"], data["warnings"]) == (True, 1, [why])
    assert Warn(f"the manifest: {in_words(why)}") in fleet.effects


def test_nobody_can_tell_while_no_host_is_known() -> None:
    """And a host that is like no other may well be yet to come."""
    assert unknown_hosts.of_plan(PLAN, ()) == []
    (why,) = unknown_hosts.of_plan(PLAN, {"pi", "gaming"})
    assert "meant" not in why
    many = Plan((), {f"new-{n}": HostPolicy(f"new-{n}") for n in range(50)})
    told = unknown_hosts.of_plan(many, {"pi"})
    assert len(told) == unknown_hosts.MOST + 1
    everywhere = Plan(tuple(replace(TYPO, name=f"job-{n}", seed=n) for n in range(5)))
    (why,) = unknown_hosts.of_plan(everywhere, {"pi"})
    assert (why["jobs"], why["more"]) == (["job-0", "job-1", "job-2"], 2)
    assert told[-1] == {"code": "more_unknown", "count": 42}
    assert unknown_hosts.closest("laptop", {"laptop", "pi"}) is None, "one that was forgotten"
    assert unknown_hosts.closest("laptp", {"laptop", "pi"}) == "laptop"


def test_why_names_the_host_that_may_be_meant() -> None:
    """Before what else would help; and nobody is named twice in a sentence."""
    fleet = _fleet("desktop", "pi")
    fleet.plan(TYPO)
    found = fleet.asks(m.AskWhy(id="w", job="job")).data["remedies"]
    assert found[0] == {"code": "misnamed", "name": "dekstop", "meant": "desktop"}
    assert (found[1]["code"], found[1]["key"]) == ("hosts", "allowed_hosts")
    assert found[1]["hosts"] == ["desktop", "pi"]


def test_a_job_beside_the_manifest_is_not_left_to_wait_for_a_host_that_nobody_knows() -> None:
    """It would wait for ever; one that the manifest declares is yet to come."""
    fleet = _fleet("laptop")
    job = {"model": "gbt", "mode": "oracle", "allowed_hosts": ["laptp"]}
    answer: Any = fleet.asks(m.AskRun(id="1", job=job))
    (error,) = answer.data["errors"]
    assert (answer.ok, error["key"]) == (False, "allowed_hosts")
    assert error["why"] == {"code": "unknown_host", "name": "laptp", "meant": "laptop"}
    fleet.handle(ManifestRead(Plan((), {"laptp": HostPolicy("laptp")})))
    assert fleet.asks(m.AskRun(id="2", job=job)).ok
    assert _fleet().asks(m.AskRun(id="3", job=job)).ok


def test_a_plan_warns_of_the_names_that_a_reload_warns_of() -> None:
    """Of no host that only the ledger knows, after a restart of coordinator and broker."""
    fleet = _fleet("desktop")
    fleet.plan(spec("other"))
    fleet.start()
    fleet.host("pi").joins()
    plan = Plan((), {name: HostPolicy(name) for name in ("desktop", "attic")})

    seen = look(client_of(fleet), ())
    announced = unknown_hosts.of_plan(plan, seen.known)
    assert [(why["code"], why["name"]) for why in announced] == [("unknown_name", "attic")]
    fleet.sent.clear()
    fleet.handle(ManifestRead(plan, "operator:op/cli", "r2"))
    (answer,) = (said for _, said in fleet.sent if isinstance(said, m.OperatorResponse))
    data: Any = answer.data
    assert data["warnings"] == announced
    assert look(client_of(fleet), ()).known == {"desktop", "pi"}


def test_who_asks_for_hosts_is_told_of_those_that_are_not_there_only_if_they_say_so() -> None:
    fleet = _fleet("pi")
    fleet.handle(ManifestRead(Plan((), {"attic": HostPolicy("attic", slots=2)})))
    plain: Any = fleet.asks(m.AskWorkers(id="1")).data
    assert ([row["host"] for row in plain["workers"]], "others" in plain) == (["pi"], False)
    first: Any = fleet.asks(m.AskWorkers(id="2", absent=True, limit=1)).data
    (attic,) = first["others"]
    assert (attic["host"], attic["known"], attic["policy"]["slots"]) == ("attic", False, 2)
    assert (first["workers"], first["next"], first["total"]) == ([], 1, 2)
    rest: Any = fleet.asks(m.AskWorkers(id="3", absent=True, limit=1, offset=1)).data
    assert ([row["host"] for row in rest["workers"]], rest["next"]) == (["pi"], None)


def test_hosts_that_are_not_there_come_in_pages_that_an_answer_bears() -> None:
    """However much the plan says of each, and of each once."""
    fleet = _fleet("pi")
    jobs = tuple(f"{letter * 100}*" for letter in "abcdefgh")
    named = [f"attic-{number:03}" for number in range(400)]
    fleet.handle(ManifestRead(Plan((), {one: HostPolicy(one, allow_jobs=jobs) for one in named})))
    told: list[str] = []
    offset: int | None = 0
    pages = 0
    while offset is not None:
        page: Any = fleet.asks(m.AskWorkers(id=f"{offset}", absent=True, limit=500, offset=offset))
        assert len(page.model_dump_json().encode()) < 1.2 * PAGE_BYTES
        told += [row["host"] for row in page.data["others"]]
        offset, pages = page.data["next"], pages + 1
    assert (told, pages > 2) == (named, True)


def test_many_hosts_that_are_yet_to_come_hold_nobody_up() -> None:
    """A coordinator that looked for what each of them may mean was deaf for as long."""
    known = [f"node{number}" for number in range(1000)]
    names = [f"node{number}" for number in range(1000, 1300)]
    plan = Plan((replace(spec(), allowed_hosts=tuple(names)),))
    begun_s = time.process_time()
    assert unknown_hosts.of_plan(plan, known)[-1]["count"] == 292
    fleet = _fleet(*known[:300])
    fleet.handle(ManifestRead(plan))
    assert len(fleet.asks(m.AskWhy(id="w", job="job")).data["remedies"]) >= unknown_hosts.MOST
    job = {"model": "gbt", "mode": "oracle", "allowed_hosts": names}
    assert not fleet.asks(m.AskRun(id="r", job=job)).ok
    assert time.process_time() - begun_s < 5
