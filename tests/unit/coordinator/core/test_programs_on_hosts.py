"""Programs and the hosts that run them: parcels given to hosts, hosts that cannot use them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.client.predictions import look
from coordinator.core.effects import JournalRead
from tests.harness import programs
from tests.harness.coordinator import Host
from tests.harness.inclient import client_of
from tests.harness.pushing import known, push, push_all, pushed, run
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture


def test_a_host_gets_the_parcel_of_its_own_job_alone(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(pinned=(programs.DIGEST,)), slots=2)
    assert host.runs().spec.program is None, "it holds a job of a trainer of its own"
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
    topic = fleet.topics.checkpoint_grant("pi", programs.DIGEST)

    def asks() -> list[Any]:
        host.says(topic, grant)
        return [*fleet.core.world.downloads]

    assert asks() == []
    run(fleet)
    assert asks() == [f"pi/{programs.DIGEST}"]


def test_a_host_beyond_the_places_is_told_to_wait_and_gets_the_next_one(tmp_path: Path) -> None:
    fleet = Coordinator(tmp_path, max_fetches=1)
    push_all(fleet)
    names = ("a", "b", "c")
    for name in names:
        allowed = m.ProgramsAllowed(pinned=(programs.DIGEST,))
        fleet.host(name).joins(programs=allowed, trainers={})
        run(fleet, name=name, parameters={"lr": 0.1, "epochs": len(name) + ord(name)})

    def asks(name: str) -> bytes:
        """What a host gets that wants the whole of it."""
        fleet.chunks.clear()
        grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
        fleet.host(name).says(fleet.topics.checkpoint_grant(name, programs.DIGEST), grant)
        (chunk,) = fleet.chunks
        return chunk

    waiting = [*names]
    while waiting:
        assert asks(waiting[0]) == programs.PARCEL
        assert [asks(name) for name in waiting[1:]] == [b""] * (len(waiting) - 1)
        done = fleet.host(waiting.pop(0))
        done.says(fleet.topics.checkpoint_grant(done.name, programs.DIGEST), m.Stored())
    assert not fleet.core.world.downloads


@pytest.mark.parametrize("code", ["program", "dataset", "input"])
def test_a_host_that_cannot_use_what_a_job_needs_is_not_asked_again_at_once(
    tmp_path: Path, code: str
) -> None:
    fleet = pushed(tmp_path)
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(pinned=(programs.DIGEST,)), trainers={})
    run(fleet)
    assign = host.heard(m.Assign)[-1]
    host.reports(m.Accepted, fleet.job("mine"), request_id=assign.id)
    fault = m.Fault(code="not-sent", limit_s=60.0)
    why = m.Why(code=code, fault=fault)
    host.reports(m.Released, fleet.job("mine"), why=why)
    assert not host.heard(m.Assign)
    mark = {"what": code, "hosts": ["pi"], "more": False, "fault": fault.told()}
    status = fleet.asks(m.AskStatus(id=fleet.new_id())).data
    assert [(one["name"], one["waits_for"]) for one in status["waiting"]["jobs"]] == [
        ("mine", mark)
    ]
    assert (status["waiting"]["count"], status["runnable"]) == (1, 1)
    rows = fleet.asks(m.AskList(id=fleet.new_id())).data["jobs"]
    assert [row.get("waits_for") for row in rows if row["name"] == "mine"] == [mark]
    told = fleet.asks(m.AskWhy(id=fleet.new_id(), job="mine")).data
    assert told["hosts"][0]["reasons"][0]["reasons"] == [{"code": code, "fault": fault.told()}]
    assert (told["waits_for"], told["suitable"]) == (mark, {"again": ["pi"]})
    expected = look(client_of(fleet)).forecast().outlooks[told["job_id"]]
    assert (expected.verdict, expected.start, expected.awaited) == ("absent", None, ("pi",))
    fleet.waits(31.0)
    assert host.heard(m.Assign), "it may have changed its mind"
    expected = look(client_of(fleet)).forecast().outlooks[told["job_id"]]
    assert (expected.verdict, expected.vague) == ("running", True)


def no_revocations(fleet: Coordinator, _: Host) -> None:
    fleet.handle(JournalRead((), "a list without alice"))


def signs_again(fleet: Coordinator, _: Host) -> None:
    push(fleet)


def starts_again(_: Coordinator, host: Host) -> None:
    pinned = m.ProgramsAllowed(pinned=(programs.DIGEST,))
    host.returns(anew=True, programs=pinned, trainers={})


def requeues(fleet: Coordinator, _: Host) -> None:
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    fleet.asks(m.AskRequeue(id=fleet.new_id(), job="mine"))


def waits_long(fleet: Coordinator, host: Host) -> None:
    fleet.waits(900.0)
    host.beats()


@pytest.mark.parametrize("code", ["signer-revoked", "not-installed"])
@pytest.mark.parametrize("changes", [
    no_revocations, signs_again, starts_again, requeues, waits_long,
])  # fmt: skip
def test_a_host_that_cannot_use_a_program_is_asked_no_more_until_something_changes(
    tmp_path: Path, changes: Callable[[Coordinator, Host], None], code: str
) -> None:
    """No job of the program waits for it, and the forecast does not hope for it."""
    fleet = pushed(tmp_path)
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(pinned=(programs.DIGEST,)), trainers={})
    run(fleet)
    fault = m.Fault(code=code)
    host.reports(m.Released, fleet.job("mine"), why=m.Why(code="program", fault=fault))
    host.heard(m.Assign)
    fleet.waits(400.0)
    pinned = m.ProgramsAllowed(pinned=(programs.DIGEST,))
    host.joins(programs=pinned, trainers={}, holdings=(programs.DIGEST,))
    other = b"y" * len(programs.PARCEL)
    push_all(fleet, programs.offer("else", hashlib.sha256(other).hexdigest()), (other,))
    run(fleet, name="other", parameters={"lr": 0.2})
    assert not host.heard(m.Assign)
    why = fleet.asks(m.AskWhy(id=fleet.new_id(), job="mine")).data
    assert why["hopeless"]
    told = why["hosts"][0]["reasons"]
    assert {"code": "unusable", "fault": fault.told()} in told
    assert not any(one["hosts"] for one in known(fleet, "program")), "it does not take it"
    assert look(client_of(fleet)).forecast().outlooks[fleet.job("mine").job_id].verdict == "stuck"
    changes(fleet, host)
    (assign,) = host.heard(m.Assign)
    assert (assign.name, assign.crl) == ("mine", fleet.core.world.crl)


def test_a_job_that_another_host_may_take_is_not_said_to_wait(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    allowed = m.ProgramsAllowed(pinned=(programs.DIGEST,))
    host, other = fleet.host(), fleet.host("other")
    host.joins(programs=allowed, trainers={})
    run(fleet)
    host.reports(m.Accepted, fleet.job("mine"), request_id=host.heard(m.Assign)[-1].id)
    why = m.Why(code="program", fault=m.Fault(code="not-sent", limit_s=9.0))
    host.reports(m.Released, fleet.job("mine"), why=why)
    assert fleet.asks(m.AskStatus(id=fleet.new_id())).data["waiting"]["count"] == 1
    other.joins(programs=allowed, trainers={}, slots=1)
    assert fleet.asks(m.AskStatus(id=fleet.new_id())).data["waiting"]["count"] == 0
