"""What the coordinator deletes of itself, and what it never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol import messages as m
from coordinator.core.effects import Task
from coordinator.ledger.ledger import FILE_NAME
from tests.harness.kinds import kinds
from tests.harness.shell import ledgers_closed, refusing
from tests.unit.coordinator.service.test_lookups import DAY_S, FIRST, Scene, hex_of

__all__ = ["ledgers_closed"]


@pytest.fixture
def set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A result that a requeue has set aside, to be deleted in a month."""
    monkeypatch.setattr("coordinator.ledger.database._WAIT_S", 0.0)
    scene = Scene(tmp_path)
    scene.brings(FIRST)
    scene.requeues()
    return scene


def test_a_ledger_that_refuses_keeps_no_file(set_aside: Scene) -> None:
    """On a full disk the files are what makes room."""
    set_aside.asks(m.AskCancel(id="c", job="job"))  # so that nothing else is to be written
    with refusing(set_aside.folder / FILE_NAME):
        set_aside.passes(31)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_what_a_disk_did_not_delete_is_deleted_the_next_time(
    set_aside: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the log says; until then it is still there to be fetched."""
    disk = set_aside.coordinator.disk
    with monkeypatch.context() as context:
        context.setattr(disk, "unlink", _refuse)
        set_aside.passes(31)
    assert set_aside.fetches(1) == FIRST
    set_aside.passes(1)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_a_clock_that_is_ahead_for_a_while_deletes_nothing(set_aside: Scene) -> None:
    """What is gone does not come back with the right time; what is too old by that one goes."""
    set_aside.coordinator.skew_s = 40 * DAY_S
    set_aside.passes(1)
    set_aside.coordinator.skew_s = 0.0
    set_aside.passes(1)
    assert set_aside.fetches(1) == FIRST
    set_aside.passes(31)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def test_a_machine_that_has_slept_deletes_what_is_old_at_the_second_look(set_aside: Scene) -> None:
    """Its own clock for durations stands still meanwhile."""
    set_aside.coordinator.skew_s = 40 * DAY_S
    set_aside.passes(1)
    set_aside.passes(1)
    assert not set_aside.coordinator.store.has(hex_of(FIRST))


def _refuse(_path: Path) -> None:
    raise OSError(30, "Read-only file system")


def test_every_effect_is_performed(set_aside: Scene) -> None:
    """One that the table lacks would end the coordinator."""
    assert kinds(Task) <= set_aside.coordinator.shell._performer._by_kind.keys()
