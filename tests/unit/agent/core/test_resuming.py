"""Checkpoints: what a job that was given back goes on from, here or elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.core.effects import (
    BundleChecked,
    CheckpointFound,
    CheckpointInstalled,
    ClearJob,
    DropCheckpoint,
    FindCheckpoint,
    GiveUpFetch,
    InstallCheckpoint,
    Leave,
    SendChunk,
    Shutdown,
    StartTrainer,
    Vitals,
    WriteFetched,
)
from agent.service.shell import Shell, Surroundings
from agent.spool.checkpoints import KEPT_S, Checkpoints
from agent.spool.spool import Spool
from broker.clock import Now
from broker.errors import BadStream
from broker.protocol import messages as m
from broker.protocol.events import Incoming
from broker.protocol.topic_table import Kind
from coordinator.core.effects import FinishPart, PartStored
from coordinator.core.effects import SendChunk as SendDownload
from tests.harness.agent import HEX, JOB, Agent, leased
from tests.harness.coordinator import Fleet, Host, spec

CHECKPOINT = m.Checkpoint(artifact_id=HEX, size_bytes=2000, chunk_bytes=1024, attempt=1)


def chunk(agent: Agent, index: int, data: bytes) -> None:
    """A piece of the checkpoint comes."""
    agent.handle(Incoming(agent.topics.checkpoint_chunk("pi", HEX, index), data))


def fetching(**more: Any) -> Agent:
    """An agent that has been given the second attempt, and fetches what the first left off at."""
    agent = Agent()
    agent.assigned(2, checkpoint=CHECKPOINT, **more)
    assert agent.took(FindCheckpoint) == [FindCheckpoint(JOB, 2, 1)]
    agent.handle(CheckpointFound(JOB, 2, here=False))
    assert not agent.took(StartTrainer)
    return agent


# the agent


def test_an_agent_that_leaves_hands_the_checkpoint_over_first() -> None:
    """It is uploaded as a result is, and the agent's patience begins anew with it."""
    agent = Agent()
    agent.runs()
    agent.handle(Shutdown())
    agent.passes(9)
    released = agent.leaves_off(artifact_id=HEX)
    assert (released.artifact_id, released.size_bytes) == (HEX, 2000)
    agent.noted(released, "wanted", "running")
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=16))
    assert [sent.artifact_id for sent in agent.took(SendChunk)] == [HEX]
    agent.passes(30)
    assert not agent.took(Leave)
    agent.granted(m.Stored())
    agent.noted(agent.said(m.Released)[-1], "stored", "pending")
    assert agent.took(Leave)
    assert agent.took(ClearJob) == [ClearJob(JOB, 1, HEX)]
    assert not agent.took(DropCheckpoint), "the job may come back to this host"


def test_an_agent_does_not_wait_for_ever_for_its_checkpoint_to_be_taken() -> None:
    """A coordinator that is gone does not keep a machine from shutting down."""
    agent = Agent()
    agent.runs()
    agent.handle(Shutdown())
    agent.leaves_off(artifact_id=HEX)
    agent.passes(61)
    assert agent.took(Leave)


def test_a_checkpoint_that_lies_here_already_is_not_fetched() -> None:
    """The host that left off goes on at once."""
    agent = Agent()
    agent.assigned(2, checkpoint=CHECKPOINT)
    agent.handle(CheckpointFound(JOB, 2, here=True))
    assert agent.took(StartTrainer)
    assert not [one for topic, one in agent.sent if topic.kind is Kind.CHECKPOINT_GRANT]


def test_a_checkpoint_is_fetched_before_the_trainer_starts() -> None:
    """Granted, written piece by piece, installed; the heartbeat says what is going on."""
    agent = fetching()
    assert agent.phase() == "fetching"
    assert agent.said(m.Grant)[0].missing == ((0, 2),)
    chunk(agent, 1, b"y" * 976)
    chunk(agent, 0, b"x" * 1024)
    assert [(one.offset, len(one.data)) for one in agent.took(WriteFetched)] == [
        (1024, 976),
        (0, 1024),
    ]
    assert agent.took(InstallCheckpoint) == [InstallCheckpoint(JOB, 2, HEX, 1)]
    assert agent.said(m.Stored), "the sender may forget it"
    agent.handle(CheckpointInstalled(JOB, 2))
    assert agent.took(StartTrainer)


