"""A small artifact is durable with the commit that completes its job, and becomes a file later."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli import main
from coordinator.core.effects import BundleRefused
from coordinator.core.filing import AT_ONCE, HANGS_S, RETRY_S
from coordinator.jobs.records import BundleKept
from coordinator.ledger.ledger import FILE_NAME, Ledger
from tests.harness.shell import DATA, ID, Coordinator, finished, ledgers_closed, reports
from tests.harness.stored import path_in

__all__ = ["ledgers_closed"]


def disk_fault(coordinator: Coordinator) -> Any:
    """What `fleet status` says of the disk."""
    answer = coordinator.asks(m.AskStatus(id=coordinator.new_id()))
    return answer.data["coordinator"]["disk_fault"]


def fsck(folder: Path) -> int:
    """The exit code of a check of everything."""
    return main(["fsck", "--state", str(folder)])


def test_it_becomes_a_file_and_the_ledger_lets_go_of_it(tmp_path: Path) -> None:
    """What is no file yet is there all the same."""
    coordinator = finished(tmp_path)
    coordinator.tells(m.AskFetch(id="f", job="job", chunk_bytes=1024))
    assert coordinator.fetched() == DATA
    assert fsck(tmp_path) == 0
    coordinator.files()
    assert path_in(coordinator.store, ID).read_bytes() == DATA
    assert coordinator.ledger.bundle(ID) is not None
    coordinator.passes(1.5)
    assert coordinator.ledger.bundle_sizes() == {}
    assert fsck(tmp_path) == 0


def test_old_things_are_collected_while_it_waits_for_its_file(tmp_path: Path) -> None:
    """The disk may be full for long."""
    coordinator = finished(tmp_path)
    coordinator.passes(7 * 3600)
    coordinator.files()
    coordinator.passes(1.5)
    assert fsck(tmp_path) == 0


def test_a_report_without_its_bundle_is_answered_from_the_ledger(tmp_path: Path) -> None:
    """Of an agent whose broker takes small packets only: it need not offer what is there."""
    coordinator = finished(tmp_path)
    coordinator.tells(m.AskRequeue(id="r", job="job"))
    pi = coordinator.host().joins()
    job = pi.runs()
    pi.heard(m.Noted)
    pi.reports(m.Finished, job, artifact_id=ID, size_bytes=len(DATA))
    assert [one.verdict for one in pi.heard(m.Noted)] == ["stored"]
    assert coordinator.job().state == "completed"


def test_that_it_was_lost_is_not_believed_once_it_has_come_again(tmp_path: Path) -> None:
    """A report had it looked for again, which tells of a time before the ledger had it."""
    coordinator = finished(tmp_path)
    coordinator.files()
    coordinator.passes(1.5)
    path = path_in(coordinator.store, ID)
    path.unlink()  # somebody deletes it by hand
    coordinator.tells(m.AskRequeue(id="r", job="job"))
    pi = coordinator.host().joins()
    job = pi.runs()
    reports(pi, job)
    reports(pi, job)
    (look,) = coordinator.slow  # one, however often a report is repeated
    coordinator.slow.clear()
    look()
    reports(pi, job)
    (again,) = coordinator.slow
    coordinator.slow.clear()
    coordinator.handle(coordinator.inbox.popleft())
    assert reports(pi, job) == ["stored"]
    again()
    coordinator.handle(coordinator.inbox.popleft())
    coordinator.files()
    coordinator.passes(2)
    coordinator.tells(m.AskFetch(id="f", job="job", chunk_bytes=1024))
    assert coordinator.fetched() == DATA


def test_however_many_wait_a_restart_takes_some_at_a_time(tmp_path: Path) -> None:
    """After a disk was full for long there may be more than belongs into memory."""
    ledger = Ledger(tmp_path / FILE_NAME)
    many = [bytes([n % 256, n // 256]) * 9 for n in range(2 * AT_ONCE + 3)]
    kept = [BundleKept(hashlib.sha256(one).hexdigest(), one, "gbt", "oracle") for one in many]
    ledger.commit(kept)
    ledger.close()
    coordinator = Coordinator(tmp_path)
    assert len(coordinator.slow) == AT_ONCE
    coordinator.files()
    coordinator.passes(1.5)
    assert all(coordinator.store.has(one.artifact_id) for one in kept)
    assert coordinator.ledger.bundle_sizes() == {}


def test_a_disk_that_hangs_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are completed all the same; what the ledger keeps becomes files when it is back."""
    monkeypatch.setattr("coordinator.core.filing.AT_ONCE", 4)
    coordinator = Coordinator(tmp_path)
    pi = coordinator.host().joins()
    count = 10
    for number in range(count):
        job = pi.runs()
        reports(pi, job, bytes([number]) * m.MAX_SMALL_BYTES)
        assert coordinator.job().state == "completed"
        coordinator.takes_in()
        again = m.AskRequeue(id=coordinator.new_id(), job="job")
        coordinator.tells(again)
    assert len(coordinator.slow) == 4
    for _ in range(20):
        coordinator.passes(RETRY_S)
        coordinator.takes_in()
    assert len(coordinator.slow) == 4
    assert disk_fault(coordinator)["small"] == count
    for _ in range(count):
        coordinator.files()
        coordinator.passes(RETRY_S)
    assert coordinator.ledger.bundle_sizes() == {}
    assert len(coordinator.store.sizes()) == count


def test_the_status_says_how_the_disk_of_the_store_is(tmp_path: Path) -> None:
    """That it hangs, that it refuses, and nothing when all is well."""
    coordinator = finished(tmp_path)
    coordinator.passes(HANGS_S - 1)
    assert disk_fault(coordinator) is None
    coordinator.passes(1)
    assert disk_fault(coordinator) == {"code": "hangs", "silent_s": 30, "small": 1}
    coordinator.disk.full = True
    coordinator.files()
    assert disk_fault(coordinator) == {"code": "refuses", "small": 1}
    coordinator.disk.full = False
    coordinator.passes(RETRY_S)
    coordinator.files()
    assert disk_fault(coordinator) is None


def test_a_disk_that_goes_on_refusing_is_tried_every_half_minute(tmp_path: Path) -> None:
    coordinator = finished(tmp_path)
    coordinator.disk.full = True
    coordinator.files()
    coordinator.passes(RETRY_S - 1)
    coordinator.handle(BundleRefused(ID))
    coordinator.disk.full = False
    coordinator.passes(1)
    coordinator.files()
    assert coordinator.store.has(ID)
