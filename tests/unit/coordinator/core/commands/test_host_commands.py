"""What operators decide about hosts and the fleet: drained at once, snoozed, paused, resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.clock import rfc3339
from broker.protocol import messages as m
from coordinator.core.effects import ManifestRead
from coordinator.jobs.causes import cause
from coordinator.jobs.plan_entries import HostPolicy, Plan
from coordinator.jobs.reason_words import words
from tests.harness.coordinator import Fleet, joined, running, spec


def _codes(reasons: Any) -> list[str]:
    return [reason["code"] for reason in reasons]


def test_a_drain_at_once_has_the_host_give_back_what_it_holds() -> None:
    """At no cost to the job; it goes on elsewhere, and the answer says what is given back."""
    fleet, pi, _ = running()
    answer = fleet.ask(m.AskDrain, host="pi", now=True)
    assert answer.data == {"host": "pi", "drained": True, "jobs": ["job"], "gives_back": True}
    (release,) = pi.heard(m.Release)
    assert (release.attempt, release.why) == (1, m.Why(code="drained", by="operator:op"))
    pi.reports(m.Released, fleet.job(), why=release.why)
    job = fleet.job()
    assert (job.state, job.losses, job.failures) == ("pending", 0, 0)
    other = fleet.host("other").joins()
    assert other.heard(m.Assign)[0].attempt == 2
    assert not pi.heard(m.Assign)
    assert not fleet.ask(m.AskDrain, host="pi", now=True).ok, "it is drained already"


def test_a_release_is_asked_for_until_the_host_is_at_it() -> None:
    """Soon again, then at each heartbeat that lists the job; not when it is ending there."""
    fleet, pi, _ = running()
    job = fleet.job()
    fleet.ask(m.AskDrain, host="pi", now=True)
    pi.heard(m.Release)
    fleet.passes(30)
    assert len(pi.heard(m.Release)) >= 2
    for _ in range(30):
        fleet.passes(5)
        pi.beats((job.job_id, 1, "fetching"))
    pi.heard(m.Release)
    fleet.passes(5)
    pi.beats((job.job_id, 1, "running"))
    fleet.passes(20)
    assert pi.heard(m.Release), "still asked for after many a try"
    pi.beats((job.job_id, 1, "stopping"))
    fleet.passes(60)
    assert not pi.heard(m.Release)
    assert not fleet.core.world.releases


def test_after_a_restart_of_the_coordinator_it_is_asked_for_again() -> None:
    """What a host may not hold stands in the ledger."""
    fleet, pi, _ = running()
    fleet.ask(m.AskDrain, host="pi", now=True)
    fleet.start()
    fleet.plan(spec())
    pi.joins()
    assert pi.heard(m.Release), "sent before the restart"
    pi.beats((fleet.job().job_id, 1, "running"))
    assert pi.heard(m.Release)


def test_a_result_that_is_on_its_way_is_not_given_back() -> None:
    fleet, pi, _ = running()
    pi.finishes(fleet.job())
    fleet.ask(m.AskDrain, host="pi", now=True)
    assert not pi.heard(m.Release)
    pi.uploads()


def test_a_snooze_ends_by_itself_and_is_in_the_story() -> None:
    """No jobs until then; with `now` what runs is given back."""
    fleet, pi, _ = running()
    answer = fleet.ask(m.AskSnooze, host="pi", for_s=3600.0, now=True)
    assert pi.heard(m.Release)
    pi.reports(m.Released, fleet.job(), why=m.Why(code="leaving"))
    (row,) = fleet.why()["hosts"]
    until = rfc3339(fleet.now.wall_s + 3600)
    snoozed = {"code": "snoozed", "host": "pi", "who": "operator:op", "until": until}
    assert row["reasons"] == [snoozed]
    fleet.passes(3590)
    pi.beats()
    assert not pi.heard(m.Assign)
    fleet.passes(20)
    pi.beats()
    assert pi.heard(m.Assign)
    over = fleet.actions[-1]
    assert (over.who, over.action, over.host) == ("coordinator", "resume", "pi")
    assert over.what == cause("snooze_over", by="operator:op")
    assert answer.data["until"]


@pytest.mark.parametrize(("kind", "more"), [(m.AskDrain, {}), (m.AskSnooze, {"for_s": 3600.0})])
def test_what_runs_is_finished_unless_it_is_to_be_given_back_now(
    kind: Any, more: dict[str, float]
) -> None:
    """One rule for both verbs; what was not asked for at first may be asked for later."""
    fleet, pi, _ = running()
    said = fleet.ask(kind, host="pi", **more).data
    assert (said["jobs"], said["gives_back"]) == (["job"], False)
    pi.beats((fleet.job().job_id, 1, "running"))
    assert not pi.heard(m.Release)
    said = fleet.ask(kind, host="pi", now=True, **more).data
    assert (said["jobs"], said["gives_back"]) == (["job"], True)
    assert pi.heard(m.Release)


@pytest.mark.parametrize(("jump_s", "left_s"), [(0.0, 1800.0), (-86_400.0, 3600.0), (1e6, 0.0)])
def test_a_snooze_goes_on_after_a_restart(
    monkeypatch: pytest.MonkeyPatch, jump_s: float, left_s: float
) -> None:
    """By the wall clock; one that was set back does not lengthen it beyond what it was."""
    fleet, _ = joined(spec())
    fleet.ask(m.AskCancel, job="job")
    fleet.ask(m.AskSnooze, host="pi", for_s=3600.0)
    fleet.passes(1800)
    now = fleet.now
    shifted = property(
        lambda self: replace(now, mono_s=self.mono_s, wall_s=1.8e9 + self.mono_s + jump_s)
    )
    monkeypatch.setattr(Fleet, "now", shifted)
    fleet.start()
    fleet.passes(max(0.0, left_s - 10))
    assert bool(fleet.records["pi"].snoozed_until) == (left_s > 0)
    fleet.passes(11)
    assert not fleet.records["pi"].snoozed_until


def test_the_end_of_a_snooze_ends_nothing_else() -> None:
    """What else keeps jobs from the host is told; that there is no snooze is no error."""
    fleet, _, _ = running()
    fleet.ask(m.AskSnooze, host="pi", for_s=600.0, finish=True)
    fleet.ask(m.AskDrain, host="pi")
    ended = fleet.ask(m.AskSnooze, host="pi", for_s=0.0).data
    assert (ended["host"], ended["until"]) == ("pi", None)
    assert (_codes(ended["was"]), _codes(ended["refuses"])) == (["snoozed"], ["drained"])
    record = fleet.records["pi"]
    assert (record.drained, record.snoozed_until) == (True, "")
    again = fleet.ask(m.AskSnooze, host="pi", for_s=0.0).data
    assert (again["was"], len(again["refuses"])) == ([], 1)
    assert fleet.actions[-1].action == "snooze off"
    assert fleet.ask(m.AskSnooze, host="nobody", for_s=0.0).code == "not_found"


def test_resume_lifts_a_snooze_and_a_drain_and_says_what_else_holds() -> None:
    """What the owner has said is not the operator's to lift."""
    fleet, pi = joined()
    fleet.ask(m.AskSnooze, host="pi", for_s=60.0)
    fleet.ask(m.AskDrain, host="pi")
    quiet = m.Why(code="quiet", by="owner", until="2026-05-28T18:00")
    pi.beats(refuses=(quiet,))
    data: Any = fleet.ask(m.AskResume, host="pi").data
    assert _codes(data["was"]) == ["drained", "snoozed"]
    assert not any("`" in words(one, remedy=False) for one in data["was"]), "the remedy was this"
    assert data["refuses"] == [{"code": "refuses", "holds": [quiet.told()]}]
    again = fleet.ask(m.AskResume, host="pi")
    assert (again.ok, again.why["code"]) == (False, "not_restrained")
    assert again.why["refuses"] == data["refuses"]
    status = fleet.status()
    assert status["restrained"] == [
        {"host": "pi", "reasons": [{"code": "refuses", "holds": [quiet.told()]}]}
    ]


