"""What an agent does about trainers that hang or take too long, and about a disk that refuses."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import (
    BundleFailed,
    BundleMade,
    CheckBundle,
    CheckpointFound,
    ClearJob,
    MakeBundle,
    Shutdown,
    SignalTrainer,
    StartTrainer,
    TrainerExited,
    TrainerLine,
    TrainerStarted,
    Vitals,
)
from agent.service.disk import DISK_AGAIN_S
from agent.service.shell import Shell, Surroundings
from agent.spool.bundle import BundleInfo
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import Spool
from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.events import Incoming, Outgoing
from broker.system.files import RealDisk
from tests.harness.agent import HEX, JOB, Agent


def test_a_trainer_that_takes_too_long_is_ended() -> None:
    """However busy it is; another attempt may go well."""
    agent = Agent()
    agent.runs(timeout_s=100.0)
    for _ in range(9):
        agent.passes(10)
        agent.handle(TrainerLine(JOB, 1, "epoch"))
    assert not agent.took(SignalTrainer)
    agent.passes(11)
    assert agent.took(SignalTrainer) == [SignalTrainer(JOB, 1, kill=False)]
    agent.ends(-15)
    (failed,) = agent.said(m.Failed)
    assert "timeout: it ran for longer than 100 s" in failed.error
    assert failed.transient


def test_a_trainer_that_says_nothing_is_ended() -> None:
    """Every line it puts out counts as a sign of life."""
    agent = Agent()
    agent.runs(stall_timeout_s=60.0)
    for _ in range(4):
        agent.passes(50)
        agent.handle(TrainerLine(JOB, 1, "still here"))
    assert not agent.took(SignalTrainer)
    agent.passes(61)
    assert agent.took(SignalTrainer)[0].kill is False
    agent.passes(11)
    assert agent.took(SignalTrainer)[0].kill is True
    agent.ends(-9)
    (failed,) = agent.said(m.Failed)
    assert "stalled: no output and no progress for 60 s" in failed.error


def test_a_limit_does_not_outlive_its_run() -> None:
    """Neither a cancelled run nor the next attempt is touched by the last one's limit."""
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    agent.took(SignalTrainer)
    agent.ends(-15)
    agent.runs(2, timeout_s=100.0)
    agent.passes(99)
    assert not agent.took(SignalTrainer)


def test_work_that_ends_well_in_the_last_moment_counts() -> None:
    """The signal came too late to matter."""
    agent = Agent()
    agent.runs(timeout_s=100.0)
    agent.passes(101)
    assert agent.finishes().artifact_id == HEX


@pytest.mark.parametrize(("code", "transient"), [(1, True), (-9, True), (2, False), (127, True)])
def test_an_exit_code_says_whether_another_attempt_may_go_well(code: int, transient: bool) -> None:
    """2 is the trainer's word for bad hyperparameters or data."""
    agent = Agent()
    agent.runs()
    agent.ends(code)
    assert agent.said(m.Failed)[0].transient is transient


@pytest.mark.parametrize("transient", [True, False])
def test_a_trainer_that_cannot_be_started(transient: bool) -> None:
    """A process table that is full may pass; hyperparameters that do not fit do not."""
    agent = Agent()
    agent.assigned()
    agent.took(StartTrainer)
    agent.handle(TrainerExited(JOB, 1, None, "no", transient))
    assert agent.said(m.Failed)[0].transient is transient


def test_a_finished_job_waits_for_room_on_the_disk() -> None:
    """It keeps its slot and its lease, and tries again ever more seldom; then it is handed over."""
    agent = Agent()
    agent.runs()
    agent.ends(0)
    assert agent.took(MakeBundle)
    for _ in range(3):
        agent.handle(BundleFailed(JOB, 1, "No space left on device", passing=True))
        assert not agent.said(m.Failed)
        agent.passes(40)
        assert agent.took(MakeBundle)
        assert agent.phase() == "bundling"
    agent.handle(BundleMade(JOB, 1, HEX, 2000))
    assert agent.said(m.Finished)


def test_a_job_that_waits_for_room_can_be_cancelled() -> None:
    """At once: nothing of it runs."""
    agent = Agent()
    agent.runs()
    agent.ends(0)
    agent.handle(BundleFailed(JOB, 1, "No space left on device", passing=True))
    agent.took(MakeBundle)
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    assert agent.said(m.Stopped)
    assert agent.took(ClearJob)
    agent.passes(1000)
    assert not agent.took(MakeBundle)


