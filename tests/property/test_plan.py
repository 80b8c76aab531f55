"""What `fleet plan` announces is what `fleet reload` does, and tells by the same words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol.messages import AskCancel, AskPlan, AskWorkers, OperatorResponse
from coordinator.cli import reload as reload_lines
from coordinator.cli.plan import after_reload
from coordinator.client.predictions import Picture, Planned
from coordinator.core.effects import ManifestRead
from coordinator.jobs import host_paging
from coordinator.jobs.causes import cause
from coordinator.jobs.plan_entries import (
    HostPolicy,
    JobSpec,
    Plan,
    policy_from_dict,
    spec_from_dict,
)
from coordinator.scheduler import unknown_hosts
from coordinator.scheduler.durations import History
from tests.harness.coordinator import OPERATOR, Fleet, spec, with_id
from tests.harness.drawn import drawn

HOSTS = ("pi", "pc", "yet-to-come")


def entry(name: str, lr: float, priority: int) -> JobSpec:
    """A job; with another `lr` it is another job of the same name."""
    one = spec(name, priority)
    return replace(with_id(one, of=name, lr=lr), hyper={"lr": lr})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to four entries, some after others, rules for hosts, a grace, perhaps a name."""
    names = draw(st.lists(st.sampled_from("abcd"), unique=True))
    jobs = [entry(name, draw(st.sampled_from((0.1, 0.2))), draw(st.integers(0, 1)))
            for name in names]  # fmt: skip
    if draw(st.booleans()):
        jobs = [replace(one, after=(jobs[number - 1].job_id,) if number else ())
                for number, one in enumerate(jobs)]  # fmt: skip
    slots = {name: draw(st.sampled_from((None, 1, 2))) for name in HOSTS}
    hosts = {name: HostPolicy(name, slots=count) for name, count in slots.items() if count}
    grace_s, name = draw(st.sampled_from((300.0, 60.0))), draw(st.sampled_from(("", "x", "y")))
    return Plan(tuple(jobs), hosts, grace_s, name)


def picture(fleet: Fleet) -> Picture:
    """What the command line is told of the plan that runs."""
    said = fleet.asks(AskPlan(id="p")).data
    page = fleet.asks(AskWorkers(id="w", absent=True)).data
    rows = [*host_paging.whole(page), *page["others"]]
    jobs = [Planned(spec_from_dict(row["spec"]), row) for row in said["jobs"]]
    policies = {row["host"]: policy_from_dict(row["policy"]) for row in rows}
    known = frozenset(row["host"] for row in rows if row.get("known", True))
    return Picture(
        jobs, [], History(), said["grace_s"], said["plans_grace_s"], said["name"], policies, known
    )


def reloads(fleet: Fleet, plan: Plan) -> dict[str, Any]:
    """Have a coordinator take a plan; return what it answers whoever asked for that."""
    fleet.sent.clear()
    fleet.handle(ManifestRead(plan, OPERATOR, fleet.new_id()))
    (answer,) = (said for _, said in fleet.sent if isinstance(said, OperatorResponse))
    assert isinstance(answer.data, dict)
    return answer.data


def printed(data: dict[str, Any]) -> str:
    return drawn(reload_lines.told(data, reload_lines.ALL), 120)


@settings(max_examples=60)
@given(st.lists(plans(), min_size=2, max_size=4), st.sampled_from((None, 5.0)))
def test_a_plan_announces_what_a_reload_does(
    wanted: list[Plan], grace_s: float | None
) -> None:  # fmt: skip
    fleet = Fleet(prefer_cuda_grace_s=grace_s)
    for name in HOSTS[:2]:
        fleet.host(name).joins()
    for plan in wanted:
        before = picture(fleet)
        announced = after_reload(before, plan)
        counts, told = announced.counts(), reload_lines.announced(announced)
        did = reloads(fleet, plan)
        assert {key: did[key] for key in told} == told
        assert printed(did) == printed(told)
        assert did.get("warnings", []) == unknown_hosts.of_plan(plan, before.known)
        assert fleet.actions[-1].what == cause("plan", **counts), "what `fleet events` tells"
        _is_so(before, picture(fleet), counts)
        assert after_reload(picture(fleet), plan).is_empty()
        if plan.jobs:
            fleet.asks(AskCancel(id=fleet.new_id(), job=plan.jobs[0].job_id))


def _is_so(before: Picture, after: Picture, counts: dict[str, int]) -> None:
    """Count again what has changed, by what the coordinator had and what it has."""
    was = {job.spec.job_id: job for job in before.jobs}
    now = {job.spec.job_id: job for job in after.jobs}
    left = [key for key, job in was.items() if job.row["in_plan"] > now[key].row["in_plan"]]
    back = [key for key, job in was.items() if job.row["in_plan"] < now[key].row["in_plan"]]
    kept = [key for key, job in was.items() if job.row["in_plan"] and now[key].row["in_plan"]]
    changed = [key for key in kept if was[key].spec != now[key].spec]
    assert counts["added"] + counts["replaced"] == len(now) - len(was)
    assert counts["orphaned"] + counts["replaced"] == len(left)
    assert (counts["adopted"], counts["changed"]) == (len(back), len(changed))
    assert counts["unchanged"] == len(kept) - len(changed)
    assert counts["hosts"] == sum(_policy(before, one) != _policy(after, one) for one in HOSTS)
    settings = (before.grace_s != after.grace_s) + (before.name != after.name)
    assert counts["settings"] == settings


def _policy(picture: Picture, host: str) -> HostPolicy:
    return picture.policies.get(host) or HostPolicy(host)
