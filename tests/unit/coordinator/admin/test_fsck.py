"""`fleet fsck` on real state folders: each fault is found, and mended only where that is safe."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol.messages import Blob, DataOffer, Offer, Program, ProgramOffer, TrainerInfo
from broker.system.files import FolderLock
from coordinator.cli import main
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.plan_entries import CHECKPOINTS, DATASETS, PROGRAMS
from coordinator.jobs.records import PushedRecord, PushedRemoved, Record
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.store.store import BUNDLE, Store
from tests.harness.coordinator import spec
from tests.harness.stored import hex_of, put

NOW = Now(1.0, 1.8e9)


@dataclass
class State:
    """A coordinator's state folder with two completed jobs and a pending one."""

    root: Path
    bundles: dict[str, Any]
    ids: dict[str, str]
    capsys: pytest.CaptureFixture[str]

    def fsck(self, *flags: str) -> tuple[int, str]:
        """Run it; return the exit code and what it printed."""
        code = main(["fsck", "--state", str(self.root), *flags])
        said = self.capsys.readouterr()
        return code, said.out + said.err

    def findings(self, *flags: str) -> list[tuple[str, str | None]]:
        """Return kind and repair of each finding; the exit code says whether there are any."""
        code, text = self.fsck("--json", *flags)
        found = json.loads(text)
        assert found["ok"] == (code == 0)
        return [(one["kind"], one["repair"]) for one in found["findings"]]

    def sql(self, statement: str) -> None:
        with closing(sqlite3.connect(self.root / FILE_NAME, isolation_level=None)) as database:
            database.execute(statement)

    def files(self) -> dict[Path, bytes]:
        """Return what is in every file, but for the lock and what readers of the ledger leave."""
        own = ("lock", f"{FILE_NAME}-wal", f"{FILE_NAME}-shm")
        return {
            path: path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and path.name not in own
        }


@pytest.fixture
def state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> State:
    """As a coordinator leaves it: one of the jobs was requeued and completed again."""
    root, bundles, ids = tmp_path / "state", {}, {}
    store = Store(root)
    ledger, book = Ledger(root / FILE_NAME), JobBook()
    for name in ("first", "second"):
        job = book.add(spec(name), NOW, "test")
        ids[name] = job.job_id
        for attempt in range(1, 3 if name == "second" else 2):
            data = f"{name} {attempt}".encode()
            artifact_id = put(store, data)
            bundles[f"{name}.{attempt}"] = store.path_of(artifact_id)
            job = book.move(job, Event.ASSIGNED, NOW, "test", host="pi", attempt=attempt)
            job = book.move(job, Event.STARTED, NOW, "test")
            job = book.move(
                job, Event.COMPLETED, NOW, "test", artifact_id=artifact_id, metrics={"n": attempt}
            )
            if name == "second" and attempt == 1:
                job = book.move(job, Event.REQUEUED, NOW, "test", host=None)
    book.add(spec("third"), NOW, "test")
    ledger.commit(book.take_changes())
    ledger.close()
    return State(root, bundles, ids, capsys)


@pytest.mark.words
def test_a_folder_that_is_in_order_is_clean(state: State) -> None:
    """No finding, nothing changed; an earlier attempt's artifact and a checkpoint are no faults."""
    before = state.files()
    assert state.fsck() == (0, "3 jobs, 3 artifacts (0.0 MiB hashed): 0 findings\n")
    assert state.files() == before
    put(Store(state.root), b"half a model", CHECKPOINTS)
    said = "3 jobs, 3 artifacts, 1 checkpoint (0.0 MiB hashed): 0 findings\n"
    assert state.fsck() == (0, said)
    found = json.loads(state.fsck("--json")[1])
    assert (found["artifacts"], found["checkpoints"], found["findings"]) == (3, 1, [])


@pytest.mark.system
def test_whoever_reads_only_the_first_line_is_told_of_no_fault(state: State) -> None:
    """`fleet fsck | head -1`: whoever reads has gone, as after every other verb."""
    ends = os.pipe()
    os.close(ends[0])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", "fsck", "--state", str(state.root)],
            stdout=ends[1], stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(ends[1])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_whose_artifact_is_damaged_or_missing_is_named_with_the_remedy(state: State) -> None:
    """The job's state is left alone: whether to train it again is for a person to say."""
    bundle = state.bundles["first.1"]
    bundle.write_bytes(b"rot")
    state.bundles["second.2"].unlink()
    code, text = state.fsck()
    assert (code, bundle.exists()) == (1, True)
    assert f"fleet requeue {state.ids['first'][:12]}" in text
    assert f"fleet requeue {state.ids['second'][:12]}` trains second again" in text
    assert "--repair moves it to bundle.tar.zst.damaged" in text
    repair = "moves it to bundle.tar.zst.damaged"
    assert state.findings("--repair") == [("missing", None), ("damaged", repair)]
    assert bundle.with_name(f"{BUNDLE}.damaged").read_bytes() == b"rot"
    assert not bundle.exists()
    assert state.findings("--repair") == [("missing", None), ("missing", None)]
    ledger = Ledger(state.root / FILE_NAME)
    assert ledger.load()[state.ids["first"]].state == "completed"
    ledger.close()


