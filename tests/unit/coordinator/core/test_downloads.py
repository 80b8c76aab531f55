"""A job goes on where an earlier attempt left off: the coordinator's side."""

from __future__ import annotations

from broker.protocol import messages as m
from coordinator.core.effects import FinishPart, PartStored
from coordinator.core.effects import SendChunk as SendDownload
from tests.harness.agent import HEX
from tests.harness.coordinator import Fleet, Host, joined, running, spec

CHECKPOINT = m.Checkpoint(artifact_id=HEX, size_bytes=2000, chunk_bytes=1024, attempt=1)


def released(fleet: Fleet, pi: Host) -> None:
    """A job is given back with a checkpoint, which comes home."""
    job = pi.runs()
    pi.gives_back(job)
    pi.uploads()
    assert fleet.took(FinishPart) == [FinishPart(HEX, "gbt", "checkpoints")]
    fleet.stored[HEX] = 2000
    fleet.handle(PartStored(HEX, 2000))


def test_a_released_job_waits_for_its_checkpoint_and_goes_on_elsewhere() -> None:
    """Nobody else is given the job before; whoever is, is told where to go on from."""
    fleet, pi, job = running()
    pi.gives_back(job)
    assert not pi.heard(m.Noted)
    other = fleet.host("other").joins()
    assert fleet.job().state == "running"
    pi.beats(refuses=(m.Why(code="leaving"),))
    pi.uploads()
    fleet.handle(PartStored(HEX, 2000))
    assert pi.heard(m.Noted)[-1].verdict == "stored"
    (assign,) = other.heard(m.Assign)
    assert assign.checkpoint.model_dump() == CHECKPOINT.model_dump() | {"chunk_bytes": 16 * 1024}


def test_an_attempt_that_gets_no_further_than_its_checkpoint_is_given_back_all_the_same() -> None:
    """It leaves off at the very bytes that it began with: the next attempt has them, none is lost.

    A repeated report of an attempt that was given back is not of the one after it.
    """
    fleet, pi = joined(spec())
    released(fleet, pi)
    for attempt in (2, 3, 4):
        job = pi.runs()
        assert (job.attempt, job.state) == (attempt, "running")
        pi.gives_back(job)
        assert pi.heard(m.Noted)[-1].verdict == "stored"
        now = fleet.job()
        assert (now.attempt, now.state, now.losses) == (attempt + 1, "claimed", 0)
        assert now.checkpoint is not None
        assert now.checkpoint.attempt == attempt
        pi.gives_back(job)
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
    fleet = Fleet(spec())
    released(fleet, fleet.host().joins())
    fleet.host().refuses()
    fleet.start()
    fleet.plan(spec())
    fleet.host("other").joins()
    (assign,) = fleet.host("other").heard(m.Assign)
    assert assign.checkpoint is not None


def test_a_requeued_job_starts_anew() -> None:
    """Who asks for it again does not want the half of it."""
    fleet, pi = joined(spec())
    released(fleet, pi)
    pi.runs()
    fleet.asks(m.AskRequeue(id="r", job="job"))
    assert fleet.job().checkpoint is None


def test_a_completed_job_has_no_checkpoint_any_more() -> None:
    fleet, pi = joined(spec())
    released(fleet, pi)
    job = pi.runs()
    report = {"artifact_id": "7c" * 32, "size_bytes": 9, "metrics": {}}
    pi.reports(m.Finished, job, **report)
    fleet.handle(PartStored("7c" * 32, 9))
    assert (fleet.job().state, fleet.job().checkpoint) == ("completed", None)


def test_a_goodbye_in_the_middle_of_it_gives_the_job_back_without() -> None:
    """The job does not wait for an agent that has gone."""
    fleet, pi, job = running()
    pi.gives_back(job)
    pi.status("offline", "goodbye")
    assert (fleet.job().state, fleet.job().checkpoint) == ("pending", None)
