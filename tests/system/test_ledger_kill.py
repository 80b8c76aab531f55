"""The ledger under SIGKILL: each transaction is whole or absent, none is lost.

As a program (`python -m tests.system.test_ledger_kill FOLDER`) this file is the writer: it forks
itself for each point at which it is to be killed, and each fork writes to a file of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.errors import StorageError
from coordinator.jobs.jobs import Change, JobBook
from coordinator.jobs.records import HostRecord
from coordinator.jobs.states import Event
from coordinator.ledger import database
from coordinator.ledger.ledger import Ledger
from tests.harness.coordinator import spec
from tests.harness.fleet import ROOT
from tests.harness.replay import contradiction

# A migration that some later version might bring.
NEXT = (*database.scripts(), "ALTER TABLE hosts ADD COLUMN note TEXT")
NAMES = ("one", "two", "three")
BATCHES = 6

pytestmark = pytest.mark.posix  # needs fork and SIGKILL


def batches() -> Iterator[list[Change | HostRecord]]:
    """What a coordinator commits in one small life: each list is one transaction."""
    book, now = JobBook(), Now(1.0, 1.8e9)
    jobs = [book.add(spec(name), now, "test") for name in NAMES]
    yield [*book.take_changes()]
    jobs = [book.move(job, Event.ASSIGNED, now, "test", host="pi", attempt=1) for job in jobs]
    yield [*book.take_changes(), HostRecord("pi", at=now.text(), who="test")]
    jobs = [book.move(job, Event.STARTED, now, "test", "x" * 5000) for job in jobs]
    yield [*book.take_changes()]
    book.move(jobs[0], Event.COMPLETED, now, "test", artifact_id="ab" * 32, metrics={"auroc": 0.7})
    yield [*book.take_changes()]
    book.move(jobs[1], Event.RETRIED, now, "test", host=None, failures=1, not_before=now.text())
    failed = book.move(jobs[2], Event.FAILED, now, "test", error="boom")
    quarantine = HostRecord("pi", quarantine=("a", "b"), at=now.text(), who="test")
    yield [*book.take_changes(), quarantine]
    book.move(failed, Event.REQUEUED, now, "test", host=None)
    yield [*book.take_changes()]


def contents(ledger: Ledger) -> dict[str, Any]:
    """Everything that a ledger remembers, as plain values."""
    jobs = ledger.load()
    return {
        "jobs": {job.spec.name: dataclasses.asdict(job) for job in jobs.values()},
        "hosts": {name: dataclasses.asdict(one) for name, one in ledger.load_hosts().items()},
        "events": {job.spec.name: ledger.events(job.job_id) for job in jobs.values()},
    }


def write(path: Path, acknowledged: Path) -> None:
    """Open the ledger and commit every batch; add a byte to `acknowledged` for each that is in."""
    ledger = Ledger(path)
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for batch in batches():
        ledger.commit(batch)
        os.write(descriptor, b".")
    ledger.prune_events(1, "2100-01-01T00:00:00.000Z")
    os.write(descriptor, b".")
    ledger.close()
    os.close(descriptor)


class Killer:
    """Ends this process when its n-th statement is about to be carried out, or counts them."""

    def __init__(self, point: int | None) -> None:
        self.point = point
        self.seen = 0
        self._connect = sqlite3.connect

    def connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        """Connect as sqlite3 does, and look on."""
        connection = self._connect(*args, **kwargs)
        connection.set_trace_callback(self.step)
        return connection

    def step(self, _statement: str = "") -> None:
        """A statement begins, or everything is over."""
        if self.seen == self.point:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


def killed_writer(folder: Path, point: int | None, *, old: bool) -> int:
    """Write in `folder`, killed at `point`; return how many points there are."""
    folder.mkdir()
    path = folder / "l.db"
    if old:
        database.open_file(str(path), database.scripts()).close()
        database.scripts = lambda: NEXT  # type: ignore[assignment]
    killer = Killer(point)
    sqlite3.connect = killer.connect  # type: ignore[assignment]
    write(path, folder / "acknowledged")
    killer.step()
    return killer.seen


def main(root: Path, *, old: bool) -> int:
    """Kill a fork of this process at every point in turn; print how many there were."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(killed_writer(root / "whole", None, old=old)).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    points = int(os.read(reader, 100))
    for point in range(points):
        if os.fork() == 0:
            killed_writer(root / str(point), point, old=old)
            os._exit(0)
        _, status = os.wait()
        assert os.WIFSIGNALED(status), f"point {point} was not reached"
        assert os.WTERMSIG(status) == signal.SIGKILL
    sys.stdout.write(f"{points}\n")
    return 0


def run(root: Path, *arguments: str) -> int:
    """Run this file as a program; return how often it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.test_ledger_kill", str(root), *arguments],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def moments(path: Path) -> list[dict[str, Any]]:
    """What the ledger holds before the first transaction and after each."""
    ledger = Ledger(path)
    found = [contents(ledger)]
    for batch in batches():
        ledger.commit(batch)
        found.append(contents(ledger))
    ledger.prune_events(1, "2100-01-01T00:00:00.000Z")
    found.append(contents(ledger))
    ledger.close()
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("start", ["new", "old"])
def test_a_ledger_survives_sigkill_at_every_statement(
    tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.db"
    if start == "old":
        monkeypatch.setattr(database, "scripts", lambda: NEXT)
    expected = moments(model)
    assert len(expected) == BATCHES + 2
    points = run(tmp_path, *(["old"] if start == "old" else []))
    assert points > 60
    seen = set()
    for point in range(points):
        folder = tmp_path / str(point)
        said = folder / "acknowledged"
        acknowledged = said.stat().st_size if said.exists() else 0
        ledger = Ledger(folder / "l.db")  # checks integrity and foreign keys
        found = contents(ledger)
        for job in ledger.load().values():
            assert contradiction(job, ledger.events(job.job_id)) == ""
        ledger.close()
        assert found in expected[acknowledged : acknowledged + 2], f"killed at statement {point}"
        seen.add(expected.index(found))
    assert seen == set(range(len(expected)))


def test_a_backup_holds_what_was_in_when_it_began(tmp_path: Path) -> None:
    killed_at = run(tmp_path) - 4  # within the last transaction
    model = moments(tmp_path / "model.db")
    for name, expected in (("whole", model[-1]), (str(killed_at), model[-2])):
        copy = tmp_path / f"{name}.backup"
        living = Ledger(tmp_path / name / "l.db") if name == "whole" else None
        assert database.back_up(tmp_path / name / "l.db", copy) == len(NAMES)
        if living is not None:
            living.close()
        assert [path.name for path in tmp_path.glob(f"{copy.name}*")] == [copy.name]
        restored = Ledger(shutil.copyfile(copy, tmp_path / "restored.db"))
        assert contents(restored) == expected
        restored.close()
        with pytest.raises(StorageError, match="exists already"):
            database.back_up(tmp_path / name / "l.db", copy)


def test_a_copy_that_cannot_be_made_is_not_blamed_on_the_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path / "l.db").close()
    (tmp_path / "file").touch()
    for folder in ("nowhere", "file"):
        target = tmp_path / folder / "copy.db"
        with pytest.raises(StorageError, match=str(target)):
            database.back_up(tmp_path / "l.db", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "l.db"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), old=sys.argv[2:] == ["old"]))
