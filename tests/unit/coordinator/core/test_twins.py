"""Two agents of one name, and two coordinators at one broker."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected
from coordinator.core.effects import Warn
from tests.harness.coordinator import Fleet, running, spec


def test_two_agents_of_one_name_are_seen_and_get_no_jobs() -> None:
    """They take turns: processes that were replaced keep coming back."""
    fleet = Fleet(spec())
    pi = fleet.host()
    for number in range(8):
        pi.session, pi.instance = f"s{number}", f"i{number % 2}"
        pi.status("online", "birth")
    pi.joins()
    assert fleet.worker()["presence"] == "twins"
    assert "twins" in fleet.reasons()
    told = [effect.text for effect in fleet.effects if isinstance(effect, Warn)]
    assert sum("two agents use the name 'pi'" in text for text in told) == 1, "once, in the log"
    assert fleet.job().state == "pending"
    assert fleet.worker()["alone_in_s"] == 180
    fleet.passes(141)
    pi.beats()
    assert fleet.worker()["alone_in_s"] == 39
    fleet.passes(40)
    pi.beats()
    assert fleet.job().state == "claimed"


@pytest.mark.parametrize("will", [True, False])
def test_a_twin_that_comes_costs_a_running_job_nothing(*, will: bool) -> None:
    """Not even at its first turn: it is there at once, and the other one comes back in seconds.

    After that the fleet knows better than to believe what one of them lacks.
    """
    fleet, pi, job = running(max_attempts=1)
    fleet.passes(60)
    for number in range(12):
        if will:
            pi.status("offline", "lost")
        pi.session, pi.instance = f"s{number}", ("i-twin", "i-pi")[number % 2]
        pi.joins(*([(job.job_id, 1, "running")] if pi.instance == "i-pi" else []))
        fleet.passes(2)
    assert (fleet.job().state, fleet.job().losses) == ("running", 0)


def test_a_twin_that_is_ended_in_order_speaks_for_itself_alone() -> None:
    """What the other one trains goes on; it is back in a moment."""
    fleet, pi, job = running()
    pi.session, pi.instance = "s-2", "i-twin"
    pi.joins()
    pi.status("offline", "goodbye")
    pi.session, pi.instance = "s-3", "i-pi"
    pi.joins((job.job_id, 1, "running"))
    assert fleet.job().state == "running"
    assert not pi.heard(m.Cancel)
    pi.status("offline", "goodbye")
    assert fleet.job().state == "pending"


def test_a_second_coordinator_is_told_of() -> None:
    """Once; its own messages, and retained ones of an earlier process, are not meant."""
    fleet = Fleet()
    for instance, retained in (("c1", False), ("old", True), ("c2", False), ("c2", False)):
        fleet.hears_coordinator(instance, retained=retained)
    (warning,) = fleet.took(Warn)
    assert "another coordinator" in warning.text


def test_a_second_coordinator_is_known_of_when_the_ledger_takes_changes_again() -> None:
    """It is told of once, and what it may have had hosts stop is no loss all the same."""
    fleet, pi, job = running()
    fleet.hears_coordinator("c2")
    core = fleet.core
    fleet.start()  # as the shell does when the disk refuses a commit
    fleet.core.inherit(core)
    fleet.hears_coordinator("c2")
    assert len(fleet.took(Warn)) == 1
    pi.beats((job.job_id, 1, "running"))
    pi.beats()
    assert fleet.history.count(("job", "released")) == 1
    assert fleet.job().losses == 0


@pytest.mark.parametrize("state", ["online", "offline"])
def test_a_second_coordinator_is_told_of_that_throws_this_one_off_the_broker(state: Any) -> None:
    """It is never heard live: at each return its birth or its will lies there."""
    fleet = Fleet()
    for number in range(4):
        if number > 1:
            fleet.hears_coordinator("another", state, f"s{number}", retained=True)
        fleet.hears_coordinator("earlier", "offline", "s-earlier", retained=True)
        fleet.handle(Connected(f"session-again-{number}"))
        fleet.handle(Disconnected("connection lost"))
    (warning,) = fleet.took(Warn)
    assert "another coordinator (instance another)" in warning.text