def test_a_cancel_may_leave_what_is_finished() -> None:
    """Of a job that was given up: its result is still handed over."""
    for finished in (False, True):
        agent = Agent()
        agent.runs()
        agent.ends(0)
        if finished:
            agent.handle(BundleMade(JOB, 1, HEX, 2000))
        agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1, keep_finished=True))
        assert agent.said(m.Stopped)
        if not finished:
            agent.handle(BundleMade(JOB, 1, HEX, 2000))
        assert agent.said(m.Finished)
        assert not agent.took(ClearJob)


def test_an_assignment_for_another_process_is_not_taken() -> None:
    """It was meant for an agent that is gone, or for a second one of this name."""
    agent = Agent()
    agent.hears(m.Assign(
        id="a", job_id=JOB, attempt=1, instance="i0", name="n", model="gbt", mode="oracle",
    ))  # fmt: skip
    assert not agent.took(StartTrainer)
    assert not agent.said(m.Refused)


def test_refusals_of_an_upload_are_followed_up_ever_more_seldom() -> None:
    """The coordinator's disk may be full for long."""
    agent = Agent()
    agent.runs()
    report = agent.finishes()
    waits = []
    for _ in range(6):
        agent.noted(report, "wanted")
        agent.granted(m.Rejected(reason="disk full", final=False))
        agent.took(CheckBundle)
        agent.said(m.Finished)
        from agent.core.effects import BundleChecked

        agent.handle(BundleChecked(JOB, 1, whole=True))
        waits.append(_seconds_until_finished(agent))
    assert waits[0] <= 2
    assert waits[-1] > 20


def _seconds_until_finished(agent: Agent) -> int:
    for second in range(1, 200):
        agent.passes(1)
        if agent.said(m.Finished):
            return second
    raise AssertionError("never reported again")


class FullDisk(RealDisk):
    """A disk that takes nothing new for a while."""

    full = True

    def open(self, path: Path, mode: str) -> Any:
        """Refuse to write."""
        if self.full and mode != "rb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, mode)

    def unlink(self, path: Path) -> None:
        """Refuse to delete."""
        if self.full:
            raise OSError(errno.EROFS, "Read-only file system")
        super().unlink(path)


