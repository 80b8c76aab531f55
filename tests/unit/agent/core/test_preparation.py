"""What an attempt needs is found or fetched, part by part, before its trainer starts."""

from __future__ import annotations

import pytest

from agent.core import effects as fx
from agent.core.fetching import FETCH_IDLE_S
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from tests.harness import programs
from tests.harness.agent import JOB, Agent

PROGRAM, DATA, INPUTS = fx.Part.PROGRAM, fx.Part.DATA, fx.Part.INPUTS
MISSING = fx.Missing(programs.DIGEST, len(programs.PARCEL), 16 * 1024)
ALLOWED = m.ProgramsAllowed(pinned=(programs.DIGEST,), environments=("none", "uv"))


def given(environment: str = "none", **more: object) -> Agent:
    """An agent that has been given a job of a program that its owner lets in."""
    agent = Agent(programs=ALLOWED)
    agent.assigned(model="fit", mode="", program=programs.program(environment=environment), **more)
    assert [one.job_id for one in agent.took(fx.FindPart)] == [JOB]
    return agent


def released(agent: Agent) -> str:
    """Why it gives the job back; no trainer was started."""
    assert not agent.took(fx.StartTrainer)
    (report,) = agent.said(m.Released)
    assert report.why.code == "program"
    assert report.why.fault is not None
    return str(report.why.fault.code)


def test_a_program_that_the_owner_does_not_let_in_is_refused() -> None:
    agent = Agent()
    agent.assigned(model="fit", mode="", program=programs.program())
    (refused,) = agent.said(m.Refused)
    assert [one.code for one in refused.reasons] == ["no-programs"]
    assert not agent.took(fx.FindPart)


def test_a_program_that_is_here_starts() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert agent.took(fx.StartTrainer)
    assert not agent.said(m.Grant)


def test_a_program_that_is_not_here_is_fetched_first() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, MISSING))
    assert agent.said(m.Grant)[0].missing == ((0, 1),)
    topic = agent.topics.checkpoint_chunk("pi", programs.DIGEST, 0)
    agent.handle(Incoming(topic, programs.PARCEL))
    (written,) = agent.took(fx.WriteFetched)
    assert (written.offset, written.data, written.part) == (0, programs.PARCEL, PROGRAM)
    assert [one.artifact_id for one in agent.took(fx.InstallPart)] == [programs.DIGEST]
    assert agent.said(m.Stored)
    assert not agent.took(fx.StartTrainer), "it has yet to hash to its name"
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert agent.took(fx.StartTrainer)


def test_a_program_that_may_not_be_used_is_given_back() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, fault=m.Fault(code="signer-revoked")))
    assert released(agent) == "signer-revoked"


def test_a_program_that_does_not_come_is_given_back() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, MISSING))
    agent.passes(FETCH_IDLE_S + 1.0)
    assert released(agent) == "not-sent"
    assert agent.took(fx.GiveUpFetch)


def test_a_host_waits_for_its_turn_for_as_long_as_it_is_told_to() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, MISSING))
    for _ in range(100):
        agent.said(m.Grant)
        agent.passes(FETCH_IDLE_S / 2)
        assert agent.said(m.Grant), "it asks again"
        agent.handle(Incoming(agent.topics.checkpoint_chunk("pi", programs.DIGEST, 0), b""))
    assert not agent.took(fx.WriteFetched)
    assert not agent.said(m.Released)
    agent.passes(FETCH_IDLE_S + 1.0)
    assert released(agent) == "not-sent", "nobody is there any more"


def test_a_program_whose_job_is_cancelled_is_fetched_no_more() -> None:
    agent = given()
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, MISSING))
    agent.hears(m.Cancel(id="c", job_id=JOB, attempt=1))
    assert agent.said(m.Stopped)
    assert agent.took(fx.GiveUpFetch)
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert not agent.took(fx.StartTrainer)


@pytest.mark.parametrize("fault", [None, m.Fault(code="not-installed", quoted="torch==9.9?")])
def test_packages_are_installed_as_a_phase_of_its_own(fault: m.Fault | None) -> None:
    agent = given("uv")
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert [one.part for one in agent.took(fx.FindPart)] == [fx.Part.ENVIRONMENT]
    assert agent.phase() == "preparing"
    agent.handle(fx.PartFound(JOB, 1, fx.Part.ENVIRONMENT, fault=fault))
    if fault is not None:
        assert released(agent) == fault.code
    else:
        assert agent.took(fx.StartTrainer)


def test_two_jobs_of_one_program_start_from_the_same_chunks() -> None:
    """Each asks and installs for itself; what comes is written for both."""
    other = "2c" * 32
    agent = Agent(programs=ALLOWED, slots=2)
    first = agent.assigned(model="fit", mode="", program=programs.program())
    agent.hears(first.model_copy(update={"id": "second", "job_id": other}))
    jobs = [JOB, other]
    assert [one.job_id for one in agent.took(fx.FindPart)] == jobs
    for job_id in jobs:
        agent.handle(fx.PartFound(job_id, 1, PROGRAM, MISSING))
    topic = agent.topics.checkpoint_chunk("pi", programs.DIGEST, 0)
    agent.handle(Incoming(topic, programs.PARCEL))
    assert [(one.job_id, one.data) for one in agent.took(fx.WriteFetched)] == [
        (job_id, programs.PARCEL) for job_id in jobs
    ]
    assert [one.job_id for one in agent.took(fx.InstallPart)] == jobs
    agent.handle(fx.PartFound(other, 1, PROGRAM))
    assert [one.assign.job_id for one in agent.took(fx.StartTrainer)] == [other]
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, fault=m.Fault(code="bad-content")))
    assert released(agent) == "bad-content"
    assert not agent.said(m.Stopped), "the other goes on"


