"""A small artifact travels with its report: no grant, no chunk, and one answer."""

from __future__ import annotations

import base64
import hashlib

import pytest

from agent.core.effects import BundleMade, ClearJob, MakeBundle, SendChunk, SpoolReport
from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.core.effects import FileBundles, OpenPart
from coordinator.jobs.records import BundleKept
from tests.harness.agent import JOB, Agent
from tests.harness.coordinator import Fleet, spec

DATA = b"weights" * 40
ID = hashlib.sha256(DATA).hexdigest()


def finishes(agent: Agent, data: bytes = DATA, job_id: str = JOB) -> m.Finished:
    """Its job ends well, and the bundle that is made is `data`."""
    agent.ends(0)
    assert agent.took(MakeBundle)
    agent.handle(BundleMade(job_id, 1, ID, len(data), data))
    return agent.said(m.Finished)[0]


def test_the_report_bears_the_bundle_until_it_is_noted() -> None:
    """As often as it is repeated; what is kept on the disk has the bundle as a file already."""
    agent = Agent()
    agent.runs()
    finished = finishes(agent)
    assert base64.b64decode(finished.bundle) == DATA
    assert not agent.took(SpoolReport)[0].report.bundle
    agent.passes(20)
    assert {one.bundle for one in agent.said(m.Finished)} == {finished.bundle}
    agent.noted(finished, "stored")
    assert agent.took(ClearJob)[0].artifact_id == ID


def test_a_coordinator_that_does_not_take_it_so_grants_it() -> None:
    """Then it takes the stream, and the report does not bear it any more."""
    agent = Agent()
    agent.runs()
    finishes(agent)
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
    agent.handle(Incoming(agent.topics.grant("pi", ID), m.encode(grant)))
    assert agent.took(SendChunk)[0].length == len(DATA)
    agent.passes(6)
    assert not agent.said(m.Finished)[0].bundle


def test_a_broker_with_small_packets_is_spared() -> None:
    """What does not fit into a chunk, in base64, goes by the stream."""
    agent = Agent()
    data = bytes(agent.core.state.settings.chunk_bytes * 3 // 4 + 1)
    agent.runs()
    assert not finishes(agent, data).bundle


def reported(fleet: Fleet, **more: object) -> None:
    """A host runs the job and reports it finished, with a bundle."""
    pi = fleet.host().joins()
    job = pi.runs()
    fields = {"artifact_id": ID, "size_bytes": len(DATA), "bundle": base64.b64encode(DATA).decode()}
    pi.heard(m.Noted)
    pi.reports(m.Finished, job, **{**fields, **more})


def test_one_commit_completes_the_job_and_keeps_its_artifact() -> None:
    """The agent hears of it once, without asking."""
    fleet = Fleet(spec())
    reported(fleet)
    assert fleet.bundles == [BundleKept(ID, DATA, "gbt", "oracle")]
    assert fleet.job().state == "completed"
    assert [one.verdict for one in fleet.host().heard(m.Noted)] == ["stored"]


@pytest.mark.parametrize(
    "more",
    [
        {"bundle": "no base64!"},
        {"size_bytes": 7},
        {"bundle": ""},
        {"bundle": base64.b64encode(DATA[::-1]).decode()},
    ],
)
def test_a_bundle_that_does_not_fit_is_asked_for(more: dict[str, object]) -> None:
    fleet = Fleet(spec())
    reported(fleet, **more)
    assert not fleet.took(FileBundles)
    assert not fleet.host().heard(m.Noted)
    assert fleet.took(OpenPart)
