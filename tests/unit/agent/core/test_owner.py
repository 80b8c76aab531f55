"""Whose the machine is: the agent's own word on when it takes jobs, which nobody else can lift."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from agent.core.core_settings import CorePart
from agent.core.effects import Looked, SignalTrainer, Snooze, StartTrainer
from agent.core.owner import judge
from broker.protocol import messages as m
from tests.harness.agent import HEX, MONDAY, Agent

QUIET = m.Why(code="quiet", by="owner", until="2026-03-02T18:00")


def _refuses(agent: Agent) -> tuple[m.Why, ...]:
    agent.said(m.Heartbeat)
    agent.passes(31)
    beat: m.Heartbeat = agent.said(m.Heartbeat)[-1]
    return beat.refuses


def _tells_rules(agent: Agent, rules: m.HostRules, digest: str = "d1") -> None:
    agent.hears(m.Rules(id=agent.new_id(), digest=digest, rules=rules))


def test_what_speaks_against_has_its_figures() -> None:
    own = CorePart(quiet_hours=("08:00-10:00",), idle_only=True)
    seen = Looked(
        MONDAY, Snooze(MONDAY + timedelta(hours=3)), 125.0, ("blender",), others_percent=80.0
    )
    holds = judge(own, m.HostRules(quiet_hours=("Sat,Sun", "Mon")), seen)
    day = f"{MONDAY:%Y-%m-%d}"
    night = f"{MONDAY + timedelta(days=1):%Y-%m-%d}"
    assert [hold.why.told() for hold in holds] == [
        {"code": "snoozed", "by": "owner", "until": f"{day}T12:00"},
        {"code": "quiet", "by": "owner", "until": f"{day}T10:00"},
        {"code": "quiet", "by": "manifest", "until": f"{night}T00:00"},
        {"code": "in_use", "input_idle_s": 125, "gpu_users": ["blender"], "others_percent": 80},
    ]


@pytest.mark.parametrize(
    ("seen", "in_use"),
    [
        (Looked(MONDAY, None, 299.0), True),
        (Looked(MONDAY, None, 300.0), False),
        (Looked(MONDAY, None, None, (), 50.0), True),
        (Looked(MONDAY, None, None, (), 49.0), False),
        (Looked(MONDAY), False),
    ],
)
def test_when_somebody_uses_it(seen: Looked, in_use: bool) -> None:
    """What cannot be known speaks against nothing; without idle-only nothing of it counts."""
    assert bool(judge(CorePart(idle_only=True), m.HostRules(), seen)) == in_use
    assert bool(judge(CorePart(), m.HostRules(idle_only=True), seen)) == in_use
    assert not judge(CorePart(), m.HostRules(), seen)


def test_when_quiet_hours_begin_jobs_are_given_back_and_none_is_taken() -> None:
    agent = Agent(quiet_hours=("Mon-Fri 09:30-18:00",))
    agent.runs()
    agent.said(m.Heartbeat)
    agent.passes(30 * 60 - 1)
    assert not agent.took(SignalTrainer)
    agent.said(m.Heartbeat)
    agent.passes(6)
    (term,) = agent.took(SignalTrainer)
    assert not term.kill
    assert agent.said(m.Heartbeat)[-1].refuses == (QUIET,)
    released = agent.leaves_off(artifact_id=HEX)
    assert released.why == QUIET
    assert released.artifact_id == HEX
    agent.assigned(2)
    expected = m.Objection(code="refuses", holds=(QUIET,))
    assert expected in agent.said(m.Refused)[0].reasons
    agent.passes(9 * 3600)
    assert not _refuses(agent)
    agent.assigned(3)
    assert agent.took(StartTrainer)


def test_it_is_said_before_anything_is_given_back() -> None:
    """Or the job that comes back would be given to this host again."""
    agent = Agent()
    agent.runs()
    agent.core.handle(Looked(MONDAY, Snooze(now=True)), agent.now)
    kinds = [type(effect).__name__ for effect in agent.core.take()]
    assert kinds.index("Outgoing") < kinds.index("SignalTrainer")


def test_what_runs_may_be_finished_if_the_owner_says_so() -> None:
    agent = Agent(quiet_hours=("09:30-18:00",), on_busy="finish")
    agent.runs()
    agent.passes(3600)
    assert _refuses(agent)
    assert not agent.took(SignalTrainer)
    agent.finishes()


def test_an_owner_who_sits_down_gets_the_machine_after_a_grace() -> None:
    agent = Agent(idle_only=True)
    agent.seen = replace(agent.seen, input_idle_s=4000.0)
    agent.passes(6)
    assert agent.looked_for[-1].idle
    agent.runs()
    agent.seen = replace(agent.seen, input_idle_s=0.0)
    agent.passes(20)
    agent.seen = replace(agent.seen, input_idle_s=4000.0)
    agent.passes(60)
    assert not agent.took(SignalTrainer)
    agent.seen = replace(agent.seen, input_idle_s=0.0)
    agent.passes(20)
    assert not agent.took(SignalTrainer)
    agent.passes(20)
    assert len(agent.took(SignalTrainer)) == 1
    assert agent.leaves_off().why == m.Why(code="in_use", input_idle_s=0)


def test_nobody_looks_over_the_shoulder_unless_it_is_asked_for() -> None:
    """Keyboard and load are no business of a host without idle-only."""
    agent = Agent()
    agent.passes(60)
    assert agent.looked_for
    assert not any(one.idle for one in agent.looked_for)
    _tells_rules(agent, m.HostRules(idle_only=True))
    agent.passes(6)
    assert agent.looked_for[-1].idle


def test_the_owners_snooze_takes_effect_at_the_next_look_and_holds_against_everybody() -> None:
    """Whatever the coordinator assigns; without an end it holds until the owner ends it.

    What runs is finished, unless the owner wants the machine now.
    """
    agent = Agent()
    agent.runs()
    agent.seen = replace(agent.seen, snooze=Snooze())
    agent.passes(60)
    snoozed = m.Why(code="snoozed", by="owner")
    assert _refuses(agent) == (snoozed,)
    assert not agent.took(SignalTrainer)
    agent.seen = replace(agent.seen, snooze=Snooze(now=True))
    agent.passes(6)
    assert agent.took(SignalTrainer)
    agent.leaves_off()
    _tells_rules(agent, m.HostRules())
    for attempt in (2, 3):
        agent.assigned(attempt)
        refused = m.Objection(code="refuses", holds=(snoozed,))
        assert agent.said(m.Refused)[0].reasons == (refused,)
    agent.seen = replace(agent.seen, snooze=None)
    agent.passes(6)
    agent.assigned(4)
    assert agent.took(StartTrainer)


def test_the_manifests_rules_are_taken_at_once_and_confirmed() -> None:
    agent = Agent()
    agent.runs()
    _tells_rules(agent, m.HostRules(quiet_hours=("Mon 08:00-18:00",)))
    assert agent.took(SignalTrainer)
    agent.passes(1)
    beat = agent.said(m.Heartbeat)[-1]
    quiet = m.Why(code="quiet", by="manifest", until="2026-03-02T18:00")
    assert (beat.rules, beat.refuses) == ("d1", (quiet,))
    _tells_rules(agent, m.HostRules(quiet_hours=("when the cock crows",)), "d2")
    agent.passes(31)
    assert agent.said(m.Heartbeat)[-1].rules == "d1"
    _tells_rules(agent, m.HostRules(), "")
    assert not _refuses(agent)


def test_the_manifest_lifts_nothing_that_the_owner_has_said() -> None:
    agent = Agent(quiet_hours=("00:00-24:00",))
    _tells_rules(agent, m.HostRules())
    agent.passes(6)
    assert _refuses(agent) == (m.Why(code="quiet", by="owner"),)


def test_before_it_has_looked_it_takes_nothing() -> None:
    """It might be the middle of the quiet hours."""
    assert Agent(alone=False).core.state.refuses == (m.Why(code="starting"),)