def test_an_artifact_of_which_the_ledger_does_not_tell_is_named_and_kept(state: State) -> None:
    """It may be all that is left of a ledger that was lost."""
    extra = put(Store(state.root), b"of another ledger")
    assert state.findings("--repair") == [("unreferenced", None)]
    code, text = state.fsck("--repair")
    assert (code, Store(state.root).has(extra)) == (1, True)
    assert re.search(r"unreferenced: models.gbt_oracle.\w{64}.bundle.tar.zst: no job", text)
    assert "--repair" not in text


@pytest.mark.words
def test_a_log_of_an_unknown_job_is_told(state: State) -> None:
    """Logs of jobs and of services are none of it."""
    logs = state.root / "logs"
    logs.mkdir()
    for name in (f"{state.ids['first']}.1.log", "coordinator.log", f"{'9e' * 32}.1.log"):
        (logs / name).write_text("epoch 1\n", "utf-8")
    code, text = state.fsck()
    assert code == 1
    assert f"log: {Path('logs', '9e' * 32)}.1.log: the ledger does not know its job" in text
    assert ": 1 finding\n" in text


def test_while_a_coordinator_is_at_work_fsck_only_looks(state: State) -> None:
    """`--repair` is refused with exit code 2; what is just being made is not called a fault."""
    put(Store(state.root), b"just arrived")
    lock = FolderLock(state.root, "coordinator")
    before = state.files()
    code, text = state.fsck("--repair")
    assert code == 2
    assert "another coordinator" in text
    code, text = state.fsck()
    assert (code, state.files()) == (0, before)
    assert "a coordinator is at work" in text
    state.bundles["first.1"].write_bytes(b"rot")
    assert "damaged" in dict(state.findings())
    lock.release()
    assert {kind for kind, _ in state.findings()} == {"damaged", "unreferenced"}


def test_a_ledger_that_cannot_be_read_is_the_finding(state: State) -> None:
    """With the remedy; and a folder without one is told apart from a damaged one."""
    path = state.root / FILE_NAME
    path.write_bytes(b"no database" * 1000)
    code, text = state.fsck()
    assert code == 1
    assert text.startswith(f"ledger: {FILE_NAME}: ")
    assert "restore a backup" in text
    path.unlink()
    code, text = state.fsck()
    assert code == 2
    assert "name the coordinator's folder by --state" in text


def test_an_artifact_that_cannot_be_read_is_left_alone(state: State) -> None:
    """A disk that fails today may be read tomorrow."""
    bundle = state.bundles["second.1"]
    bundle.unlink()
    bundle.mkdir()
    code, text = state.fsck("--repair")
    assert code == 1
    assert re.search("cannot be read: .+; look after the disk", text)
    assert bundle.is_dir()


BLOB = hex_of(b"parcel")
PROGRAM = ProgramOffer(
    name="fit",
    trainer=TrainerInfo(hyper_schema={}, program=Program(digest=BLOB, size_bytes=6)),
)
DATASET = DataOffer(
    name="fit", digest="d1" * 32, size_bytes=1, files=1, layout=Blob(BLOB, 6), packs=()
)


@pytest.mark.parametrize(("offer", "folder"), [(PROGRAM, PROGRAMS), (DATASET, DATASETS)])
def test_what_was_pushed_keeps_its_bytes_and_those_that_are_lost_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offer: Offer, folder: str
) -> None:
    def commit(record: Record) -> None:
        with closing(Ledger(tmp_path / FILE_NAME)) as ledger:
            ledger.commit([record])

    state, store = State(tmp_path, {}, {}, capsys), Store(tmp_path)
    commit(PushedRecord(offer, NOW.text(), "operator:ann"))
    assert state.findings() == [("missing", None)], "it was never stored"
    put(store, b"parcel", folder)
    assert state.findings() == []
    commit(PushedRemoved(offer.title))
    assert state.findings() == [("unreferenced", None)]
