"""Datasets at the coordinator: given to hosts, held by them, named by programs."""

from __future__ import annotations

from pathlib import Path

from broker.protocol import messages as m
from coordinator.client.predictions import look
from tests.harness import datasets, programs
from tests.harness.coordinator import Host
from tests.harness.datasets import DIGEST, PACKS, sha256
from tests.harness.inclient import client_of
from tests.harness.pushing import (
    DATASET,
    TRAINERS,
    known,
    new_id,
    push_all,
    pushed,
    remove,
    run,
)
from tests.harness.shell import ledgers_closed  # noqa: F401 - a fixture

LATER_PACK, LATER_LAYOUT = b"c" * 900, b"other layout"
LATER_BLOBS = (PACKS[0], LATER_PACK, LATER_LAYOUT)
LATER = datasets.offer(digest="d2" * 32, packs=LATER_BLOBS[:2], layout=LATER_LAYOUT)


def given(host: Host) -> list[m.Assign]:
    """The assignments of jobs with a dataset that a host has heard."""
    return [one for one in host.heard(m.Assign) if one.data]


def test_a_tree_that_has_two_names_is_two_datasets_of_one_digest(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    assert push_all(fleet, datasets.offer("copy")) == []
    run(fleet, DATASET, data={"prepared": "copy"})
    refused = remove(fleet, "dataset", "cifar")
    assert refused.why["code"] == "dataset_in_use", "the job may mean it by this name"
    fleet.asks(m.AskCancel(id=new_id(), job="mine"))
    assert remove(fleet, "dataset", "cifar").ok
    assert [(one["name"], one["jobs"]) for one in known(fleet, "dataset")] == [("copy", 1)]


def test_a_host_gets_the_blobs_of_its_own_jobs_alone(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    push_all(fleet, LATER, LATER_BLOBS)
    host = fleet.host().joins(trainers=TRAINERS, data_id=None, slots=2)
    assert run(fleet, DATASET, data={"prepared": f"cifar@{DIGEST[:9]}"}).ok
    (assign,) = given(host)
    assert assign.data == (datasets.dataset("prepared"),)
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
    for data in (*DATASET.blobs, LATER_PACK, LATER_LAYOUT):
        host.says(fleet.topics.checkpoint_grant("pi", sha256(data)), grant)
    assert [*fleet.core.world.downloads] == [f"pi/{sha256(data)}" for data in DATASET.blobs]


def test_a_dataset_that_was_pushed_again_comes_by_its_new_layout(tmp_path: Path) -> None:
    """Its job waited meanwhile; the packs of the old layout may be gone."""
    fleet = pushed(tmp_path, DATASET)
    run(fleet, DATASET)
    fleet.asks(m.AskCancel(id="c", job="mine"))
    remove(fleet, "dataset", "cifar")
    push_all(fleet, datasets.offer(layout=LATER_LAYOUT), (*PACKS, LATER_LAYOUT))
    fleet.asks(m.AskRequeue(id="r", job="mine"))
    host = fleet.host().joins(trainers=TRAINERS, slots=2)
    (assign,) = given(host)
    assert [one.layout for one in assign.data] == [sha256(LATER_LAYOUT)]


def test_a_client_gets_the_layout_of_the_newest_version(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    push_all(fleet, LATER, LATER_BLOBS)
    told = fleet.asks(m.AskLayout(id="l", name="cifar")).data
    assert (told["digest"], told["size_bytes"]) == (LATER.digest, len(LATER_LAYOUT))
    assert fleet.fetched() == LATER_LAYOUT
    assert fleet.asks(m.AskLayout(id="x", name="cifer")).why["code"] == "no_dataset"


def test_hosts_that_hold_a_dataset_are_listed_and_preferred(tmp_path: Path) -> None:
    """All else is equal: without the dataset the first name would win."""
    fleet = pushed(tmp_path, DATASET)
    hosts = [Host(fleet.host().fleet, name) for name in ("attic", "pi")]
    hosts[0].joins(trainers=TRAINERS, slots=2)
    hosts[1].joins(trainers=TRAINERS, slots=2, holdings=(DIGEST,))
    (row,) = known(fleet, "dataset")
    assert (row["hosts"], row["host_count"]) == (["pi"], 1)
    run(fleet, DATASET)
    assert [len(given(host)) for host in hosts] == [0, 1]


def test_what_a_host_has_measured_is_in_the_forecast(tmp_path: Path) -> None:
    """The ledger has it with the attempt; given out anew, the job still lacks its dataset."""
    fleet = pushed(tmp_path, DATASET)
    host = fleet.host().joins(trainers=TRAINERS, slots=2)
    run(fleet, DATASET)
    job = fleet.job("mine")
    told = {"fetched_bytes": 20_000_000, "fetch_s": 40.0, "prepare_s": 5.0}
    host.reports(m.Started, job, slot=0, pid=1, **told)
    fleet.passes(10.0)
    host.reports(m.Released, fleet.job("mine"), why=m.Why(code="busy"))
    page = fleet.ledger.attempts(m.AskAttempts(id="a"))
    assert [{key: one[key] for key in m.LEAD} for one in page["attempts"]] == [told]
    seen = look(client_of(fleet, *page["attempts"])).forecast().outlooks
    size_bytes = sum(map(len, PACKS))
    lead = seen[fleet.job("mine").job_id].lead
    assert (lead.lacks_bytes, lead.fetch_s) == (size_bytes, size_bytes / 500_000)


def test_a_host_without_prepared_data_takes_a_job_that_brings_it(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    host = fleet.host().joins(trainers=TRAINERS, data_id=None, slots=2)
    run(fleet, DATASET, name="bare", data={})
    why = fleet.asks(m.AskWhy(id="w", job="bare")).data
    assert [one["code"] for one in why["hosts"][0]["reasons"]] == ["no-data"]
    run(fleet, DATASET)
    assert [one.name for one in given(host)] == ["mine"]
    push_all(fleet, datasets.offer("same"))
    for ask in (m.AskWhy(id="w2", job="mine"), m.AskShow(id="s", job="mine")):
        assert fleet.asks(ask).data["data"] == {"prepared": f"cifar or same@{DIGEST}"}


def test_a_program_says_which_datasets_its_jobs_have_to_name(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    reads = programs.trainer(programs.DIGEST).model_copy(update={"data": ("train", "test")})
    push_all(fleet, programs.offer().model_copy(update={"trainer": reads}))
    told = fleet.asks(m.AskTrainers(id="t")).data
    assert told["trainers"][f"vision@{programs.DIGEST}"]["data"] == ["train", "test"]
    assert [*told["datasets"]] == [f"cifar@{DIGEST}"]
    job = {"program": "vision", "parameters": {"lr": 0.1}, "data": {"train": "cifar"}}
    refused = fleet.asks(m.AskRun(id="r", job=job))
    assert [one["key"] for one in refused.data["errors"]] == ["data.test"]
    job |= {"data": {"train": "cifar", "test": f"cifar@{DIGEST}"}}
    assert fleet.asks(m.AskRun(id="r2", job=job)).ok