def test_a_checkpoint_is_fetched_after_the_program() -> None:
    checkpoint = m.Checkpoint(
        artifact_id="5a" * 32, size_bytes=9, chunk_bytes=1024, attempt=1
    )  # fmt: skip
    agent = given(checkpoint=checkpoint)
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert [one.part for one in agent.took(fx.FindPart)] == [fx.Part.CHECKPOINT]
    assert not agent.took(fx.StartTrainer)


DATASET = m.Dataset(name="train", digest="d1" * 32, size_bytes=9, layout="1a" * 32, layout_bytes=5)
INPUT = m.Input(name="weights", artifact_id="a1" * 32, size_bytes=7)


def fetched(agent: Agent, part: fx.Part, artifact_id: str, data: bytes) -> None:
    """What a part lacks is asked for, comes, and is installed."""
    agent.handle(fx.PartFound(JOB, 1, part, fx.Missing(artifact_id, len(data), 1024)))
    assert agent.said(m.Grant)
    agent.handle(Incoming(agent.topics.checkpoint_chunk("pi", artifact_id, 0), data))
    assert [(one.part, one.data) for one in agent.took(fx.WriteFetched)] == [(part, data)]
    (install,) = agent.took(fx.InstallPart)
    assert (install.part, install.artifact_id) == (part, artifact_id)


def test_the_program_is_judged_before_any_data_is_fetched() -> None:
    agent = given("uv", data=(DATASET,), inputs=(INPUT,))
    for part in (PROGRAM, fx.Part.ENVIRONMENT, DATA):
        agent.handle(fx.PartFound(JOB, 1, part))
    asked = [fx.Part.ENVIRONMENT, DATA, INPUTS]
    assert [one.part for one in agent.took(fx.FindPart)] == asked
    agent.handle(fx.PartFound(JOB, 1, INPUTS))
    assert agent.took(fx.StartTrainer)


def test_a_dataset_comes_piece_by_piece_until_it_is_whole() -> None:
    """Layout and packs: each is fetched, and then it is asked what is missing still."""
    agent = given(data=(DATASET,), inputs=(INPUT,))
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    agent.took(fx.FindPart)
    fetched(agent, DATA, DATASET.layout, b"layout")
    fetched(agent, DATA, "aa" * 32, b"the first pack")
    assert agent.phase() == "fetching"
    fetched(agent, DATA, "bb" * 32, b"the second")
    assert not agent.took(fx.FindPart)
    agent.handle(fx.PartFound(JOB, 1, DATA))
    assert [one.part for one in agent.took(fx.FindPart)] == [INPUTS]
    fetched(agent, INPUTS, INPUT.artifact_id, b"weights")
    assert not agent.took(fx.StartTrainer)
    agent.handle(fx.PartFound(JOB, 1, INPUTS))
    assert agent.took(fx.StartTrainer)


@pytest.mark.parametrize(("part", "code"), [(DATA, "dataset"), (INPUTS, "input")])
@pytest.mark.parametrize("how", ["not-sent", "no-room"])
def test_data_that_cannot_be_had_gives_the_job_back(part: fx.Part, code: str, how: str) -> None:
    agent = given(data=(DATASET,), inputs=(INPUT,))
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    if part is INPUTS:
        agent.handle(fx.PartFound(JOB, 1, DATA))
    agent.handle(fx.PartFound(JOB, 1, part, MISSING))
    if how == "not-sent":
        agent.passes(FETCH_IDLE_S + 1.0)
    else:
        agent.handle(fx.PartFound(JOB, 1, part, fault=m.Fault(code=how)))
    (report,) = agent.said(m.Released)
    assert report.why.code == code
    assert report.why.fault is not None
    assert report.why.fault.code == how
    assert agent.took(fx.GiveUpFetch)
    agent.handle(fx.PartFound(JOB, 1, part))
    assert not agent.took(fx.StartTrainer)


def test_a_job_that_brings_its_data_is_no_matter_of_the_hosts_folder() -> None:
    agent = Agent(data=None)
    agent.assigned()
    assert [one.code for one in agent.said(m.Refused)[0].reasons] == ["no-data"]
    agent.assigned(2, data=(DATASET.model_copy(update={"name": "prepared"}),))
    assert agent.said(m.Accepted)
    agent.handle(fx.PartFound(JOB, 2, DATA))
    assert agent.took(fx.StartTrainer)


def test_which_datasets_are_here_is_told_when_that_changes() -> None:
    agent = Agent()
    agent.said(m.Capability)
    vitals = fx.Vitals(8 * 1024**3, "d", datasets=(DATASET.digest,))
    agent.handle(vitals)
    agent.handle(vitals)
    (told,) = agent.said(m.Capability)
    assert told.datasets == (DATASET.digest,)


def test_a_late_word_of_a_part_that_is_here_changes_nothing() -> None:
    agent = given(data=(DATASET,))
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    agent.handle(fx.PartFound(JOB, 1, PROGRAM, fault=m.Fault(code="disk")))
    assert not agent.said(m.Released)
    agent.handle(fx.PartFound(JOB, 1, PROGRAM))
    assert not agent.took(fx.StartTrainer)
    agent.handle(fx.PartFound(JOB, 1, DATA))
    assert agent.took(fx.StartTrainer)