class WatchedDisk(RealDisk):
    """A disk that knows what was opened."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def open(self, path: Path, mode: str) -> Any:
        """See `Disk`."""
        self.opened.append(super().open(path, mode))
        return self.opened[-1]


def test_a_worker_leaves_no_bundle_open(tmp_path: Path) -> None:
    """Those that are open are the deciding thread's: it closes them, and moves in them."""
    agent, disk = Agent(), WatchedDisk()
    works: list[Any] = []
    events: deque[Any] = deque()
    around = Surroundings(
        agent.topics, publish=lambda _: True, put=events.append, background=works.append,
        measure=lambda _: None, look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    spool = Spool(tmp_path, disk)
    shell = Shell(agent.core, around, spool, Checkpoints(tmp_path))
    agent.runs()
    out = spool.work(JOB, 1) / "out"
    out.mkdir(parents=True)
    (out / "weights").write_bytes(b"weights")
    shell.turn([TrainerExited(JOB, 1, 0)], Now(600.0, 600.0))
    for work in works:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    (made,) = (one for one in events if isinstance(one, BundleMade))
    assert len(made.data) == made.size_bytes > 0
    assert disk.opened
    assert all(file.closed for file in disk.opened)


def _broken(*_: object) -> BundleInfo:
    """A bundler with a fault that nobody has thought of."""
    raise ZeroDivisionError("a fault of ours")


def test_a_fault_while_bundling_is_the_jobs_error(tmp_path: Path) -> None:
    """The slot is free for the next job, and whoever looks at this one is told."""
    agent = Agent()
    events: deque[Any] = deque()
    around = Surroundings(
        agent.topics, publish=lambda _: True, put=events.append, background=lambda work: work(),
        measure=lambda _: None, look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    shell = Shell(agent.core, around, Spool(tmp_path, bundler=_broken), Checkpoints(tmp_path))
    agent.runs()
    shell.turn([TrainerExited(JOB, 1, 0)], Now(600.0, 600.0))
    shell.turn([events.popleft()], Now(600.0, 600.0))
    (failed,) = Spool(tmp_path).load()
    assert isinstance(failed, m.Failed)
    assert "ZeroDivisionError: a fault of ours" in failed.error
    assert not agent.core.state.runs


def test_a_fault_while_bundling_a_checkpoint_gives_the_job_back_without(tmp_path: Path) -> None:
    """Somebody else begins anew; nobody waits for this host."""
    agent = Agent()
    events: deque[Any] = deque()
    published: list[Outgoing] = []
    around = Surroundings(
        agent.topics, publish=published.append, put=events.append,
        background=lambda work: work(), measure=lambda _: None, look=lambda _: None,
        start=lambda _: None,
    )  # fmt: skip
    checkpoints = Checkpoints(tmp_path, bundler=_broken)
    shell = Shell(agent.core, around, Spool(tmp_path), checkpoints)
    agent.runs()
    checkpoints.begin(JOB, 1)
    (checkpoints.files(JOB) / "state").write_bytes(b"x")
    agent.hears(m.Release(id="r", job_id=JOB, attempt=1, why="drained by al"))
    shell.turn([TrainerExited(JOB, 1, 75)], Now(600.0, 600.0))
    shell.turn([events.popleft()], Now(600.0, 600.0))
    topic = agent.topics.response("pi")
    said = [m.decode(m.AGENT_RESPONSE, one.payload) for one in published if one.topic == topic]
    (released,) = [one for one in said if isinstance(one, m.Released)]
    assert released.artifact_id is None
    assert not agent.core.state.runs


def _weights(_folder: Path, path: Path) -> BundleInfo:
    path.write_bytes(bytes(50_000))
    return BundleInfo(hashlib.sha256(bytes(50_000)).hexdigest(), 50_000)


@pytest.mark.parametrize("left", [None, b"x"], ids=["gone", "cut short"])
def test_a_result_that_its_disk_does_not_give_back_is_no_upload_for_ever(
    tmp_path: Path, left: bytes | None
) -> None:
    """The job fails, and may be tried again; the next result is handed over in its place."""
    agent = Agent()
    events: deque[Any] = deque()
    published: list[Outgoing] = []
    around = Surroundings(
        agent.topics, publish=published.append, put=events.append,
        background=lambda work: work(), measure=lambda _: Vitals(1 << 33, "d"),
        look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    spool = Spool(tmp_path, bundler=_weights)
    shell = Shell(agent.core, around, spool, Checkpoints(tmp_path))

    def happens(event: Any) -> None:
        events.append(event)
        while events:
            shell.turn([events.popleft()], Now(600.0, 600.0))

    agent.runs()
    happens(TrainerExited(JOB, 1, 0))
    report = agent.core.state.owed[JOB].report
    assert isinstance(report, m.Finished)
    wanted = m.Noted(id="n", report_id=report.id, job_id=JOB, attempt=1, verdict="wanted")
    happens(Incoming(agent.topics.request("pi"), m.encode(wanted)))
    path = spool.bundle_path(report.artifact_id)
    path.unlink() if left is None else path.write_bytes(left)
    grant = m.Grant(missing=((0, 4),), horizon=4, window_chunks=16)
    happens(Incoming(agent.topics.grant("pi", report.artifact_id), m.encode(grant)))
    responses = [one for one in published if one.topic == agent.topics.response("pi")]
    last = m.decode(m.AGENT_RESPONSE, responses[-1].payload)
    assert isinstance(last, m.Failed)
    assert (last.error, last.transient) == (
        "the finished bundle was damaged on this host's disk before it was handed over", True
    )  # fmt: skip


def test_a_fault_while_unpacking_a_checkpoint_costs_the_checkpoint(tmp_path: Path) -> None:
    """The job starts anew; its slot does not wait for ever."""
    agent, data = Agent(), b"weights"
    artifact_id = hashlib.sha256(data).hexdigest()
    events: deque[Any] = deque()
    started: list[StartTrainer] = []

    def in_a_pool(work: Any) -> None:
        with contextlib.suppress(Exception):  # as that does whose future nobody asks
            work()

    around = Surroundings(
        agent.topics, publish=lambda _: True, put=events.append, background=in_a_pool,
        measure=lambda _: Vitals(1 << 33, "d"), look=lambda _: None, start=started.append,
    )  # fmt: skip
    checkpoints = Checkpoints(tmp_path, unpacker=_broken)
    shell = Shell(agent.core, around, Spool(tmp_path), checkpoints)
    checkpoint = m.Checkpoint(artifact_id=artifact_id, size_bytes=7, chunk_bytes=1024, attempt=1)
    agent.assigned(2, checkpoint=checkpoint)
    events.append(CheckpointFound(JOB, 2, here=False))
    events.append(Incoming(agent.topics.checkpoint_chunk("pi", artifact_id, 0), data))
    while events and not started:
        with contextlib.suppress(TypeError):  # of what was started, which is nothing here
            shell.turn([events.popleft()], Now(600.0, 600.0))
    assert started


def test_what_the_disk_refuses_it_is_asked_again(tmp_path: Path) -> None:
    """A report that could not be kept is kept, a bundle that could not be deleted is deleted."""
    agent, disk = Agent(), FullDisk()
    spool = Spool(tmp_path, disk, lambda *_: BundleInfo(HEX, 1))
    bundle = spool.bundle_path(HEX)
    bundle.write_bytes(b"x")
    around = Surroundings(
        agent.topics, publish=lambda _: True, put=lambda _: None, background=lambda _: None,
        measure=lambda _: None, look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    shell = Shell(agent.core, around, spool, Checkpoints(tmp_path))
    agent.runs()
    agent.ends(0)
    shell.turn([BundleMade(JOB, 1, HEX, 1)], Now(600.0, 600.0))
    assert not list(tmp_path.glob("spool/*.json"))
    disk.full = False
    shell.turn([], Now(601.0 + DISK_AGAIN_S, 600.0))
    assert [report.job_id for report in Spool(tmp_path).load()] == [JOB]
    disk.full = True
    cancel = m.Cancel(id="c", job_id=JOB, attempt=1)
    request = Incoming(agent.topics.request("pi"), m.encode(cancel))
    shell.turn([request], Now(700.0, 700.0))
    assert bundle.exists()
    disk.full = False
    shell.turn([Shutdown()], Now(701.0 + DISK_AGAIN_S, 700.0))
    assert not list((tmp_path / "spool").iterdir())


def test_what_was_refused_stays_refused() -> None:
    """A second copy of the assignment finds the slot free; the attempt was refused all the same."""
    agent = Agent(ram_gib=1)
    first = agent.assigned(needs=m.Needs(min_ram_gib=4))
    (refused,) = agent.said(m.Refused)
    agent.ram_gib = 8
    agent.hears(first)
    assert agent.said(m.Refused)[0].reasons == refused.reasons
    assert not agent.took(StartTrainer)
    agent.assigned(2, needs=m.Needs(min_ram_gib=4))
    assert agent.took(StartTrainer)


def test_two_jobs_with_the_very_same_result_take_it_from_none(tmp_path: Path) -> None:
    """One is handed over and cleared just when the other has made its bundle: that is there."""
    agent, other = Agent(), "b" * 64
    events: deque[Any] = deque()
    around = Surroundings(
        agent.topics, publish=lambda _: True, put=events.append, background=lambda work: work(),
        measure=lambda _: None, look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    spool = Spool(tmp_path, bundler=_weights)
    shell = Shell(agent.core, around, spool, Checkpoints(tmp_path))

    def happens(*some: Any) -> None:
        shell.turn(some, Now(600.0, 600.0))

    agent.runs()
    happens(TrainerExited(JOB, 1, 0))
    happens(events.popleft())
    first = agent.core.state.owed[JOB].report
    assign = m.Assign(
        id="a", job_id=other, attempt=1, instance="i1", name="other", model="gbt", mode="oracle",
    )  # fmt: skip
    agent.hears(assign)
    agent.handle(TrainerStarted(other, 1, 78))
    happens(TrainerExited(other, 1, 0))
    noted = m.Noted(id="n", report_id=first.id, job_id=JOB, attempt=1, verdict="stored")
    happens(Incoming(agent.topics.request("pi"), m.encode(noted)))
    assert JOB not in agent.core.state.owed
    while events:
        happens(events.popleft())
    report = agent.core.state.owed[other].report
    assert isinstance(report, m.Finished)
    assert spool.bundle_path(report.artifact_id).exists()
