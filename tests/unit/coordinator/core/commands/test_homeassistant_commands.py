"""Home Assistant's switches and buttons: what they do, what is recorded, and who may not."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.protocol.signing import OperatorKey
from coordinator.core.commands.homeassistant_commands import COMMANDS_A_MINUTE
from coordinator.core.effects import ManifestRead
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import FleetRecord, HostRecord
from tests.harness.coordinator import Host, spec
from tests.harness.home import home

__all__ = ["home"]

ME = "homeassistant"


def test_the_switch_drains_and_resumes(home: Any) -> None:
    """It shows what is so, not what was asked for; who did it is on record."""
    fleet = home(spec())
    fleet.told("pi", "drain")
    pi = Host(fleet, "pi").joins()
    fleet.told("pi", "drain")
    fleet.passes(2)
    assert fleet.state()["accepts"] is False
    assert fleet.shell.core.world.record("pi").who == ME
    pi.beats()
    fleet.told("pi", "resume")
    fleet.passes(2)
    assert fleet.state()["accepts"] is True
    assert fleet.story() == [
        (ME, "drain", "refused", ""), (ME, "drain", "done", "pi"), (ME, "resume", "done", "pi")
    ]  # fmt: skip


def test_a_switch_that_is_thrown_again_does_nothing(home: Any) -> None:
    """Automations say the same all day; that is neither an error nor a line in the history.

    T2: a retained command is a replay, and ignored.
    """
    fleet = home()
    fleet.host("pi")
    fleet.told("pi", "drain", retained=True)
    assert not fleet.shell.core.world.record("pi").drained
    for _ in range(5):
        fleet.told("pi", "drain")
    for _ in range(5):
        fleet.told("pi", "resume")
    assert [row[1:3] for row in fleet.story()] == [("drain", "done"), ("resume", "done")]


def test_the_switch_lifts_no_quarantine(home: Any) -> None:
    """An automation that runs every evening has not looked why."""
    fleet = home()
    fleet.host("pi")
    world = fleet.shell.core.world
    world.remember(HostRecord("pi", drained=True, quarantine=("a",), at="t", who="x"))
    fleet.told("pi", "resume")
    fleet.passes(2)
    assert fleet.state()["accepts"] is True
    assert fleet.state()["state"] == "quarantine"
    assert world.record("pi").quarantine
    assert fleet.story() == [(ME, "resume", "done", "pi")]
    fleet.told("pi", "resume")
    assert world.record("pi").quarantine


def test_cancel_ends_what_the_host_holds(home: Any) -> None:
    """All of it, and nothing that comes afterwards; one that holds nothing says so."""
    fleet = home(spec("one"), spec("two"), spec("three"))
    pi = fleet.host("pi", slots=2)
    held = [name for name in ("one", "two", "three") if fleet.job(name).host == "pi"]
    assert len(held) == 2
    fleet.told("pi", "cancel")
    states = {name: fleet.job(name).state.value for name in ("one", "two", "three")}
    assert [states[name] for name in held] == ["cancelled", "cancelled"]
    assert len(pi.heard(m.Cancel)) == 2
    events = fleet.ledger.events(fleet.job(held[0]).job_id)
    assert (events[-1]["event"], events[-1]["who"]) == ("cancelled", ME)
    idle = fleet.host("idle", data_id=None)
    fleet.told(idle.name, "cancel")
    assert fleet.story()[-1] == (ME, "cancel", "refused", "")


def test_release_gives_back_what_the_host_holds(home: Any) -> None:
    """And it is given no more: somebody wants the machine now. The job goes elsewhere."""
    fleet = home(spec())
    pi = fleet.host("pi")
    pi.runs()
    two = fleet.host("two")
    fleet.told("pi", "release")
    job = fleet.job()
    assert [one.attempt for one in pi.heard(m.Release)] == [job.attempt]
    pi.reports(m.Released, job, why=m.Why(code="drained"))
    assert [one.job_id for one in two.heard(m.Assign)] == [fleet.job().job_id]
    fleet.passes(2)
    assert fleet.state()["accepts"] is False
    events = [(one["event"], one["who"]) for one in fleet.ledger.events(fleet.job().job_id)]
    assert ("released", "host:pi") in events
    assert (ME, "drain", "done", "pi") in fleet.story()


def test_requeue_takes_what_has_failed(home: Any) -> None:
    """Those in the plan, for nobody wants the others any longer; with none that is said."""
    fleet = home(spec("one", priority=1), spec("two"))
    fleet.told("coordinator", "requeue")
    assert fleet.story() == [(ME, "requeue", "refused", "")]
    pi = fleet.host("pi")
    job = fleet.job("one")
    pi.reports(m.Failed, job, error="no", transient=False)
    assert fleet.job("one").state.value == "failed"
    fleet.told("coordinator", "requeue")
    assert fleet.job("one").state.value in {"pending", "claimed"}
    events = [(event["event"], event["who"]) for event in fleet.ledger.events(job.job_id)]
    assert ("requeued", ME) in events
    pi.reports(m.Failed, fleet.job("two"), error="no", transient=False)
    fleet.handle(ManifestRead(Plan((spec("one", priority=1),))))
    fleet.told("coordinator", "requeue")
    assert fleet.asks(m.AskEvents(id="e")).data["events"][-1]["why"] == {"code": "none_failed"}
    assert fleet.job("two").state.value == "failed"
    fleet.passes(2)
    assert fleet.state("coordinator")["problem"] is False


def test_reload_reads_the_manifest(home: Any) -> None:
    fleet = home(spec("one"))
    fleet.specs = (*fleet.specs, spec("two"))
    fleet.told("coordinator", "reload")
    assert fleet.job("two").state.value == "pending"
    assert fleet.story() == [(ME, "reload", "done", "")]


@pytest.mark.parametrize(("node", "command"), [("coordinator", "drain"), ("coordinator", "cancel"),
                                               ("pi", "reload"), ("pi", "requeue")])  # fmt: skip
def test_a_command_that_a_node_does_not_have_is_dropped(home: Any, node: str, command: str) -> None:
    fleet = home()
    fleet.host("pi")
    fleet.told(node, command)
    assert fleet.story() == []
    assert fleet.shell.core.world.dropped["homeassistant/set"] == 1


@pytest.mark.parametrize("payload", [b"", b"OFF", b"{}", b'{"type":"forget"}', b"\xff", b"[1]"])
def test_what_is_no_command_is_dropped(home: Any, payload: bytes) -> None:
    fleet = home()
    fleet.host("pi")
    fleet.handle(Incoming(fleet.topics.home_command("pi"), payload))
    assert fleet.story() == []
    assert fleet.shell.core.world.dropped["homeassistant/set"] == bool(payload)


def test_with_an_operator_key_home_assistant_may_look_alone(home: Any) -> None:
    """The broker knows nobody then, so anybody could be Home Assistant: refused, counted, told."""
    fleet = home(spec(), commands=False, operator_key=OperatorKey("k" * 64))
    fleet.host("pi")
    assert "switch/accepts" not in fleet.configs("pi")
    assert not any(key.startswith("button/") for key in fleet.configs())
    for node, command in (("pi", "drain"), ("pi", "cancel"), ("coordinator", "reload")):
        fleet.told(node, command)
    world = fleet.shell.core.world
    assert not world.record("pi").drained
    assert fleet.job().state.value == "claimed"
    assert world.refused["unsigned"] == 3
    assert [row[1:3] for row in fleet.story()] == [
        ("drain", "refused"), ("cancel", "refused"), ("reload", "refused")
    ]  # fmt: skip


def test_who_allows_it_takes_unsigned_commands(home: Any) -> None:
    fleet = home(commands=True, operator_key=OperatorKey("k" * 64))
    fleet.host("pi")
    assert fleet.asks(m.AskDrain(id="d", host="pi")).code == "refused"
    fleet.told("pi", "drain")
    assert fleet.shell.core.world.record("pi").drained


def test_a_run_away_automation_is_stopped(home: Any) -> None:
    """So many commands a minute are carried out; the ledger does not grow without end."""
    fleet = home()
    fleet.host("pi")
    for _ in range(COMMANDS_A_MINUTE // 2 + 20):
        fleet.told("pi", "drain")
        fleet.told("pi", "resume")
    assert len(fleet.story()) == COMMANDS_A_MINUTE
    assert fleet.shell.core.world.refused["too_many"] > 0
    fleet.passes(61)
    fleet.told("pi", "drain")
    assert len(fleet.story()) == COMMANDS_A_MINUTE + 1


def test_what_keeps_jobs_from_a_host_is_its_state(home: Any) -> None:
    """Snoozed, or unwilling; and the fleet's, when it is paused."""
    fleet = home()
    pi = fleet.host("pi")
    world = fleet.shell.core.world
    world.remember(HostRecord("pi", snoozed_until="2099-01-01T00:00:00Z", snoozed_by="x"))
    pi.beats()
    fleet.passes(2)
    assert fleet.state()["state"] == "snoozed"
    world.remember(HostRecord("pi"))
    world.remember(FleetRecord(paused=True, at="t", who="x"))
    pi.beats(refuses=(m.Why(code="quiet"),))
    fleet.passes(2)
    assert fleet.state()["state"] == "refusing"
    assert fleet.state("coordinator")["state"] == "paused"
