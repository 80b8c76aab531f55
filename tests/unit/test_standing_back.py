"""While the ledger refuses, a coordinator stands back: what it goes on with once that is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from broker.protocol import messages as m
from coordinator.core.effects import JournalRead, ManifestRead, ManifestRefused
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.problems import Problem
from tests.harness.coordinator import Fleet, Host, spec
from tests.unit.test_coordinator_shell import TOPICS, Coordinator, coordinator

__all__ = ["coordinator"]


@contextmanager
def refusing(ledger: Path) -> Iterator[None]:
    """Somebody else writes to the ledger, and is at it."""
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def a_host(coordinator: Coordinator) -> Host:
    """One that has come."""
    host = Host(cast("Fleet", coordinator), "pi")
    coordinator.topics, coordinator.core = TOPICS, coordinator.shell.core  # type: ignore[attr-defined]
    coordinator.handle = coordinator.turn  # type: ignore[attr-defined]
    return host.joins()


def names(coordinator: Coordinator) -> set[str]:
    """The jobs."""
    answer: Any = coordinator.asks(m.AskList(id="l"))
    return {row["name"] for row in answer.data["jobs"]}


def in_plan(coordinator: Coordinator) -> set[str]:
    """Those that the manifest has."""
    answer: Any = coordinator.asks(m.AskList(id="i"))
    return {row["name"] for row in answer.data["jobs"] if row["in_plan"]}


def statuses(coordinator: Coordinator) -> list[str]:
    """How each host is."""
    answer: Any = coordinator.asks(m.AskWorkers(id="w", brief=True))
    return [row["status"] for row in answer.data["workers"]]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_manifest_that_was_read_meanwhile_is_taken(
    coordinator: Coordinator, *, meanwhile: bool
) -> None:
    """Nobody reads it again: its jobs would be missing until the next reload."""
    read = ManifestRead(Plan((spec(), spec("new"))))
    with refusing(coordinator.file):
        if meanwhile:
            assert coordinator.asks(m.AskCancel(id="c", job="job")) is None
        coordinator.turn(read)
    coordinator.mono_s += 60
    coordinator.turn()
    assert names(coordinator) == {"job", "new"}


@pytest.mark.parametrize("refusals", range(1, 5))
@pytest.mark.parametrize("mended", [False, True])
def test_a_manifest_that_waits_does_not_take_the_place_of_a_newer_one(
    coordinator: Coordinator, *, refusals: int, mended: bool
) -> None:
    """It was read before that; neither are its errors told any more when they are mended."""
    older = ManifestRead(Plan((spec(), spec("older"))))
    faulty = ManifestRefused((Problem("plan.toml", "", "", "it has errors"),))
    with refusing(coordinator.file):
        for _ in range(refusals):
            coordinator.turn(older)
            coordinator.turn(*([faulty] if mended else []))
            coordinator.mono_s += 60
            coordinator.turn()
    while not coordinator.asks(m.AskStatus(id="s")):
        coordinator.mono_s += 0.01
    coordinator.turn(ManifestRead(Plan((spec(), spec("newer")))))
    for _ in range(10):
        coordinator.mono_s += 10
        coordinator.turn()
    answer: Any = coordinator.asks(m.AskStatus(id="t"))
    assert answer.data["coordinator"]["manifest_fault"] == ""
    assert in_plan(coordinator) == {"job", "newer"}


def test_a_certificate_that_was_taken_back_meanwhile_does_not_hold(
    coordinator: Coordinator,
) -> None:
    """The CA's journal is read again when it changes, and no sooner."""
    revoked = m.AskIdentity(id="j1", action="revoke", name="pi", made_at=1.8e9)
    with refusing(coordinator.file):
        coordinator.turn(JournalRead((("operator:op", revoked),)))
    coordinator.mono_s += 60
    coordinator.turn()
    answer: Any = coordinator.asks(m.AskEvents(id="e", host="pi"))
    assert [row["event"] for row in answer.data["events"]] == ["revoke"]


def test_a_host_that_went_meanwhile_is_offline_in_the_end(coordinator: Coordinator) -> None:
    """What the broker said of it was not heard; its silence tells."""
    a_host(coordinator)
    with refusing(coordinator.file):
        assert coordinator.asks(m.AskCancel(id="c", job="job")) is None
    coordinator.mono_s += 60
    coordinator.turn()
    assert statuses(coordinator) == ["online"]
    coordinator.mono_s += 101
    coordinator.turn()
    assert statuses(coordinator) == ["offline"]


def test_a_manifest_that_is_too_much_for_the_disk_leaves_the_fleet_served(
    coordinator: Coordinator,
) -> None:
    """What needs little room is taken; the manifest is tried again, until there is more."""
    database = coordinator.shell._ledger._db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + 20}")
    many = {f"job{number}" for number in range(2000)}
    coordinator.turn(ManifestRead(Plan((spec(), *map(spec, sorted(many))))))
    served = 0
    for number in range(120):
        coordinator.mono_s += 1
        coordinator.turn()
        answer = coordinator.asks(m.AskPause(id=f"p{number}", off=bool(number % 2)))
        served += answer is not None
    assert served > 90
    database.execute("PRAGMA max_page_count = 1000000")
    coordinator.mono_s += 31
    coordinator.turn()
    answer = coordinator.asks(m.AskStatus(id="s"))
    assert answer is not None
    data: Any = answer.data
    assert data["jobs"]["pending"] == 1 + len(many)
