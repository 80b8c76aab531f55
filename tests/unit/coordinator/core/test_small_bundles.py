"""A small artifact travels with its report: no offer, no grant, no chunk, and one answer."""

from __future__ import annotations

import base64
import hashlib

import pytest

from agent.core.effects import BundleMade, ClearJob, MakeBundle, SpoolReport
from broker.protocol import messages as m
from broker.protocol.events import Incoming
from coordinator.core.effects import AppendIndex, StoreBundle
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
    assert not agent.said(m.Offer)


def test_a_coordinator_that_does_not_take_it_so_is_offered_it() -> None:
    """An older one, or one whose disk has refused."""
    agent = Agent()
    agent.runs()
    finished = finishes(agent)
    agent.noted(finished, "wanted")
    assert agent.said(m.Offer)[0].size_bytes == len(DATA)
    agent.handle(Incoming(agent.topics.grant("pi", ID), m.encode(m.Stored())))
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
    assert fleet.took(AppendIndex)
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
    assert not fleet.took(StoreBundle)
    assert [one.verdict for one in fleet.host().heard(m.Noted)] == ["wanted"]
