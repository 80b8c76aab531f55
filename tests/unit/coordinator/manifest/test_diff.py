"""What a reload would do, before it does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.messages import Needs
from coordinator.cli import reload as reload_lines
from coordinator.core.plan_changes import told
from coordinator.jobs.causes import plan_words
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, Plan
from coordinator.manifest.diff import Known, change, difference, spec_changes
from tests.harness.coordinator import spec, with_id
from tests.harness.drawn import drawn


def known(one: JobSpec, state: str = "pending", *, in_plan: bool = True) -> Known:
    return Known(one, state, in_plan, "pi")


def retrained(one: JobSpec, **hyper: Any) -> JobSpec:
    """The same entry with other hyperparameters: another job."""
    return replace(with_id(one, **hyper), hyper=hyper)


def test_what_is_added_changed_left_and_kept() -> None:
    same, dear, gone, back = spec("same"), spec("dear"), spec("gone"), spec("back")
    found = difference(
        [known(same), known(dear), known(gone, "running"), known(back, in_plan=False)],
        Plan((same, replace(dear, priority=5, needs=Needs(min_cores=2)), back, spec("new"))),
        {},
    )
    steps = {step.spec.name: step for step in found.steps}
    assert {name: step.action for name, step in steps.items()} == {
        "same": "unchanged", "dear": "changed", "back": "adopted", "new": "added",
        "gone": "orphaned",
    }  # fmt: skip
    assert steps["dear"].changes == (change("priority", 0, 5), change("min_cores", None, 2))
    assert not found.is_empty()
    assert found.counts()["orphaned"] == 1


@pytest.mark.parametrize("name", [name for name in JobSpec.__slots__ if name != "job_id"])
def test_whatever_of_a_job_is_another_is_told(name: str) -> None:
    """Else a reload would take the job for unchanged, and keep the old value."""
    others: dict[str, Any] = {"needs": Needs(min_cores=2), "hyper": {"lr": 0.1}}
    assert spec_changes(spec(), replace(spec(), **{name: others.get(name, "another")}))
    assert spec_changes(spec(), spec()) == ()


def test_an_entry_that_is_another_job_now_is_replaced() -> None:
    old = retrained(spec(), lr=0.1)
    found = difference([known(old, "completed")], Plan((retrained(old, lr=0.2),)), {})
    (step,) = found.steps
    assert (step.action, step.changes) == ("replaced", (change("hyper.lr", 0.1, 0.2),))
    assert step.known is not None
    assert step.known.spec == old


@pytest.mark.words
def test_the_same_plan_is_no_change() -> None:
    """Nor is an orphan that stays one, nor a job that somebody has submitted by hand."""
    one, gone = spec("one"), spec("gone")
    found = difference([known(one), known(gone, in_plan=False)], Plan((one,)), {})
    assert found.is_empty()
    assert {what: count for what, count in found.counts().items() if count} == {"unchanged": 1}
    assert plan_words(found.counts()) == "no changes, 1 unchanged"
    assert difference([Known(one, "pending", True, submitted=True)], Plan(()), {}).is_empty()


@pytest.mark.words
def test_what_changes_for_a_host_is_told() -> None:
    before = {"pi": HostPolicy("pi", max_ram_gib=3.0, allow_jobs=("gbt*",)), "pc": HostPolicy("pc")}
    found = difference([], Plan((), {"pc": HostPolicy("pc", slots=2)}, 60.0), before, 300.0)
    assert found.hosts == {
        "pc": (change("slots", None, 2),),
        "pi": (change("allow_jobs", ["gbt*"], []), change("max_ram_gib", 3.0, None)),
    }
    assert found.settings == (change("prefer_cuda_grace_s", 300.0, 60.0),)
    assert plan_words(found.counts()) == "2 hosts changed, 1 setting changed"
    assert not difference([], Plan((), before), before).hosts


def test_the_answer_to_a_reload_of_any_size_is_small_and_counts_all() -> None:
    new = tuple(spec(f"new-{number}") for number in range(5000))
    gone = spec("gone")
    hosts = {name: HostPolicy(name, slots=2) for name in (f"h{number}" for number in range(900))}
    data: Any = told(difference([known(gone)], Plan(new, hosts), {}))
    answer = m.OperatorResponse(id="r", ok=True, data=data)
    assert len(m.encode(answer)) < m.MAX_PAYLOAD_BYTES / 10
    assert (data["changes"]["added"], data["changes"]["hosts"]) == (5000, 900)
    assert (len(data["steps"]), len(data["hosts"])) == (100, 100)
    assert (data["steps"][0]["action"], data["steps"][0]["name"]) == ("orphaned", "gone")
    said = drawn(reload_lines.told(data, 3), 120)
    assert "  - gone  no longer in the manifest; pending, and never given to a host" in said
    assert "    and 4998 more (--all shows more of them)\n" in said
    assert "    and 897 more hosts (--all shows more of them)\n" in said
    said = drawn(reload_lines.told(data, reload_lines.ALL), 120)
    assert "    and 4901 more (`fleet events --json` has the jobs)\n" in said


def test_a_change_that_is_too_long_to_be_named_is_counted() -> None:
    long, short = spec("long"), spec("short")
    wanted = Plan((replace(long, allowed_hosts=("x" * 50_000,)), replace(short, priority=1)))
    data: Any = told(difference([known(long), known(short)], wanted, {}))
    assert data["changes"]["changed"] == 2
    assert [step["name"] for step in data["steps"]] == ["short"]