def test_what_is_lost_of_a_checkpoint_is_asked_for_again() -> None:
    """The receiver draws what is missing, as always."""
    agent = fetching()
    agent.said(m.Grant)
    chunk(agent, 0, b"x" * 1024)
    agent.passes(5)
    assert agent.said(m.Grant)[-1].missing == ((1, 2),)


@pytest.mark.parametrize("how", ["nothing comes", "it is damaged"])
def test_a_checkpoint_that_cannot_be_had_costs_time_and_not_the_job(how: str) -> None:
    """The job starts anew, and its log says why."""
    agent = fetching()
    if how == "nothing comes":
        agent.passes(61)
    else:
        agent.handle(CheckpointInstalled(JOB, 2, "does not hash to its id"))
    assert agent.took(StartTrainer)
    assert agent.took(GiveUpFetch)
    lines = [said for topic, said in agent.sent if topic.kind is Kind.LOG]
    assert b"starts anew" in lines[0]
    chunk(agent, 0, b"x" * 1024)
    assert not agent.took(WriteFetched), "what comes now is late"


def test_a_job_that_is_cancelled_while_it_fetches_ends_at_once() -> None:
    """There is no trainer that would have to end."""
    agent = fetching()
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=2))
    assert agent.said(m.Stopped)
    assert agent.took(GiveUpFetch)
    assert agent.took(DropCheckpoint)
    agent.handle(CheckpointInstalled(JOB, 2))
    assert not agent.took(StartTrainer)


def test_an_agent_that_leaves_while_it_fetches_gives_the_job_back() -> None:
    """Nothing new was left off; what there is, the coordinator has."""
    agent = fetching()
    agent.handle(Shutdown())
    assert agent.said(m.Released)[0].artifact_id is None


@pytest.mark.parametrize(("state", "dropped"), [("failed", True), ("pending", False)])
def test_a_checkpoint_is_kept_as_long_as_the_job_may_go_on(state: str, *, dropped: bool) -> None:
    """A retry goes on where the failed attempt had been; a job that is over needs nothing."""
    agent = Agent()
    agent.runs()
    agent.ends(1)
    agent.noted(agent.said(m.Failed)[0], "recorded", state)
    assert bool(agent.took(DropCheckpoint)) == dropped


def test_a_checkpoint_that_rots_before_it_is_handed_over_is_left_out() -> None:
    """The job is given back all the same."""
    agent = Agent()
    agent.runs()
    agent.handle(Shutdown())
    agent.noted(agent.leaves_off(artifact_id=HEX), "wanted", "running")
    agent.granted(m.Rejected(reason="another hash", final=False))
    agent.handle(BundleChecked(JOB, 1, whole=False))
    assert agent.said(m.Released)[-1].artifact_id is None


# the coordinator


def released(fleet: Fleet, pi: Host) -> None:
    """A job is given back with a checkpoint, which comes home."""
    job = pi.runs()
    pi.reports(m.Released, job, reason="shut down", artifact_id=HEX, size_bytes=2000)
    pi.uploads(job)
    assert fleet.took(FinishPart) == [FinishPart(HEX, "gbt", "checkpoints")]
    fleet.stored[HEX] = 2000
    fleet.handle(PartStored(HEX, 2000))


