"""What the agent owes the coordinator, until that has it."""

from __future__ import annotations

from agent.core import effects as fx
from agent.core.output import TELL_S
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Disconnected, Incoming
from tests.harness.agent import HEX, JOB, Agent


def test_a_job_from_assignment_to_stored() -> None:
    agent = Agent()
    assign = agent.assigned()
    assert agent.said(m.Accepted)[0].request_id == assign.id
    (start,) = agent.took(fx.StartTrainer)
    assert (start.slot, start.gpu) == (0, None)
    agent.handle(fx.TrainerStarted(JOB, 1, 77))
    assert agent.said(m.Started)[0].pid == 77
    agent.handle(
        fx.TrainerLine(JOB, 1, '{"event":"progress","epoch":2,"epochs":4,"train_loss":0.5}')
    )
    agent.passes(TELL_S)
    assert agent.said(m.Progress)[0].epoch == 2
    finished = agent.finishes()
    assert finished.metrics == {"auroc": 0.9}
    assert agent.took(fx.SpoolReport)[0].report.artifact_id == HEX
    assert (finished.size_bytes, finished.chunk_bytes) == (2000, 16384)
    assert not agent.took(fx.SendChunk), "sent before it was asked for"
    agent.granted(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4))
    assert [(chunk.offset, chunk.length) for chunk in agent.took(fx.SendChunk)] == [(0, 2000)]
    assert agent.core.state.held()[0].phase == "uploading"
    agent.passes(3)
    assert not agent.said(m.Finished), "it is repeated while the upload goes on"
    agent.granted(m.Stored())
    assert not agent.took(fx.ClearJob), "a grant says nothing of the attempt"
    agent.noted(finished, "stored")
    assert agent.took(fx.ClearJob)[0].artifact_id == HEX
    assert agent.phase() is None


def test_a_goodbye_names_the_results_that_wait_here() -> None:
    """P3: no coordinator may have heard of them. A will does not bear them."""
    agent = Agent()
    agent.runs(attempt=2)
    assert agent.core.goodbye().owes == ()
    finished = agent.finishes(attempt=2)
    owed = (m.OwedResult(job_id=JOB, attempt=2),)
    assert agent.core.goodbye().owes == owed
    assert agent.core.will("s1").owes == ()
    agent.noted(finished, "stored")
    assert agent.core.goodbye().owes == ()


def test_an_answer_to_another_report_changes_nothing() -> None:
    """A late answer to what was reported before must not put away what is owed now."""
    agent = Agent()
    agent.runs()
    finished = agent.finishes()
    agent.noted(finished.model_copy(update={"id": "older"}), "superseded")
    assert not agent.took(fx.ClearJob)
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
    assert not agent.took(fx.StartTrainer)
    agent.noted(said, "superseded")
    assert agent.took(fx.ClearJob)


def test_a_rejection_is_looked_into() -> None:
    """S6: the bundle is checked; whole, it is reported again; broken, the job failed."""
    for whole in (True, False):
        agent = Agent()
        agent.runs()
        agent.finishes()
        agent.granted(m.Rejected(reason="corrupt"))
        (check,) = agent.took(fx.CheckBundle)
        agent.said(m.Finished)
        agent.handle(fx.BundleChecked(check.job_id, check.attempt, whole))
        agent.passes(5)
        assert bool(agent.said(m.Finished)) == whole
        assert bool(agent.said(m.Failed)) == (not whole)


def test_a_broker_that_ends_the_connection_at_larger_messages_is_sent_smaller_ones() -> None:
    """Once may be chance; what it takes is found out without a setting, and the upload goes on."""
    agent = Agent()
    agent.assigned()
    agent.finishes(size_bytes=4 << 20)
    limit_bytes, largest = 100_000, 1 << 20
    for number in range(4):
        written, cut = 0, False
        while written < 256 and not cut:
            grant = m.Grant(
                missing=((written, 256),), horizon=256, window_chunks=512, span_chunks=64
            )
            agent.granted(grant)
            sent = agent.took(fx.SendChunk)
            cut = any(chunk.length > limit_bytes for chunk in sent)
            largest = max(chunk.length for chunk in sent)
            written = max(chunk.index + chunk.length // 16384 for chunk in sent)
            agent.passes(0.01)
        if not cut:
            break
        agent.handle(Disconnected("the broker has closed the connection"))
        agent.handle(Connected(f"again{number}"))
        assert agent.said(m.Finished)
    assert not cut
    assert number == 2, "it gave in too soon, or too late"
    assert largest == 64 * 1024


def test_refusals_of_an_upload_are_followed_up_ever_more_seldom() -> None:
    """The coordinator's disk may be full for long."""
    agent = Agent()
    agent.runs()
    agent.finishes()
    waits = []
    for _ in range(6):
        agent.granted(m.Rejected(reason="corrupt"))
        agent.took(fx.CheckBundle)
        agent.said(m.Finished)
        agent.handle(fx.BundleChecked(JOB, 1, whole=True))
        waits.append(_seconds_until_finished(agent))
    assert waits[0] <= 2
    assert waits[-1] > 20


def test_the_next_artifact_is_announced_when_one_is_stored() -> None:
    """The coordinator takes few at once of a host, and does not answer the others."""
    about = {"session": "old", "instance": "old", "attempt": 1, "size_bytes": 9}
    reports = [
        m.Finished(id=f"r{n}", job_id=f"{n}" * 64, artifact_id=f"{n}" * 64, **about)
        for n in range(3)
    ]
    agent = Agent(*reports)
    agent.said(m.Finished)
    for report in reports[:2]:
        topic = agent.topics.grant("pi", report.artifact_id)
        grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
        agent.handle(Incoming(topic, m.encode(grant)))
    first = reports[0]
    agent.hears(m.Noted(
        id="n", report_id="r0", job_id=first.job_id, attempt=1, verdict="stored"
    ))  # fmt: skip
    assert [one.id for one in agent.said(m.Finished)] == ["r2"]


def _seconds_until_finished(agent: Agent) -> int:
    for second in range(1, 200):
        agent.passes(1)
        if agent.said(m.Finished):
            return second
    raise AssertionError("never reported again")
