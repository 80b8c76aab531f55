"""What a reload would do, before it does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from broker.clock import Now
from broker.messages import Needs
from coordinator.diff import Known, difference, policy_changes, spec_changes
from coordinator.plan import HostPolicy, JobSpec, Plan, job_id
from coordinator.planning import take_plan
from tests.harness.coordinator import Fleet, spec


def known(one: JobSpec, state: str = "pending", *, in_plan: bool = True) -> Known:
    """A job that the coordinator has."""
    return Known(one, state, in_plan, "pi")


def retrained(one: JobSpec, **hyper: Any) -> JobSpec:
    """The same entry with other hyperparameters: another job."""
    identity = job_id(one.model, one.mode, hyper, "host", (), one.seed)
    return replace(one, hyper=hyper, job_id=identity)


def test_what_is_added_changed_left_and_kept() -> None:
    """Each job once, with what is different."""
    same, dear, gone, back = spec("same"), spec("dear"), spec("gone"), spec("back")
    found = difference(
        [known(same), known(dear), known(gone, "running"), known(back, in_plan=False)],
        [same, replace(dear, priority=5, needs=Needs(min_cores=2)), back, spec("new")],
        {}, {},
    )  # fmt: skip
    steps = {step.spec.name: step for step in found.steps}
    assert {name: step.action for name, step in steps.items()} == {
        "same": "keep", "dear": "change", "back": "adopt", "new": "add", "gone": "orphan"
    }  # fmt: skip
    assert steps["dear"].changes == (("priority", 0, 5), ("min_cores", None, 2))
    assert not found.is_empty()
    assert found.counts()["orphan"] == 1


def test_an_entry_that_is_another_job_now_is_replaced() -> None:
    """The same name with other hyperparameters: trained anew, and the old one stays behind."""
    old = retrained(spec(), lr=0.1)
    found = difference([known(old, "completed")], [retrained(old, lr=0.2)], {}, {})
    (step,) = found.steps
    assert (step.action, step.changes) == ("replace", (("hyper.lr", 0.1, 0.2),))
    assert step.known is not None
    assert step.known.spec == old


def test_the_same_plan_is_no_change() -> None:
    """Nor is an orphan that stays one."""
    one, gone = spec("one"), spec("gone")
    found = difference([known(one), known(gone, in_plan=False)], [one], {}, {})
    assert found.is_empty()
    assert found.counts() == {
        "add": 0, "change": 0, "adopt": 0, "replace": 0, "orphan": 0, "keep": 1
    }  # fmt: skip


def test_a_job_beside_the_manifest_is_left_alone() -> None:
    """A reload does not orphan what somebody has submitted by hand."""
    found = difference([Known(spec(), "pending", True, submitted=True)], [], {}, {})
    assert found.is_empty()


def test_what_changes_for_a_host_is_told() -> None:
    """A host that is no longer named gets the defaults again."""
    before = {"pi": HostPolicy("pi", max_ram_gib=3.0, allow_jobs=("gbt*",)), "pc": HostPolicy("pc")}
    found = difference([], [], before, {"pc": HostPolicy("pc", slots=2)})
    assert found.hosts == {
        "pc": (("slots", None, 2),),
        "pi": (("allow_jobs", ["gbt*"], []), ("max_ram_gib", 3.0, None)),
    }
    assert policy_changes(before["pi"], before["pi"]) == ()


def test_a_number_that_is_written_otherwise_is_told_as_such() -> None:
    """1 and 1.0 make the same job; the row is brought up to date all the same."""
    one = spec()
    assert spec_changes(replace(one, hyper={"a": 1}), replace(one, hyper={"a": 2})) == (
        ("hyper", {"a": 1}, {"a": 2}),
    )
    assert spec_changes(one, one) == ()


def test_it_is_what_the_coordinator_then_does() -> None:
    """The counts of a reload are those that were announced."""
    fleet = Fleet(spec("same"), spec("dear"), spec("gone"))
    before = [Known(job.spec, job.state.value, job.in_plan) for job in fleet.ledger.values()]
    wanted = (spec("same"), replace(spec("dear"), priority=3), spec("new"))
    said = difference(before, wanted, {}, {}).counts()
    did = take_plan(fleet.core.world, Plan(wanted), Now(2000.0, 1.8e9), "test")
    assert did == {
        "added": said["add"], "changed": said["change"], "removed": said["orphan"],
        "unchanged": said["keep"],
    }  # fmt: skip
