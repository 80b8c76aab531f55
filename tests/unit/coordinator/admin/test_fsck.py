"""`fleet fsck` on real state folders: each fault is found, and mended only where that is safe."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol.messages import Blob, DataOffer, Offer, Program, ProgramOffer, TrainerInfo
from broker.system.files import FolderLock
from coordinator.cli import main
from coordinator.core.stored_artifacts import index_row
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.plan_entries import CHECKPOINTS, DATASETS, PROGRAMS
from coordinator.jobs.records import PushedRecord, PushedRemoved, Record
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.store.store import BUNDLE, Store
from tests.harness.coordinator import spec
from tests.harness.stored import hex_of, put

NOW = Now(1.0, 1.8e9)
OLD_S = 8 * 24 * 3600.0


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

    @property
    def index(self) -> Path:
        return self.root / "models" / "index.jsonl"


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
            store.index.append(index_row(job, len(data)))
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
    assert {*state.findings("--repair")} == {
        ("damaged", "moves it to bundle.tar.zst.damaged"), ("missing", None),
        ("index", "rewrites the index"),
    }  # fmt: skip
    assert bundle.with_name(f"{BUNDLE}.damaged").read_bytes() == b"rot"
    assert not bundle.exists()
    rows = [json.loads(line)["attempt"] for line in state.index.read_text("utf-8").splitlines()]
    assert rows == [1], "of second, whose attempt 2 has no artifact"
    assert state.findings("--repair") == [("missing", None), ("missing", None)]
    ledger = Ledger(state.root / FILE_NAME)
    assert ledger.load()[state.ids["first"]].state == "completed"
    ledger.close()


def damage(*, replace: tuple[str, str] | None = None, more: bytes = b"", cut: int = 0) -> Any:
    def spoil(index: bytes) -> bytes:
        old, new = replace or ("", "")
        lines = index.replace(old.encode(), new.encode()) if old else index
        return lines[: len(lines) - cut] + more

    return spoil


def of_another(**fields: Any) -> Any:
    """Return what adds a row that differs so from the first: no ledger knows its result."""

    def spoil(index: bytes) -> bytes:
        row = json.loads(index.splitlines()[0])
        return index + json.dumps(row | fields).encode() + b"\n"

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage(cut=20), ["line 3 is torn", "lacks job second, attempt 2"]),
        (damage(cut=1), ["line 3 is torn", "lacks job second, attempt 2"]),
        (damage(more=b"[1]\n"), ["line 4 is torn or no row"]),
        (damage(more=b"\xff\x00\n"), ["line 4 is torn or no row"]),
        (damage(replace=('"host": "pi"', '"host": "po"')),
         ["line 1 does not agree with the ledger in host", "line 3"]),
        (damage(more=b'{"artifact_id": "\\u001b[2J", "job_id": "x"}\n'),
         ["line 4 names artifact '\\x1b[2J'"]),
        (lambda index: index + index, ["line 4 repeats", "line 5 repeats", "line 6 repeats"]),
        (damage(replace=('"n": 2', '"n": 5')), ["line 3 does not agree with the ledger in metr"]),
        (of_another(attempt=2), ["line 4 names a result of attempt 2, of which"]),
        (of_another(job_id="ef" * 32), ["line 4 names a result of attempt 1, of which"]),
    ],
)  # fmt: skip
def test_the_index_is_rebuilt(
    state: State, spoil: Callable[[bytes], bytes], words: list[str]
) -> None:
    """Torn, foreign, wrong, repeated and lost rows are told one by one, and gone after a repair.

    So are those of results that came after the backup of which the ledger is.
    """
    good = state.index.read_bytes()
    state.index.write_bytes(spoil(good))
    code, text = state.fsck("--repair")
    lines = [line for line in text.splitlines() if line.startswith("index: ")]
    assert (code, len(lines)) == (0, len(words)), text
    for line, word in zip(lines, words):
        assert word in line
        assert line.endswith("; repaired: rewrites the index")
    assert state.findings() == []
    told = state.index.read_bytes().replace(b'"po"', b'"pi"')  # nobody knows attempt 1 of second
    assert told == good


def test_an_index_that_was_lost_is_written_anew(state: State) -> None:
    """An artifact of which neither that nor the ledger tells is named and kept.

    It may be all that is left of a ledger that was lost.
    """
    state.index.unlink()
    assert state.findings("--repair") == [
        ("index", "rewrites the index"), ("index", "rewrites the index"), ("unreferenced", None)
    ]  # fmt: skip
    assert state.findings() == [("unreferenced", None)]
    code, text = state.fsck("--repair")
    assert (code, state.bundles["second.1"].exists()) == (1, True)
    assert re.search(r"unreferenced: models/gbt_oracle/\w{64}/bundle.tar.zst: neither", text)
    assert "--repair" not in text


def test_what_changes_as_time_passes_is_no_fault(state: State) -> None:
    """A row of the index is what was true when the artifact came; old events are let go."""
    state.sql('UPDATE jobs SET spec = replace(spec, \'"name":"first"\', \'"name":"renamed"\')')
    ledger = Ledger(state.root / FILE_NAME)
    assert ledger.prune_events(1, "2100-01-01T00:00:00.000Z") == 10
    ledger.close()
    assert state.findings() == []


@pytest.mark.parametrize(
    ("table", "change", "where", "words"),
    [
        ("jobs", "attempt = 7", "name = 'second'", "attempt 2, the row has 7"),
        ("jobs", "host = 'po'", "name = 'first'", "host pi, the row has po"),
        ("events", "seq = 99", "event = 'requeued'", "event before led to completed"),
        ("events", "attempt = 3", "event = 'assigned' AND attempt = 2", "attempt 3 after 1"),
        ("events", "attempt = 0", "event = 'requeued'", "attempt 0 after 1"),
        ("events", "to_state = 'running'", "event = 'assigned'", "from pending to running"),
        ("events", "host = 'po'", "event = 'started'", "host po, the event before had pi"),
        ("events", "host = NULL", "event = 'assigned'", "claimed without a host"),
        ("events", "event = 'vanished'", "event = 'requeued'", "'vanished' is not a valid Event"),
        ("events", "event = 'added', from_state = NULL, to_state = 'pending'", "event = 'requeued'",
         "a job is added once"),
        ("events", "job_id = (SELECT max(job_id) FROM jobs)", "true", "no events"),
    ],
)  # fmt: skip
def test_a_history_that_does_not_give_its_row_is_told(
    state: State, table: str, change: str, where: str, words: str
) -> None:
    """Nobody can say which of the two is right, so nothing is repaired."""
    state.sql(f"UPDATE {table} SET {change} WHERE {where}")  # noqa: S608 - ours
    code, text = state.fsck("--repair")
    assert code == 1
    assert "history: job " in text
    assert words in text
    assert all("repair" not in line for line in text.splitlines() if "history: " in line)


def age(path: Path, by_s: float) -> None:
    """Make a file look as if it had been written that long ago."""
    moment = time.time() - by_s
    os.utime(path, (moment, moment))


@pytest.mark.words
def test_what_crashes_have_left_is_cleared_away(state: State) -> None:
    """Stale parts, lists of chunks that promise too much, half-written files."""
    incoming = state.root / "incoming"
    store = Store(state.root)
    part, _ = store.open_part("5a" * 32, 3000, 1024)
    part.write(0, b"x" * 1024)
    part.close()
    assert state.findings() == []  # an upload that goes on tomorrow

    age(part.path, OLD_S)
    listed = incoming / f"{'6b' * 32}.json"
    listed.write_text('{"size_bytes": 5000, "chunk_bytes": 1024, "have": [[0, 2]]}', "utf-8")
    listed.with_suffix(".part").write_bytes(b"x" * 1500)
    (incoming / f"{'7c' * 32}.json").write_text("{}", "utf-8")
    (incoming / f"{'8d' * 32}.json").write_text("{}", "utf-8")
    (incoming / f"{'8d' * 32}.part").write_bytes(b"x")
    again = incoming / f"{state.bundles['first.1'].parent.name}.part"
    again.write_bytes(b"x")
    (state.root / f"{FILE_NAME}.v1.making").write_bytes(b"half")
    code, text = state.fsck("--repair")
    assert code == 0, text
    for words in (
        "5a.part: untouched for 8 days", "6b.json: claims 2048 bytes, the part file has 1500",
        "7c.json: its part file is not there", "8d.json: cannot be read",
        "its artifact is in the store", "v1.making: left by a crash", ": 6 findings",
    ):  # fmt: skip
        assert words in text
    left = sorted(path.name for path in incoming.iterdir())
    assert left == [f"{'6b' * 32}.part", f"{'8d' * 32}.part"]  # uploads that start over
    assert state.findings() == []


@pytest.mark.words
def test_a_log_of_an_unknown_job_is_told(state: State) -> None:
    """Logs of jobs and of services are none of it."""
    logs = state.root / "logs"
    logs.mkdir()
    for name in (f"{state.ids['first']}.1.log", "coordinator.log", f"{'9e' * 32}.1.log"):
        (logs / name).write_text("epoch 1\n", "utf-8")
    code, text = state.fsck()
    assert code == 1
    assert f"log: logs/{'9e' * 32}.1.log: the ledger does not know its job" in text
    assert ": 1 finding\n" in text


def test_while_a_coordinator_is_at_work_fsck_only_looks(state: State) -> None:
    """`--repair` is refused with exit code 2; what is just being made is not called a fault."""
    put(Store(state.root), b"just arrived")
    with state.index.open("ab") as file:
        file.write(b'{"half')
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
    assert {"unreferenced", "index"} < set(dict(state.findings()))


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
    """A disk that fails today may be read tomorrow: its row stays in the index."""
    bundle = state.bundles["second.1"]
    bundle.unlink()
    bundle.mkdir()
    before = state.index.read_bytes()
    code, text = state.fsck("--repair")
    assert code == 1
    assert "cannot be read: Is a directory; look after the disk" in text
    assert state.index.read_bytes() == before


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