def test_a_released_job_waits_for_its_checkpoint_and_goes_on_elsewhere() -> None:
    """Nobody else is given the job before; whoever is, is told where to go on from."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.reports(m.Released, job, reason="shut down", artifact_id=HEX, size_bytes=2000)
    assert pi.heard(m.Noted)[-1].verdict == "wanted"
    other = fleet.host("other").joins()
    assert fleet.job().state == "running"
    pi.beats(refuses="it is shutting down")
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    pi.reports(m.Released, job, reason="shut down", artifact_id=HEX, size_bytes=2000)
    assert pi.heard(m.Noted)[-1].verdict == "stored"
    (assign,) = other.heard(m.Assign)
    assert assign.checkpoint.model_dump() == CHECKPOINT.model_dump() | {"chunk_bytes": 16 * 1024}


def test_an_attempt_that_gets_no_further_than_its_checkpoint_is_given_back_all_the_same() -> None:
    """It leaves off at the very bytes that it began with: the next attempt has them, none is lost.

    A repeated report of an attempt that was given back is not of the one after it.
    """
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    released(fleet, pi)
    for attempt in (2, 3, 4):
        job = pi.runs()
        assert (job.attempt, job.state) == (attempt, "running")
        pi.reports(m.Released, job, reason="snoozed", artifact_id=HEX, size_bytes=2000)
        assert pi.heard(m.Noted)[-1].verdict == "stored"
        now = fleet.job()
        assert (now.attempt, now.state, now.losses) == (attempt + 1, "claimed", 0)
        assert now.checkpoint is not None
        assert now.checkpoint.attempt == attempt
        pi.reports(m.Released, job, reason="snoozed", artifact_id=HEX, size_bytes=2000)
        assert pi.heard(m.Noted)[-1].verdict == "stored"
        assert fleet.job() == now


def test_a_checkpoint_flows_to_the_host_that_has_the_job_and_to_nobody_else() -> None:
    """A host cannot have what is not its job's."""
    fleet = Fleet(spec())
    released(fleet, fleet.host().joins())
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=16)
    fleet.host("other").says(fleet.topics.checkpoint_grant("other", HEX), grant)
    assert not fleet.took(SendDownload)
    fleet.host().says(fleet.topics.checkpoint_grant("pi", HEX), grant)
    (sent,) = fleet.took(SendDownload)
    assert sent.topic == fleet.topics.checkpoint_chunk("pi", HEX, 0)
    fleet.host().says(fleet.topics.checkpoint_grant("pi", HEX), m.Stored())
    assert not fleet.core.world.downloads


def test_a_checkpoint_outlives_the_coordinator() -> None:
    """It is in the ledger."""
    fleet = Fleet(spec())
    released(fleet, fleet.host().joins())
    fleet.host().reports(m.Refused, fleet.job(), request_id="r", reasons=("full",))
    fleet.start()
    fleet.plan(spec())
    fleet.host("other").joins()
    (assign,) = fleet.host("other").heard(m.Assign)
    assert assign.checkpoint is not None


def test_a_requeued_job_starts_anew() -> None:
    """Who asks for it again does not want the half of it."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    released(fleet, pi)
    pi.runs()
    fleet.asks(m.AskRequeue(id="r", job="job"))
    assert fleet.job().checkpoint is None


def test_a_completed_job_has_no_checkpoint_any_more() -> None:
    """It may be deleted."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    released(fleet, pi)
    job = pi.runs()
    report = {"artifact_id": "7c" * 32, "size_bytes": 9, "metrics": {}}
    pi.reports(m.Finished, job, **report)
    fleet.handle(PartStored("7c" * 32, 9))
    assert (fleet.job().state, fleet.job().checkpoint) == ("completed", None)


def test_a_goodbye_in_the_middle_of_it_gives_the_job_back_without() -> None:
    """The job does not wait for an agent that has gone."""
    fleet = Fleet(spec())
    pi = fleet.host().joins()
    job = pi.runs()
    pi.reports(m.Released, job, reason="shut down", artifact_id=HEX, size_bytes=2000)
    pi.status("offline", "goodbye")
    assert (fleet.job().state, fleet.job().checkpoint) == ("pending", None)


# the disk