def test_a_paused_fleet_gives_nothing_out_and_says_so() -> None:
    fleet = Fleet(spec("one", 9), spec("two"))
    assert fleet.ask(m.AskPause).ok
    pi = fleet.host().joins()
    fleet.passes(60)
    assert not pi.heard(m.Assign)
    status = fleet.status()
    assert (status["paused"]["code"], status["paused"]["who"]) == ("paused", "operator:op")
    assert status["runnable"] == 0
    why = fleet.why("one")
    assert (why["paused"], why["in_time"]) == (status["paused"], True)
    fleet.start()
    pi.joins()
    assert not pi.heard(m.Assign)
    assert fleet.ask(m.AskPause, off=True).ok
    pi.beats()
    assert [assign.name for assign in pi.heard(m.Assign)] == ["one"]


def test_the_end_of_a_pause_gives_jobs_out_at_once() -> None:
    """To every host that is open, also to one that somebody has looked at during the pause."""
    fleet = Fleet()
    pi, pc = fleet.host("pi").joins(), fleet.host("pc").joins()
    assert fleet.ask(m.AskDrain, host="pc").ok
    assert fleet.ask(m.AskPause).ok
    fleet.plan(spec("one", 9), spec("two"))
    pi.beats()
    assert fleet.ask(m.AskResume, host="pc").ok
    assert fleet.status()["runnable"] == 0
    assert fleet.ask(m.AskPause, off=True).ok
    given = [assign for host in (pi, pc) for assign in host.heard(m.Assign)]
    assert {assign.name for assign in given} == {"one", "two"}, "without waiting for a heartbeat"


