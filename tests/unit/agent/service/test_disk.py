"""What the shell does on the disk, and what it says of it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import (
    BundleMade,
    Missing,
    Part,
    PartFound,
    Shutdown,
    StartTrainer,
    Task,
    TrainerExited,
    TrainerStarted,
    Vitals,
)
from agent.service.disk import DISK_AGAIN_S
from agent.spool.checkpoints import KEPT_S, Checkpoints
from agent.spool.spool import Spool
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from broker.system.bundle import BundleInfo
from broker.system.files import RealDisk
from tests.harness.agent import HEX, JOB, Agent, leased
from tests.harness.agent_shell import AgentShell, shell_of
from tests.harness.kinds import kinds


class FullDisk(RealDisk):
    """A disk that takes nothing new for a while."""

    full = True

    def open(self, path: Path, mode: str) -> Any:
        if self.full and mode != "rb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, mode)

    def unlink(self, path: Path) -> None:
        if self.full:
            raise OSError(errno.EROFS, "Read-only file system")
        super().unlink(path)


class WatchedDisk(RealDisk):
    """A disk that knows what was opened."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def open(self, path: Path, mode: str) -> Any:
        self.opened.append(super().open(path, mode))
        return self.opened[-1]


def test_a_worker_leaves_no_bundle_open(tmp_path: Path) -> None:
    """Those that are open are the deciding thread's: it closes them, and moves in them."""
    disk, works = WatchedDisk(), list[Any]()
    shell = AgentShell(tmp_path, spool=Spool(tmp_path, disk), background=works.append)
    shell.agent.runs()
    out = shell.spool.work(JOB, 1) / "out"
    out.mkdir(parents=True)
    (out / "weights").write_bytes(b"weights")
    shell.happens(TrainerExited(JOB, 1, 0))
    for work in works:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    (made,) = (one for one in shell.events if isinstance(one, BundleMade))
    assert len(made.data) == made.size_bytes > 0
    assert disk.opened
    assert all(file.closed for file in disk.opened)


def _broken(*_: object) -> BundleInfo:
    """A bundler with a fault that nobody has thought of."""
    raise ZeroDivisionError("a fault of ours")


def test_a_fault_while_bundling_is_the_jobs_error(tmp_path: Path) -> None:
    shell = AgentShell(tmp_path, spool=Spool(tmp_path, bundler=_broken))
    shell.agent.runs()
    shell.happens(TrainerExited(JOB, 1, 0))
    (failed,) = Spool(tmp_path).load()
    assert isinstance(failed, m.Failed)
    assert "ZeroDivisionError: a fault of ours" in failed.error
    assert not shell.agent.core.state.runs


def test_a_fault_while_bundling_a_checkpoint_gives_the_job_back_without(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, bundler=_broken)
    shell = AgentShell(tmp_path, checkpoints=checkpoints)
    shell.agent.runs()
    checkpoints.begin(JOB, 1)
    (checkpoints.files(JOB) / "state").write_bytes(b"x")
    shell.hears(m.Release(id="r", job_id=JOB, attempt=1, why=m.Why(code="drained")))
    shell.happens(TrainerExited(JOB, 1, 75))
    (released,) = shell.agent.said(m.Released)
    assert released.artifact_id is None
    assert not shell.agent.core.state.runs


def _weights(_folder: Path, path: Path) -> BundleInfo:
    path.write_bytes(bytes(50_000))
    return BundleInfo(hashlib.sha256(bytes(50_000)).hexdigest(), 50_000)


@pytest.mark.parametrize("left", [None, b"x"], ids=["gone", "cut short"])
def test_a_result_that_its_disk_does_not_give_back_is_no_upload_for_ever(
    tmp_path: Path, left: bytes | None
) -> None:
    """The job fails, and may be tried again; the next result is handed over in its place."""
    shell = AgentShell(tmp_path, spool=Spool(tmp_path, bundler=_weights))
    agent = shell.agent
    agent.runs()
    shell.happens(TrainerExited(JOB, 1, 0))
    (report,) = agent.said(m.Finished)
    path = shell.spool.bundle_path(report.artifact_id)
    path.unlink() if left is None else path.write_bytes(left)
    grant = m.Grant(missing=((0, 4),), horizon=4, window_chunks=16)
    shell.happens(Incoming(agent.topics.grant("pi", report.artifact_id), m.encode(grant)))
    assert not agent.said(m.Finished)
    last = agent.said(m.Failed)[-1]
    assert (last.error, last.transient) == (
        "the finished bundle was damaged on this host's disk before it was handed over", True
    )  # fmt: skip


