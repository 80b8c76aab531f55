"""What operators decide about hosts and the fleet: drained at once, snoozed, paused, resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.clock import rfc3339
from broker.protocol import messages as m
from coordinator.cli.status import _draw
from coordinator.core.effects import ManifestRead
from coordinator.jobs.causes import cause
from coordinator.jobs.in_words import summary, words
from coordinator.jobs.plan_entries import HostPolicy, Plan
from coordinator.jobs.records import FleetRecord, HostRecord
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import Fleet, joined, running, spec


def _codes(reasons: Any) -> list[str]:
    return [reason["code"] for reason in reasons]


def test_a_drain_at_once_has_the_host_give_back_what_it_holds() -> None:
    """At no cost to the job; it goes on elsewhere, and the answer says what is given back."""
    fleet, pi, _ = running()
    answer = fleet.ask(m.AskDrain, host="pi", now=True)
    assert answer.data == {"host": "pi", "drained": True, "jobs": ["job"], "gives_back": True}
    (release,) = pi.heard(m.Release)
    assert (release.attempt, release.why) == (1, "drained by operator:op")
    pi.reports(m.Released, fleet.job(), reason=release.why)
    job = fleet.job()
    assert (job.state, job.losses, job.failures) == ("pending", 0, 0)
    other = fleet.host("other").joins()
    assert other.heard(m.Assign)[0].attempt == 2
    assert not pi.heard(m.Assign)


def test_without_now_what_runs_goes_on_and_can_be_ended_later() -> None:
    """`drain`, then `drain --now`; a third time there is nothing to do."""
    fleet, pi, _ = running()
    assert fleet.ask(m.AskDrain, host="pi").data["gives_back"] is False
    pi.beats((fleet.job().job_id, 1, "running"))
    assert not pi.heard(m.Release)
    assert not fleet.ask(m.AskDrain, host="pi").ok
    assert fleet.ask(m.AskDrain, host="pi", now=True).ok
    assert pi.heard(m.Release)
    assert not fleet.ask(m.AskDrain, host="pi", now=True).ok


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
    pi.reports(m.Released, fleet.job(), reason="r")
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
    fleet = Fleet(spec())
    fleet.host().joins()
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
    pi.beats(refuses="quiet until 18:00 by its owner")
    data: Any = fleet.ask(m.AskResume, host="pi").data
    assert _codes(data["was"]) == ["drained", "snoozed"]
    assert not any("`" in words(one, remedy=False) for one in data["was"]), "the remedy was this"
    assert data["refuses"] == "quiet until 18:00 by its owner"
    again = fleet.ask(m.AskResume, host="pi")
    assert not again.ok
    assert "it takes no jobs now: quiet until 18:00 by its owner" in again.message
    status = fleet.ask(m.AskStatus).data
    assert status["restrained"] == [
        {"host": "pi", "reasons": [{"code": "refuses", "said": "quiet until 18:00 by its owner"}]}
    ]


def test_a_paused_fleet_gives_nothing_out_and_says_so() -> None:
    fleet = Fleet(spec("one", 9), spec("two"))
    assert fleet.ask(m.AskPause).ok
    pi = fleet.host().joins()
    fleet.passes(60)
    assert not pi.heard(m.Assign)
    status: Any = fleet.ask(m.AskStatus).data
    assert (status["paused"]["code"], status["paused"]["who"]) == ("paused", "operator:op")
    assert status["runnable"] == 0
    assert "`fleet pause --off` lifts it" in summary(fleet.why("one"))
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
    assert fleet.ask(m.AskStatus).data["runnable"] == 0
    assert fleet.ask(m.AskPause, off=True).ok
    given = [assign for host in (pi, pc) for assign in host.heard(m.Assign)]
    assert {assign.name for assign in given} == {"one", "two"}, "without waiting for a heartbeat"


def test_every_decision_comes_out_of_the_ledger_as_it_went_in() -> None:
    ledger = Ledger(":memory:")
    records = [
        HostRecord("a", drained=True, at="t", who="w", drained_now=True),
        HostRecord("b", quarantine="q", at="t", who="w", snoozed_until="u", snoozed_by="x",
                   snooze_s=9.5, snoozed_now=True),
        HostRecord("c", at="t", who="w"),
    ]  # fmt: skip
    assert ledger.load_fleet() == FleetRecord()
    ledger.commit([*records, FleetRecord(paused=True, at="t", who="w")])
    assert ledger.load_hosts() == {record.host: record for record in records}
    assert ledger.load_fleet() == FleetRecord(paused=True, at="t", who="w")
    ledger.commit(
        [replace(records[1], snoozed_until="", snoozed_by="", snooze_s=0.0, snoozed_now=False)]
    )
    assert not ledger.load_hosts()["b"].snoozed_until
    ledger.close()


# the manifest's rules


def _ruled(fleet: Fleet, **rules: Any) -> None:
    policy = HostPolicy("pi", **rules)
    fleet.handle(ManifestRead(Plan((spec(),), {"pi": policy})))


def test_a_host_with_quiet_hours_is_given_nothing_before_it_knows_them() -> None:
    """It is told until a heartbeat confirms them; `why` says what is awaited."""
    fleet = Fleet()
    _ruled(fleet, quiet_hours=("22:00-07:00",))
    pi = fleet.host().joins()
    (rules,) = pi.heard(m.Rules)
    assert rules.rules == m.HostRules(quiet_hours=("22:00-07:00",))
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


def test_rules_that_the_manifest_gives_up_are_taken_back() -> None:
    fleet = Fleet()
    _ruled(fleet, idle_only=True)
    pi = fleet.host().joins()
    (rules,) = pi.heard(m.Rules)
    pi.beats(rules=rules.digest)
    fleet.sent.clear()
    fleet.plan(spec())
    (none,) = pi.heard(m.Rules)
    assert (none.digest, none.rules) == ("", m.HostRules())
    pi.beats()
    fleet.passes(6)
    pi.beats()
    assert not pi.heard(m.Rules)


def test_while_a_host_is_starting_nobody_is_told_that_nothing_can_start() -> None:
    """It has yet to say what it is; once it has, there is nothing left to wait for."""
    fleet = Fleet(spec("one", require_cuda=True))
    pi = fleet.host()
    pi.status("online", "birth")
    status = fleet.ask(m.AskStatus).data
    assert status["starting"] == 1
    assert "can start yet: 1 host is starting." in [*_draw(status | {"forecast": None})][-1]
    pi.joins()
    status = fleet.ask(m.AskStatus).data
    assert status["starting"] == 0
    assert "can start; `fleet why JOB`" in [*_draw(status | {"forecast": None})][-1]


def test_a_host_that_was_mistyped_is_guessed() -> None:
    fleet = Fleet()
    fleet.host("laptop").joins()
    said = [fleet.ask(ask, host="laptp", **more).message for ask, more in (
        (m.AskDrain, {}), (m.AskSnooze, {"for_s": 60.0}), (m.AskResume, {})
    )]  # fmt: skip
    words = "no host is called 'laptp'; did you mean 'laptop'? `fleet workers` shows them"
    assert said == [words] * 3
    far = fleet.ask(m.AskDrain, host="x").message
    assert far == "no host is called 'x'; `fleet workers` shows them"


def test_a_host_whose_data_has_gone_says_why_it_is_given_no_jobs() -> None:
    """Once more when it is back, it is given some; of a host that is away nothing old is said."""
    fleet = Fleet(spec())
    pi = fleet.host().joins(data_id=None)

    def told() -> tuple[Any, Any]:
        (row,) = fleet.ask(m.AskWorkers).data["workers"]
        assert row["condition"] == ("no data" if row["barred"] else row["presence"])
        return row["barred"], fleet.ask(m.AskStatus).data["restrained"]

    (why,), restrained = told()
    assert why == {"code": "no-data"}
    assert restrained == [{"host": "pi", "reasons": [why]}]
    assert why in fleet.why()["hosts"][0]["reasons"]
    pi.joins()
    assert told() == ([], [])
    pi.joins(data_id=None)
    pi.status("offline", "lost")
    assert told() == ([], [])
