"""A program is found or fetched, and its packages installed, before its trainer starts."""

from __future__ import annotations

import pytest

from agent.core import effects as fx
from agent.core.fetching import FETCH_IDLE_S
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from tests.harness import programs
from tests.harness.agent import JOB, Agent

ALLOWED = m.ProgramsAllowed(pinned=(programs.DIGEST,), environments=("none", "uv"))


def given(environment: str = "none", **more: object) -> Agent:
    """An agent that has been given a job of a program that its owner lets in."""
    agent = Agent(programs=ALLOWED)
    agent.assigned(model="fit", mode="", program=programs.program(environment=environment), **more)
    assert [one.job_id for one in agent.took(fx.FindProgram)] == [JOB]
    return agent


def released(agent: Agent) -> str:
    """Why it gives the job back; no trainer was started."""
    assert not agent.took(fx.StartTrainer)
    (report,) = agent.said(m.Released)
    assert report.why.code == "program"
    return str(report.why.text)


def test_a_program_that_the_owner_does_not_let_in_is_refused() -> None:
    agent = Agent()
    agent.assigned(model="fit", mode="", program=programs.program())
    (refused,) = agent.said(m.Refused)
    assert [one.code for one in refused.reasons] == ["no-programs"]
    assert not agent.took(fx.FindProgram)


def test_a_program_that_is_here_starts() -> None:
    agent = given()
    agent.handle(fx.ProgramFound(JOB, 1, here=True))
    assert agent.took(fx.StartTrainer)
    assert not agent.said(m.Grant)


def test_a_program_that_is_not_here_is_fetched_first() -> None:
    agent = given()
    agent.handle(fx.ProgramFound(JOB, 1))
    assert agent.said(m.Grant)[0].missing == ((0, 1),)
    topic = agent.topics.checkpoint_chunk("pi", programs.DIGEST, 0)
    agent.handle(Incoming(topic, programs.PARCEL))
    (written,) = agent.took(fx.WriteFetched)
    assert (written.offset, written.data, written.is_program) == (0, programs.PARCEL, True)
    assert agent.took(fx.InstallProgram) == [fx.InstallProgram(JOB, 1, programs.DIGEST)]
    assert agent.said(m.Stored)
    assert not agent.took(fx.StartTrainer), "it has yet to hash to its name"
    agent.handle(fx.ProgramFound(JOB, 1, here=True))
    assert agent.took(fx.StartTrainer)


def test_a_program_that_may_not_be_used_is_given_back() -> None:
    agent = given()
    agent.handle(fx.ProgramFound(JOB, 1, error="its signer was revoked"))
    assert released(agent) == "its signer was revoked"


def test_a_program_that_does_not_come_is_given_back() -> None:
    agent = given()
    agent.handle(fx.ProgramFound(JOB, 1))
    agent.passes(FETCH_IDLE_S + 1.0)
    assert "nothing came" in released(agent)
    assert agent.took(fx.GiveUpFetch)


def test_a_program_whose_job_is_cancelled_is_fetched_no_more() -> None:
    agent = given()
    agent.handle(fx.ProgramFound(JOB, 1))
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    assert agent.said(m.Stopped)
    assert agent.took(fx.GiveUpFetch)
    agent.handle(fx.ProgramFound(JOB, 1, here=True))
    assert not agent.took(fx.StartTrainer)


@pytest.mark.parametrize("error", ["", "torch==9.9 cannot be installed"])
def test_packages_are_installed_as_a_phase_of_its_own(error: str) -> None:
    agent = given("uv")
    agent.handle(fx.ProgramFound(JOB, 1, here=True))
    assert agent.took(fx.PrepareEnvironment) == [fx.PrepareEnvironment(JOB, 1, programs.DIGEST)]
    assert agent.phase() == "preparing"
    agent.handle(fx.EnvironmentReady(JOB, 1, error))
    if error:
        assert released(agent) == error
    else:
        assert agent.took(fx.StartTrainer)


def test_two_jobs_of_one_program_start_from_the_same_chunks() -> None:
    """Each asks and installs for itself; what comes is written for both."""
    other = "2c" * 32
    agent = Agent(programs=ALLOWED, slots=2)
    first = agent.assigned(model="fit", mode="", program=programs.program())
    agent.hears(first.model_copy(update={"id": "second", "job_id": other}))
    jobs = [JOB, other]
    assert [one.job_id for one in agent.took(fx.FindProgram)] == jobs
    for job_id in jobs:
        agent.handle(fx.ProgramFound(job_id, 1))
    topic = agent.topics.checkpoint_chunk("pi", programs.DIGEST, 0)
    agent.handle(Incoming(topic, programs.PARCEL))
    assert [(one.job_id, one.data) for one in agent.took(fx.WriteFetched)] == [
        (job_id, programs.PARCEL) for job_id in jobs
    ]
    assert [one.job_id for one in agent.took(fx.InstallProgram)] == jobs
    agent.handle(fx.ProgramFound(other, 1, here=True))
    assert [one.assign.job_id for one in agent.took(fx.StartTrainer)] == [other]
    agent.handle(fx.ProgramFound(JOB, 1, error="its parcel is damaged"))
    assert released(agent) == "its parcel is damaged"
    assert not agent.said(m.Stopped), "the other goes on"


def test_a_checkpoint_is_fetched_after_the_program() -> None:
    checkpoint = m.Checkpoint(
        artifact_id="5a" * 32, size_bytes=9, chunk_bytes=1024, attempt=1
    )  # fmt: skip
    agent = given(checkpoint=checkpoint)
    assert not agent.took(fx.FindCheckpoint)
    agent.handle(fx.ProgramFound(JOB, 1, here=True))
    assert agent.took(fx.FindCheckpoint)
    assert not agent.took(fx.StartTrainer)