def unbundled(tmp_path: Path, *names: str) -> str:
    """A trainer writes files of these names, of which no bundle is made; the error of its job."""
    shell = AgentShell(tmp_path)
    shell.agent.runs()
    (shell.spool.work(JOB, 1) / "out").mkdir(parents=True)
    for name in names:
        (shell.spool.work(JOB, 1) / "out" / name).write_text(name)
    shell.happens(TrainerExited(JOB, 1, 0))
    report = shell.agent.core.state.owed[JOB].report
    assert isinstance(report, m.Failed)
    assert (report.kind, report.transient) == ("unbundled", False), "another attempt is no better"
    return report.error


def test_a_trainer_that_writes_nothing_fails_and_nothing_is_kept_of_it(tmp_path: Path) -> None:
    assert "--out-dir" in unbundled(tmp_path)
    assert not (tmp_path / "refused").exists()


@pytest.mark.posix  # its system cannot store them
def test_what_no_bundle_may_hold_is_kept_where_the_reason_says(tmp_path: Path) -> None:
    kept = Path(unbundled(tmp_path, "model", "a\nb").rpartition("for 7 days: ")[2])
    assert (kept / "out" / "model").read_text() == "model"
    assert kept.parent == tmp_path / "refused"


def test_a_fault_while_unpacking_a_checkpoint_costs_the_checkpoint(tmp_path: Path) -> None:
    data = b"weights"
    artifact_id = hashlib.sha256(data).hexdigest()

    def in_a_pool(work: Any) -> None:
        with contextlib.suppress(Exception):  # as that does whose future nobody asks
            work()

    checkpoints = Checkpoints(tmp_path, unpacker=_broken)
    shell = AgentShell(tmp_path, checkpoints=checkpoints, background=in_a_pool)
    checkpoint = m.Checkpoint(artifact_id=artifact_id, size_bytes=7, chunk_bytes=1024, attempt=1)
    shell.agent.assigned(2, checkpoint=checkpoint)
    shell.happens(PartFound(JOB, 2, Part.CHECKPOINT, Missing(artifact_id, 7, 1024)))
    topic = shell.agent.topics.checkpoint_chunk("pi", artifact_id, 0)
    shell.happens(Incoming(topic, data))
    assert shell.started


def test_what_the_disk_refuses_it_is_asked_again(tmp_path: Path) -> None:
    disk = FullDisk()
    shell = AgentShell(tmp_path, spool=Spool(tmp_path, disk, lambda *_: BundleInfo(HEX, 1)))
    bundle = shell.spool.bundle_path(HEX)
    bundle.write_bytes(b"x")
    shell.agent.runs()
    shell.agent.ends(0)
    shell.happens(BundleMade(JOB, 1, HEX, 1))
    assert not list(tmp_path.glob("spool/*.json"))
    disk.full = False
    shell.passes(1.0 + DISK_AGAIN_S)
    assert [report.job_id for report in Spool(tmp_path).load()] == [JOB]
    disk.full = True
    shell.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    assert bundle.exists()
    disk.full = False
    shell.agent.mono_s += 1.0 + DISK_AGAIN_S
    shell.happens(Shutdown())
    assert not list((tmp_path / "spool").iterdir())


