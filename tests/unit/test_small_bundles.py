"""A small artifact travels with its report: no offer, no grant, no chunk, and one answer."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from agent.core.effects import BundleMade, ClearJob, MakeBundle, SpoolReport
from broker.errors import BadStream, StorageError
from broker.protocol import messages as m
from broker.protocol.events import Incoming
from coordinator.core.effects import AppendIndex, StoreBundle
from coordinator.jobs.records import BundleKept
from coordinator.store.store import Store
from tests.harness.agent import JOB, Agent
from tests.harness.coordinator import Fleet, spec
from tests.harness.disks import FullDisk

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
    """By the stream, which checks it piece by piece."""
    fleet = Fleet(spec())
    reported(fleet, **more)
    assert not fleet.took(StoreBundle)
    assert [one.verdict for one in fleet.host().heard(m.Noted)] == ["wanted"]


def test_the_store_takes_what_hashes_to_its_id(tmp_path: Path) -> None:
    """And finds it again; nothing of it is left on the way in."""
    store = Store(tmp_path)
    with pytest.raises(BadStream):
        store.put("ab" * 32, DATA, "gbt", "oracle")
    for _ in range(2):
        store.put(ID, DATA, "gbt", "oracle")
    path = store.path_of(ID)
    assert path is not None
    assert path.read_bytes() == DATA
    assert Store(tmp_path).sizes() == {ID: len(DATA)}
    assert not list((tmp_path / "incoming").iterdir())


def test_a_disk_that_refuses_leaves_the_store_without_it(tmp_path: Path) -> None:
    """Another attempt to put it may go well."""
    disk = FullDisk()
    disk.full = True
    store = Store(tmp_path, disk)
    with pytest.raises(StorageError, match="No space left"):
        store.put(ID, DATA, "gbt", "oracle")
    assert not store.has(ID)
    disk.full = False
    store.put(ID, DATA, "gbt", "oracle")
    assert store.has(ID)


def test_a_row_of_the_index_that_a_crash_has_torn_is_made_again(tmp_path: Path) -> None:
    """The index is not flushed row by row: its last rows may be half there, or be zeros."""
    store = Store(tmp_path)
    rows = [{"job_id": str(n), "attempt": 1, "artifact_id": ID} for n in range(3)]
    store.index.append(rows[0])
    index = tmp_path / "models" / "index.jsonl"
    with index.open("ab") as file:
        file.write(bytes(20) + b'{"job_id": "1", "att')
    again = Store(tmp_path)
    for row in rows:
        again.index.append(row)
    found = [json.loads(line)["job_id"] for line in index.read_text().splitlines()]
    assert found == ["0", "1", "2"]
