"""A job that its host does not have any more, though no report said so: after a second coordinator.

The host was told to stop it by somebody else, and this coordinator heard nothing of it.
"""

from __future__ import annotations

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Connected
from tests.harness.coordinator import Fleet, Host, joined, running, spec


def _running(*, listed: bool = True) -> tuple[Fleet, Host]:
    fleet, pi, job = running()
    if listed:
        pi.beats((job.job_id, 1, "running"))
    return fleet, pi


def test_a_job_that_was_listed_and_is_not_any_more_goes_back_at_once() -> None:
    """J5: it takes no second heartbeat, and the same host is given it anew."""
    fleet, pi = _running()
    pi.beats()
    assert fleet.history[-2:] == [("job", "lost"), ("job", "assigned")]
    (assign,) = pi.heard(m.Assign)
    assert assign.attempt == 2


def test_what_another_coordinator_may_have_stopped_costs_the_job_nothing() -> None:
    fleet, pi = _running()
    fleet.hears_coordinator("c2")
    for attempt in range(1, 6):
        pi.beats()
        assert (fleet.job().attempt, fleet.job().losses) == (attempt + 1, 0)
        job = pi.runs()
        pi.beats((job.job_id, job.attempt, "running"))
    assert "lost" not in dict(fleet.history).values()


def test_a_heartbeat_that_may_be_older_than_the_start_takes_nothing_away() -> None:
    """Neither the first that is heard after it, nor one that a newer one has overtaken."""
    fleet, pi = _running(listed=False)
    pi.beats()
    pi.beats()
    assert fleet.job().attempt == 1
    pi.seq += 1
    pi.beats((fleet.job().job_id, 1, "running"))
    pi.seq -= 2
    pi.beats()
    assert (fleet.job().state, fleet.job().attempt) == ("running", 1)


def test_a_heartbeat_that_was_overtaken_brings_nothing_back() -> None:
    """The newer one did not list the job, which is not the host's again for it."""
    fleet, pi = _running()
    identity = fleet.job().job_id
    fleet.asks(m.AskDrain(id="d", host="pi"))
    pi.seq += 1
    pi.beats()
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)
    pi.seq -= 2
    pi.beats((identity, 1, "running"))
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)


def test_a_heartbeat_that_was_overtaken_renews_the_lease() -> None:
    fleet, pi = _running()
    identity, seq = fleet.job().job_id, pi.seq + 100
    pi.seq = seq
    pi.beats((identity, 1, "running"))
    for late in range(4):
        fleet.passes(fleet.settings.stale_after_s * 0.9)
        pi.seq = seq - 9 + late
        pi.beats((identity, 1, "running"))
    assert (fleet.job().state, fleet.job().attempt) == ("running", 1)


def test_what_was_never_listed_stays_for_a_while() -> None:
    """J5: heartbeats without it that come at once may all be older than its start."""
    fleet, pi = _running(listed=False)
    fleet.start()
    pi.joins()
    for _ in range(5):
        pi.beats()
    assert (fleet.job().state, fleet.job().attempt) == ("running", 1)
    for _ in range(4):
        fleet.passes(fleet.settings.host_timeout_s / 3)
        pi.beats()
    assert fleet.history[-2:] == [("job", "lost"), ("job", "assigned")]


@pytest.mark.parametrize(("state", "count"), [("claimed", 4), ("running", 1)])
def test_what_was_claimed_when_the_connection_was_new_is_not_missed(state: str, count: int) -> None:
    """An assignment is awaited until it is answered; the first heartbeats may be of before."""
    fleet, pi = joined(spec())
    pi.beats()
    fleet.handle(Connected("session-again"))
    if state == "running":
        pi.runs()
    for _ in range(count):
        pi.beats()
    assert (fleet.job().state, fleet.job().attempt) == (state, 1)


@pytest.mark.parametrize("instance", ["i-pi", "i-twin"])
def test_an_attempt_that_somebody_else_had_stopped_goes_back_at_once(instance: str) -> None:
    """J7: by the host's own word, at no cost; a second agent of that name speaks for itself."""
    fleet, pi = _running()
    pi.instance = instance
    pi.reports(m.Stopped, fleet.job(), request_id="of-another")
    if instance == "i-twin":
        assert fleet.job().attempt == 1
    else:
        assert fleet.history[-2:] == [("job", "released"), ("job", "assigned")]
        assert fleet.job().losses == 0