def test_two_jobs_with_the_very_same_result_take_it_from_none(tmp_path: Path) -> None:
    """One is handed over and cleared just when the other has made its bundle: that is there."""
    other, shell = "b" * 64, AgentShell(tmp_path, spool=Spool(tmp_path, bundler=_weights))
    agent = shell.agent
    agent.runs()
    shell.happens(TrainerExited(JOB, 1, 0))
    first = agent.core.state.owed[JOB].report
    assign = m.Assign(
        id="a", job_id=other, attempt=1, instance="i1", name="other", model="gbt", mode="oracle",
    )  # fmt: skip
    agent.hears(assign)
    agent.handle(TrainerStarted(other, 1, 78))
    noted = m.Noted(id="n", report_id=first.id, job_id=JOB, attempt=1, verdict="stored")
    for event in (
        TrainerExited(other, 1, 0),
        Incoming(agent.topics.request("pi"), m.encode(noted)),
    ):
        shell.shell.turn([event], agent.now)
    assert JOB not in agent.core.state.owed
    shell.happens()
    report = agent.core.state.owed[other].report
    assert isinstance(report, m.Finished)
    assert shell.spool.bundle_path(report.artifact_id).exists()


def test_two_jobs_that_left_off_at_the_same_bytes_both_go_on_there(tmp_path: Path) -> None:
    """A host with two slots fetches them at once: the one's is not the other's to put away."""
    made = Checkpoints(tmp_path / "there")
    made.begin(JOB, 1)
    (made.files(JOB) / "state.json").write_text("{}", "utf-8")
    (tmp_path / "spool").mkdir()
    info = made.bundle(JOB, tmp_path / "spool")
    assert info is not None
    data = (tmp_path / "spool" / f"{info.artifact_id}.tar.zst").read_bytes()
    left_off = m.Checkpoint(
        artifact_id=info.artifact_id, size_bytes=len(data), chunk_bytes=1024, attempt=1
    )
    agent, here = Agent(slots=2), Checkpoints(tmp_path / "here")
    started: list[bool] = []
    events: list[Any] = []
    slow: list[Any] = []  # is done when a turn is over, as by another thread

    def start(effect: StartTrainer) -> Any:
        started.append(here.is_here(effect.assign.job_id, 1))
        raise OSError("that is all that is asked")

    shell = shell_of(
        agent.core,
        Spool(tmp_path / "here"),
        here,
        put=events.append,
        background=slow.append,
        start=start,
    )
    for job_id in (JOB, "2c" * 32):
        assign = m.Assign(
            id=agent.new_id(), job_id=job_id, attempt=2, instance="i1", name="job", model="gbt",
            mode="oracle", checkpoint=left_off,
        )  # fmt: skip
        events.append(Incoming(agent.topics.request("pi"), m.encode(assign)))
    events.append(Vitals(8 << 30, "d"))
    shell.turn(list(events), agent.now)
    events[:] = [*events[3:], leased(agent.core)]
    chunk_topic = agent.topics.checkpoint_chunk("pi", info.artifact_id, 0)
    for late in ([], [Incoming(chunk_topic, data)], []):
        taken, events[:] = [*events, *late], []
        shell.turn(taken, agent.now)
        while slow:
            slow.pop(0)()
    shell.turn(list(events), agent.now)
    assert started == [True, True]
    assert not list((tmp_path / "here" / "checkpoints").glob("*.fetching"))


def _is_old(kept: Checkpoints, job_id: str, *files: str) -> None:
    """An attempt was given the folder, and wrote these files, in 1970."""
    folder = kept.files(job_id)
    for path in (folder.parent / "attempt", *(folder / name for name in files)):
        os.utime(path, (0, 0))


def test_an_agent_that_runs_for_weeks_collects_checkpoints_too(tmp_path: Path) -> None:
    """Not only at its start; and not from under a trainer that writes none."""
    kept = Checkpoints(tmp_path)
    shell = AgentShell(tmp_path, checkpoints=kept)
    shell.agent.runs()
    other, half = "2c" * 32, tmp_path / "checkpoints" / ("3d" * 32)
    kept.begin(JOB, 1)
    kept.begin(other, 1)
    half.mkdir()  # a crash came before its marker
    for job_id in (JOB, other):
        _is_old(kept, job_id)
    shell.shell.turn([], Now(600.0, 600.0))
    assert kept.files(other).exists(), "it may come back"
    shell.shell.turn([], Now(600.0 + KEPT_S, 600.0 + KEPT_S))
    assert not kept.files(other).exists()
    assert not half.exists()
    assert kept.files(JOB).exists()


def test_every_effect_is_performed(tmp_path: Path) -> None:
    """One that the table lacks would end the agent."""
    assert kinds(Task) <= AgentShell(tmp_path).shell._by_kind.keys()
