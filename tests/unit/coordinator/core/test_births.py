"""Births that come in part, or not at all: who is asked for theirs, and when."""

from __future__ import annotations

import pytest

from broker.protocol import messages as m
from tests.harness.coordinator import Fleet, Host, spec


def in_part(fleet: Fleet, count: int) -> list[Host]:
    """Hosts whose births have come without their heartbeats."""
    hosts = [fleet.host(f"part-{number}") for number in range(count)]
    for host in hosts:
        beats, host.beats = host.beats, lambda *_, **__: None  # type: ignore[method-assign]
        host.joins()
        host.beats = beats  # type: ignore[method-assign]
    return hosts


def asked(fleet: Fleet) -> int:
    """How many hosts were asked for their birth since this was asked last."""
    count = sum(isinstance(said, m.Rebirth) for _, said in fleet.sent)
    fleet.sent.clear()
    return count


def test_a_host_that_nobody_knows_is_asked_who_it_is() -> None:
    """P5: once in ten seconds at most."""
    fleet = Fleet()
    pi = fleet.host()
    for _ in range(5):
        pi.beats()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1
    pi.beats()
    fleet.passes(5)
    assert not pi.heard(m.Rebirth)
    fleet.passes(6)
    pi.beats()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1


def test_hosts_that_are_heard_in_part_are_not_asked_all_at_once() -> None:
    """P5: a thousand within ten seconds; one whose birth has come meanwhile is not asked."""
    fleet = Fleet()
    hosts = in_part(fleet, 1000)
    fleet.passes(4.9)
    assert not asked(fleet)
    hosts[-1].joins()
    fleet.sent.clear()
    counts = []
    for _ in range(6):
        fleet.passes(1.0)
        counts.append(asked(fleet))
    assert sum(counts) == 999
    assert max(counts) < 600


@pytest.mark.parametrize("known", [False, True])
def test_a_heartbeat_that_overtakes_the_birth_is_taken_with_it(known: bool) -> None:
    """P5: what is on its way is not asked for, and the host need not wait for its next beat."""
    fleet = Fleet(spec())
    pi = fleet.host()
    if known:
        pi.joins()
        pi.refuses()
        pi.session, pi.instance = "s-2", "i-2"
    pi.beats()
    beats, seq = pi.beats, pi.seq
    pi.beats = lambda: None  # type: ignore[method-assign] # the birth without a heartbeat of its own
    pi.joins()
    host = fleet.core.world.hosts["pi"]
    assert host.has_joined()
    assert host.heartbeat is not None
    assert host.heartbeat.seq == seq
    fleet.passes(20)
    assert not pi.heard(m.Rebirth)
    pi.beats = beats  # type: ignore[method-assign]
    pi.beats()
    assert host.heartbeat.seq == seq + 1


def test_a_birth_whose_heartbeat_is_lost_is_asked_for() -> None:
    """P5: it goes at QoS 0, and the host would be given nothing until the next."""
    fleet = Fleet(spec())
    pi = fleet.host()
    pi.beats = lambda: None  # type: ignore[method-assign]
    pi.joins()
    fleet.passes(6)
    assert len(pi.heard(m.Rebirth)) == 1
    fleet.passes(60)
    assert not pi.heard(m.Rebirth), "it may be away"
