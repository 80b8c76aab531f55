"""What the agent owes the coordinator, until that has it."""

from __future__ import annotations

from agent.core.effects import (
    BundleChecked,
    CheckBundle,
    ClearJob,
    SendChunk,
    SpoolReport,
    StartTrainer,
    TrainerLine,
    TrainerStarted,
)
from broker.protocol import messages as m
from broker.protocol.events import Connected, Disconnected
from tests.harness.agent import HEX, JOB, Agent


def test_a_job_from_assignment_to_stored() -> None:
    """accepted, started, finished; offered when it is wanted; forgotten when it is stored."""
    agent = Agent()
    assign = agent.assigned()
    assert agent.said(m.Accepted)[0].request_id == assign.id
    (start,) = agent.took(StartTrainer)
    assert (start.slot, start.gpu) == (0, None)
    agent.handle(TrainerStarted(JOB, 1, 77))
    assert agent.said(m.Started)[0].pid == 77
    agent.handle(TrainerLine(JOB, 1, '{"event":"progress","epoch":2,"epochs":4,"train_loss":0.5}'))
    assert agent.said(m.Progress)[0].epoch == 2
    finished = agent.finishes()
    assert finished.metrics == {"auroc": 0.9}
    assert agent.took(SpoolReport)[0].report.artifact_id == HEX
    assert not agent.said(m.Offer), "offered before it was asked for"
    agent.noted(finished, "wanted")
    (offer,) = agent.said(m.Offer)
    assert (offer.size_bytes, offer.attempt) == (2000, 1)
    assert agent.phase() == "uploading"
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    assert [(chunk.offset, chunk.length) for chunk in agent.took(SendChunk)] == [(0, 2000)]
    agent.granted(m.Stored())
    assert not agent.took(ClearJob), "a grant says nothing of the attempt"
    (again,) = agent.said(m.Finished)
    agent.noted(again, "stored")
    assert agent.took(ClearJob)[0].artifact_id == HEX
    assert agent.phase() is None


def test_a_goodbye_names_the_results_that_wait_here() -> None:
    """P3: no coordinator may have heard of them. A will does not bear them."""
    agent = Agent()
    agent.runs(attempt=2)
    assert agent.core.status("offline", "goodbye", "s1").owes == ()
    finished = agent.finishes(attempt=2)
    owed = (m.OwedResult(job_id=JOB, attempt=2),)
    assert agent.core.status("offline", "goodbye", "s1").owes == owed
    assert agent.core.status("offline", "lost", "s1").owes == ()
    agent.noted(finished, "stored")
    assert agent.core.status("offline", "goodbye", "s1").owes == ()


def test_an_answer_to_another_report_changes_nothing() -> None:
    """A late answer to what was reported before must not put away what is owed now."""
    agent = Agent()
    agent.runs()
    finished = agent.finishes()
    agent.noted(finished.model_copy(update={"id": "older"}), "superseded")
    assert not agent.took(ClearJob)
    assert agent.phase() == "reporting"


def test_the_spool_is_handed_over_after_a_restart() -> None:
    """With the same report id, by the new process."""
    report = m.Finished(
        id="r9", session="old", instance="old", job_id=JOB, attempt=4, artifact_id=HEX, size_bytes=9
    )
    agent = Agent(report)
    (said,) = agent.said(m.Finished)
    assert (said.id, said.attempt, said.instance) == ("r9", 4, "i1")
    agent.assigned(4)
    assert not agent.took(StartTrainer)
    agent.noted(said, "superseded")
    assert agent.took(ClearJob)


def test_a_rejection_is_looked_into() -> None:
    """S6: not final: the bundle is checked; whole, it is reported again; broken, the job failed."""
    for whole in (True, False):
        agent = Agent()
        agent.runs()
        finished = agent.finishes()
        agent.noted(finished, "wanted")
        agent.granted(m.Rejected(reason="other hash", final=False))
        (check,) = agent.took(CheckBundle)
        agent.said(m.Finished)
        agent.handle(BundleChecked(check.job_id, check.attempt, whole))
        agent.passes(5)
        assert bool(agent.said(m.Finished)) == whole
        assert bool(agent.said(m.Failed)) == (not whole)
    agent = Agent()
    agent.runs()
    agent.noted(agent.finishes(), "wanted")
    agent.granted(m.Rejected(reason="superseded", final=True))
    assert not agent.took(ClearJob), "it may be meant for another attempt"
    agent.noted(agent.said(m.Finished)[0], "superseded")
    assert agent.took(ClearJob)


def test_a_broker_that_ends_the_connection_at_larger_messages_is_sent_smaller_ones() -> None:
    """Once may be chance; what it takes is found out without a setting, and the upload goes on."""
    agent = Agent()
    agent.assigned()
    finished = agent.finishes(size_bytes=4 << 20)
    limit_bytes, largest = 100_000, 1 << 20
    for number in range(4):
        agent.noted(finished, "wanted")
        assert agent.said(m.Offer)
        written, cut = 0, False
        while written < 256 and not cut:
            grant = m.Grant(
                missing=((written, 256),), horizon=256, window_chunks=512, span_chunks=64
            )
            agent.granted(grant)
            sent = agent.took(SendChunk)
            cut = any(chunk.length > limit_bytes for chunk in sent)
            largest = max(chunk.length for chunk in sent)
            written = max(chunk.index + chunk.length // 16384 for chunk in sent)
            agent.passes(0.01)
        if not cut:
            break
        agent.handle(Disconnected("the broker has closed the connection"))
        agent.handle(Connected(f"again{number}"))
        agent.passes(1.0)
        (finished, *_) = agent.said(m.Finished)
    assert not cut
    assert number == 2, "it gave in too soon, or too late"
    assert largest == 64 * 1024


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
