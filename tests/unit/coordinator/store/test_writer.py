"""Part files on a thread of their own, in order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.core import effects as fx
from coordinator.core.uploads import ABANDONED_S
from coordinator.store.store import Store
from coordinator.store.writer import Intake
from tests.harness.shell import Coordinator, ledgers_closed
from tests.harness.stored import path_in

__all__ = ["ledgers_closed"]
CHUNK = 1024
CONTENT = bytes(range(256)) * 16
IDENTITY = hashlib.sha256(CONTENT).hexdigest()


class Threads:
    """What is to be done on other threads, done when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Any] = []
        self.waiting: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.store = Store(folder)
        self.intake = Intake(self.store, self.told.append, self.waiting.append, self.later.append)

    def write(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def take(self) -> list[Any]:
        told, self.told[:] = list(self.told), []
        return told


def piece(index: int) -> fx.WriteChunk:
    return fx.WriteChunk(IDENTITY, index, CONTENT[index * CHUNK : (index + 1) * CHUNK])


def test_an_artifact_goes_through_in_order(tmp_path: Path) -> None:
    """Opened, written, finished: nothing is done on the thread that decides."""
    threads = Threads(tmp_path)
    threads.intake.do(fx.OpenPart(IDENTITY, len(CONTENT), CHUNK, 1))
    for index in range(4):
        threads.intake.do(piece(index))
    assert not threads.told
    threads.write()
    opened, *written = threads.take()
    assert isinstance(opened, fx.PartOpened)
    assert written == [fx.PartWritten(IDENTITY, 1, CHUNK)] * 4
    threads.intake.do(fx.FinishPart(IDENTITY, "gbt", "oracle"))
    threads.write()
    assert not threads.told, "fsync and the last check would hold up the other parts"
    threads.later.pop()()
    assert threads.take() == [fx.PartStored(IDENTITY, len(CONTENT))]
    assert path_in(threads.store, IDENTITY).read_bytes() == CONTENT


def test_what_nobody_wants_any_more_leaves_nothing(tmp_path: Path) -> None:
    """Chunks that come after it are dropped."""
    threads = Threads(tmp_path)
    threads.intake.do(fx.OpenPart(IDENTITY, len(CONTENT), CHUNK, 1))
    threads.intake.do(piece(0))
    threads.intake.do(fx.DropPart(IDENTITY))
    threads.intake.do(piece(1))
    threads.write()
    assert [type(one) for one in threads.take()] == [fx.PartOpened, fx.PartWritten]
    assert not list((tmp_path / "incoming").iterdir())


@pytest.mark.posix  # a file opened to be read is not synced there
def test_a_disk_that_refuses_is_told_and_the_part_kept(tmp_path: Path) -> None:
    """The next go begins where it stood."""
    threads = Threads(tmp_path)
    threads.intake.do(fx.OpenPart(IDENTITY, len(CONTENT), CHUNK, 1))
    threads.intake.do(piece(0))
    threads.write()
    threads.take()
    part = threads.intake._parts[IDENTITY][1]
    part._file.close()
    part._file = (tmp_path / "incoming" / f"{IDENTITY}.part").open("rb")  # takes no writes
    threads.intake.do(piece(1))
    threads.intake.do(piece(2))
    threads.write()
    (failed,) = threads.take()
    assert isinstance(failed, fx.PartFailed)
    threads.intake.do(fx.OpenPart(IDENTITY, len(CONTENT), CHUNK, 2))
    threads.write()
    (opened,) = threads.take()
    assert isinstance(opened, fx.PartOpened)
    assert 0 in opened.have
    threads.intake.close()


def test_the_end_leaves_parts_for_a_later_go(tmp_path: Path) -> None:
    """A restart goes on with what was written."""
    threads = Threads(tmp_path)
    threads.intake.do(fx.OpenPart(IDENTITY, len(CONTENT), CHUNK, 1))
    threads.intake.do(piece(0))
    threads.write()
    threads.intake.close()
    part, have = Store(tmp_path).open_part(IDENTITY, len(CONTENT), CHUNK)
    part.close()
    assert list(have) == [(0, 1)]


def _open_files(folder: Path) -> list[str]:
    return [one.path for one in psutil.Process().open_files() if str(folder) in one.path]


def test_what_nobody_sends_any_more_is_closed_and_kept_for_a_later_go(tmp_path: Path) -> None:
    """A host that never comes back would cost an open file, and its disk space, for good."""
    coordinator = Coordinator(tmp_path)
    before = {*_open_files(tmp_path)}
    pi = coordinator.host().joins()
    job = pi.runs()
    about = {"artifact_id": IDENTITY, "size_bytes": len(CONTENT), "chunk_bytes": CHUNK}
    pi.reports(m.Finished, job, **about)
    coordinator.files()
    topic = coordinator.topics.chunk("pi", IDENTITY, 0)
    coordinator.handle(Incoming(topic, CONTENT[:CHUNK]))
    coordinator.files()
    (part,) = {*_open_files(tmp_path)} - before
    os.utime(part, (2e9, 2e9))  # by the coordinator's clock it is young
    for _ in range(40):
        pi.beats((job.job_id, 1, "reporting"))
        coordinator.passes(ABANDONED_S / 36)
        coordinator.files()
    assert {*_open_files(tmp_path)} == before
    pi.reports(m.Finished, job, **about)
    coordinator.files()
    grants = [said for _, said in coordinator.sent if isinstance(said, m.Grant)]
    assert grants[-1].missing == ((1, 4),), "it goes on where it stood"
    coordinator.shell.close()