def test_a_checkpoint_travels_from_one_disk_to_another(tmp_path: Path) -> None:
    """The same files come out, and are known to be of that attempt."""
    there, here = Checkpoints(tmp_path / "a"), Checkpoints(tmp_path / "b")
    assert not there.begin(JOB, 1)
    (there.files(JOB) / "state.json").write_text("{}", "utf-8")
    (tmp_path / "spool").mkdir()
    info = there.bundle(JOB, tmp_path / "spool")
    assert info is not None
    data = (tmp_path / "spool" / f"{info.artifact_id}.tar.zst").read_bytes()
    assert not here.is_here(JOB, 1)
    here.write(JOB, 2, 5, data[5:])
    here.write(JOB, 2, 0, data[:5])
    here.install(JOB, 2, info.artifact_id, 1)
    assert here.is_here(JOB, 1)
    assert not here.is_here(JOB, 2), "a later attempt has left off elsewhere since"
    assert here.begin(JOB, 2)
    assert (here.files(JOB) / "state.json").read_text("utf-8") == "{}"
    assert not list((tmp_path / "b" / "checkpoints").glob("*.fetching"))


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

    around = Surroundings(
        agent.topics, publish=lambda _: True, put=events.append, background=slow.append,
        measure=lambda _: None, look=lambda _: None, start=start,
    )  # fmt: skip
    shell = Shell(agent.core, around, Spool(tmp_path / "here"), here)
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


def test_a_checkpoint_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    """What lay there before stays."""
    kept = Checkpoints(tmp_path)
    kept.begin(JOB, 1)
    (kept.files(JOB) / "state.json").write_text("mine", "utf-8")
    kept.write(JOB, 3, 0, b"not what was meant")
    with pytest.raises(BadStream, match="hash"):
        kept.install(JOB, 3, HEX, 2)
    assert (kept.files(JOB) / "state.json").read_text("utf-8") == "mine"


def test_checkpoints_of_jobs_that_never_came_back_are_collected(tmp_path: Path) -> None:
    """After a week; those of others stay."""
    kept = Checkpoints(tmp_path)
    other = "2c" * 32
    for job_id in (JOB, other):
        kept.begin(job_id, 1)
        (kept.files(job_id) / "state.json").write_text("{}", "utf-8")
    _is_old(kept, JOB, "state.json")
    kept.collect(KEPT_S + 1)
    assert not kept.is_here(JOB, 1)
    assert kept.is_here(other, 1)


def _is_old(kept: Checkpoints, job_id: str, *files: str) -> None:
    """An attempt was given the folder, and wrote these files, in 1970."""
    folder = kept.files(job_id)
    for path in (folder.parent / "attempt", *(folder / name for name in files)):
        os.utime(path, (0, 0))


def test_what_a_long_training_left_off_at_outlives_a_power_cut(tmp_path: Path) -> None:
    """The attempt began more than a week ago; what it wrote is new."""
    kept = Checkpoints(tmp_path)
    kept.begin(JOB, 1)
    (kept.files(JOB) / "training.checkpoint").write_bytes(b"of a minute ago")
    _is_old(kept, JOB)
    os.utime(kept.files(JOB) / "training.checkpoint", (KEPT_S, KEPT_S))
    again = Checkpoints(tmp_path)
    again.collect(KEPT_S + 60)
    assert again.begin(JOB, 2), "it has nothing to go on from"


def test_an_agent_that_runs_for_weeks_collects_checkpoints_too(tmp_path: Path) -> None:
    """Not only at its start; and not from under a trainer that writes none."""
    agent, kept = Agent(), Checkpoints(tmp_path)
    around = Surroundings(
        agent.topics, publish=lambda _: True, put=lambda _: None, background=lambda _: None,
        measure=lambda _: None, look=lambda _: None, start=lambda _: None,
    )  # fmt: skip
    shell = Shell(agent.core, around, Spool(tmp_path), kept)
    agent.runs()
    other, half = "2c" * 32, tmp_path / "checkpoints" / ("3d" * 32)
    kept.begin(JOB, 1)
    kept.begin(other, 1)
    half.mkdir()  # a crash came before its marker
    for job_id in (JOB, other):
        _is_old(kept, job_id)
    shell.turn([], Now(600.0, 600.0))
    assert kept.files(other).exists(), "it may come back"
    shell.turn([], Now(600.0 + KEPT_S, 600.0 + KEPT_S))
    assert not kept.files(other).exists()
    assert not half.exists()
    assert kept.files(JOB).exists()