# the manifest's rules


def test_a_host_with_quiet_hours_is_given_nothing_before_it_knows_them() -> None:
    """It is told until a heartbeat confirms them; `why` says what is awaited.

    Rules that the manifest gives up are taken back.
    """
    fleet = Fleet()
    policy = HostPolicy("pi", quiet_hours=("22:00-07:00",), idle_only=True)
    fleet.handle(ManifestRead(Plan((spec(),), {"pi": policy})))
    pi = fleet.host().joins()
    (rules,) = pi.heard(m.Rules)
    assert rules.rules == m.HostRules(quiet_hours=("22:00-07:00",), idle_only=True)
    assert not pi.heard(m.Assign)
    (row,) = fleet.why()["hosts"]
    assert _codes(row["reasons"]) == ["rules"]
    pi.beats()
    assert not pi.heard(m.Rules), "not with every heartbeat"
    fleet.passes(6)
    pi.beats()
    assert pi.heard(m.Rules)
    pi.beats(rules=rules.digest)
    assert pi.heard(m.Assign)
    fleet.passes(6)
    pi.beats(rules=rules.digest)
    assert not pi.heard(m.Rules)
    fleet.plan(spec())
    (none,) = pi.heard(m.Rules)
    assert (none.digest, none.rules) == ("", m.HostRules())
    fleet.passes(6)
    pi.beats()
    assert not pi.heard(m.Rules)


def test_while_a_host_is_starting_nobody_is_told_that_nothing_can_start() -> None:
    """It has yet to say what it is; once it has, there is nothing left to wait for."""
    fleet = Fleet(spec("one", require_cuda=True))
    fleet.host().status("online", "birth")
    assert fleet.status()["starting"] == 1
    fleet.host().joins()
    assert fleet.status()["starting"] == 0


def test_a_host_that_was_mistyped_is_guessed() -> None:
    fleet = Fleet()
    fleet.host("laptop").joins()
    said = [fleet.ask(ask, host="laptp", **more).why for ask, more in (
        (m.AskDrain, {}), (m.AskSnooze, {"for_s": 60.0}), (m.AskResume, {})
    )]  # fmt: skip
    assert said == [{"code": "no_host", "name": "laptp", "meant": "laptop"}] * 3
    assert fleet.ask(m.AskDrain, host="x").why == {"code": "no_host", "name": "x"}


def test_a_host_whose_data_has_gone_says_why_it_is_given_no_jobs() -> None:
    """Once more when it is back, it is given some; of a host that is away nothing old is said."""
    fleet = Fleet(spec())
    pi = fleet.host().joins(data_id=None)

    def told() -> tuple[Any, Any]:
        row = fleet.worker()
        assert row["condition"] == ("no data" if row["barred"] else row["presence"])
        return row["barred"], fleet.status()["restrained"]

    (why,), restrained = told()
    assert why == {"code": "no-data"}
    assert restrained == [{"host": "pi", "reasons": [why]}]
    assert why in fleet.why()["hosts"][0]["reasons"]
    for other in ({"programs": m.ProgramsAllowed(unsigned=True)}, {"trainers": {}}):
        pi.joins(data_id=None, **other)
        assert told() == ([], []), "it is no fault of a host that was not meant to have any"
    pi.joins()
    assert told() == ([], [])
    pi.joins(data_id=None)
    pi.status("offline", "lost")
    assert told() == ([], [])
