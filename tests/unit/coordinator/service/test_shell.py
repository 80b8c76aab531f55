"""The shell: an answer rests on a commit, and a ledger that refuses is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.core.effects import JournalRead, ManifestRead, ManifestRefused
from coordinator.jobs.plan_entries import Plan
from coordinator.ledger.ledger import FILE_NAME
from coordinator.manifest.problems import Problem
from tests.harness.coordinator import spec
from tests.harness.shell import Coordinator, refusing, signing


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """One that does not wait for whoever else uses its ledger."""
    monkeypatch.setattr("coordinator.ledger.database._WAIT_S", 0.0)
    made = signing(tmp_path)
    yield made
    made.shell.close()


def test_a_command_that_the_disk_refused_is_not_answered_as_done(coordinator: Coordinator) -> None:
    """O2: it is carried out when it is repeated and the disk takes it, and once."""
    cancel = m.AskCancel(id="c", job="job")
    with refusing(coordinator.folder / FILE_NAME):
        assert coordinator.asks(cancel) is None
        coordinator.passes(60)
    first = coordinator.asks(cancel)
    assert first
    assert first.data == {
        "job_id": spec().job_id, "name": "job", "state": "cancelled", "others": []
    }  # fmt: skip
    assert coordinator.asks(cancel) == first
    page = coordinator.asks(m.AskEvents(id="e"))
    assert page
    told = [(row["who"], row["event"]) for row in page.data["events"]]  # type: ignore[index, call-overload, union-attr]
    assert told.count(("operator:op", "cancelled")) == 1


def test_while_a_manifest_is_read_the_others_are_answered(coordinator: Coordinator) -> None:
    """A large one takes a second; who asked for that hears when it is done, once."""
    reload = m.AskReload(id="r")
    assert coordinator.asks(reload) is None
    assert coordinator.asks(m.AskStatus(id="s"))
    assert coordinator.asks(reload) is None
    assert not coordinator.inbox, "no turn has read it"
    coordinator.answers()
    while coordinator.reads:
        coordinator.reads.popleft()()
    coordinator.handle(*coordinator.inbox)
    answers = coordinator.answers()
    assert {one.id for one in answers} == {"r"}
    data: Any = answers[0].data
    assert data["changes"]["unchanged"] == 1


def test_the_story_is_asked_for_over_the_wire(coordinator: Coordinator) -> None:
    """By name of the job; a job that there is not is told."""
    coordinator.asks(m.AskCancel(id="c", job="job"))
    coordinator.asks(m.AskCancel(id="d", job="job"))
    coordinator.asks(m.AskDrain(id="e", host="nobody"))
    page: Any = coordinator.asks(m.AskEvents(id="1", job="jo", who="operator"))
    told = [(row["event"], row["outcome"], row["why"]) for row in page.data["events"]]
    assert told == [
        ("cancelled", "done", {}),
        ("cancel", "refused", {"code": "over_already", "name": "job", "state": "cancelled"}),
    ]  # fmt: skip
    assert page.data["more"] is False
    missing = coordinator.asks(m.AskEvents(id="2", job="nothing"))
    assert missing
    assert missing.code == "not_found"
    later: Any = coordinator.asks(m.AskEvents(id="3", since=coordinator.now.wall_s + 1))
    assert later.data["events"] == []


def names(coordinator: Coordinator) -> set[str]:
    answer: Any = coordinator.asks(m.AskList(id="l"))
    return {row["name"] for row in answer.data["jobs"] if row["in_plan"]}


def statuses(coordinator: Coordinator) -> list[str]:
    answer: Any = coordinator.asks(m.AskWorkers(id="w", brief=True))
    return [row["status"] for row in answer.data["workers"]]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_manifest_that_was_read_meanwhile_is_taken(
    coordinator: Coordinator, *, meanwhile: bool
) -> None:
    """Nobody reads it again: its jobs would be missing until the next reload."""
    read = ManifestRead(Plan((spec(), spec("new"))))
    with refusing(coordinator.folder / FILE_NAME):
        if meanwhile:
            assert coordinator.asks(m.AskCancel(id="c", job="job")) is None
        coordinator.handle(read)
    coordinator.passes(60)
    assert names(coordinator) == {"job", "new"}


@pytest.mark.parametrize("refusals", range(1, 5))
@pytest.mark.parametrize("mended", [False, True])
def test_a_manifest_that_waits_does_not_take_the_place_of_a_newer_one(
    coordinator: Coordinator, *, refusals: int, mended: bool
) -> None:
    """It was read before that; neither are its errors told any more when they are mended."""
    older = ManifestRead(Plan((spec(), spec("older"))))
    faulty = ManifestRefused((Problem("plan.toml", "", "", "it has errors"),))
    with refusing(coordinator.folder / FILE_NAME):
        for _ in range(refusals):
            coordinator.handle(older)
            coordinator.handle(*([faulty] if mended else []))
            coordinator.passes(60)
    while not coordinator.asks(m.AskStatus(id="s")):
        coordinator.mono_s += 0.01
    coordinator.handle(ManifestRead(Plan((spec(), spec("newer")))))
    for _ in range(10):
        coordinator.passes(10)
    answer: Any = coordinator.asks(m.AskStatus(id="t"))
    assert answer.data["coordinator"]["manifest_fault"] is None
    assert names(coordinator) == {"job", "newer"}


def test_a_certificate_that_was_taken_back_meanwhile_does_not_hold(
    coordinator: Coordinator,
) -> None:
    """The CA's journal is read again when it changes, and no sooner."""
    revoked = m.AskIdentity(id="j1", action="revoke", name="pi", made_at=1.8e9)
    with refusing(coordinator.folder / FILE_NAME):
        coordinator.handle(JournalRead((("operator:op", revoked),)))
    coordinator.passes(60)
    answer: Any = coordinator.asks(m.AskEvents(id="e", host="pi"))
    assert [row["event"] for row in answer.data["events"]] == ["revoke"]


def test_a_host_that_went_meanwhile_is_offline_in_the_end(coordinator: Coordinator) -> None:
    """What the broker said of it was not heard; its silence tells."""
    coordinator.host().joins()
    with refusing(coordinator.folder / FILE_NAME):
        assert coordinator.asks(m.AskCancel(id="c", job="job")) is None
    coordinator.passes(60)
    assert statuses(coordinator) == ["online"]
    coordinator.waits(101)
    assert statuses(coordinator) == ["offline"]


def test_a_manifest_that_is_too_much_for_the_disk_leaves_the_fleet_served(
    coordinator: Coordinator,
) -> None:
    """What needs little room is taken; the manifest is tried again, until there is more."""
    database = coordinator.ledger._db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + 20}")
    many = {f"job{number}" for number in range(2000)}
    coordinator.handle(ManifestRead(Plan((spec(), *map(spec, sorted(many))))))
    served = 0
    for number in range(120):
        coordinator.passes(1)
        answer = coordinator.asks(m.AskPause(id=f"p{number}", off=bool(number % 2)))
        served += answer is not None
    assert served > 90
    database.execute("PRAGMA max_page_count = 1000000")
    coordinator.passes(31)
    answer = coordinator.asks(m.AskStatus(id="s"))
    assert answer is not None
    data: Any = answer.data
    assert data["jobs"]["pending"] == 1 + len(many)
