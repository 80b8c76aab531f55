"""Datasets at the coordinator: pushed blob by blob, listed, given to hosts, removed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.client.predictions import look
from coordinator.core import datasets as core_datasets
from coordinator.jobs.records import AttemptFilter
from coordinator.ledger.ledger import FILE_NAME
from tests.harness import data_offers, programs
from tests.harness.coordinator import OPERATOR, Host
from tests.harness.data_offers import DIGEST, LAYOUT, PACKS, sha256
from tests.harness.inclient import client_of
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

ALL = (*PACKS, LAYOUT)
TRAINERS = {"gbt": m.TrainerInfo(hyper_schema={}, data=("prepared",))}
LATER_PACK, LATER_LAYOUT, LATER = b"c" * 900, b"other layout", "d2" * 32
HOUR_S, DAY_S = 3600.0, 86_400.0
AGAIN, ANN = "operator:op/again", "operator:ann/cli"
_ids = itertools.count()


def new_id() -> str:
    """One that no request had before a restart either."""
    return f"asked-{next(_ids)}"


def push(fleet: Coordinator, client: str = OPERATOR, **more: Any) -> Any:
    """Somebody offers a dataset; what is answered."""
    ask = m.AskData(id=new_id(), offer=data_offers.offer(**more), chunk_bytes=1024)
    fleet.answers()
    fleet.handle(Incoming(fleet.topics.operator_request(client), m.encode(ask)))
    fleet.files()
    return fleet.answers()[0]


def sends(fleet: Coordinator, data: bytes, client: str = OPERATOR) -> Any:
    """Send all of a blob; the last that its client hears."""
    for index in range(-(-len(data) // 1024)):
        piece = data[index * 1024 : (index + 1) * 1024]
        fleet.handle(Incoming(fleet.topics.push_chunk(client, index), piece))
    fleet.files()
    return [said for topic, said in fleet.sent if topic.host == client][-1]


def push_all(fleet: Coordinator, blobs: Sequence[bytes] = ALL, **more: Any) -> list[bytes]:
    """Push until the dataset is known; the blobs that were asked for, in order."""
    by_id = {sha256(data): data for data in blobs}
    sent = []
    while (lacks := push(fleet, **more).data["lacks"]) is not None:
        sent.append(by_id[lacks])
        assert isinstance(sends(fleet, by_id[lacks]), m.Stored)
    return sent


def pushed(folder: Path, **more: Any) -> Coordinator:
    fleet = Coordinator(folder, trainers=TRAINERS, **more)
    push_all(fleet)
    return fleet


def push_later(fleet: Coordinator) -> list[bytes]:
    """Push a second version, which keeps one pack of the first; what was sent."""
    packs = (PACKS[0], LATER_PACK)
    more = {"digest": LATER, "packs": packs, "layout": LATER_LAYOUT}
    return push_all(fleet, (*packs, LATER_LAYOUT), **more)


def known(fleet: Coordinator) -> list[tuple[str, str, int]]:
    """Name, digest and jobs of each dataset that is listed."""
    data = fleet.asks(m.AskDatasets(id=new_id())).data
    return [(one["name"], one["digest"], one["jobs"]) for one in data["datasets"]]


def run(fleet: Coordinator, data: str = "cifar", **more: Any) -> Any:
    """Somebody asks for a job that reads the dataset as its prepared telemetry."""
    job: dict[str, Any] = {"name": "mine", "model": "gbt", "mode": "oracle"} | more
    job |= {"data": {"prepared": data}} if data else {}
    return fleet.asks(m.AskRun(id=new_id(), job=job))


def remove(fleet: Coordinator, name: str = "cifar") -> Any:
    return fleet.asks(m.AskDataRemove(id=new_id(), name=name))


def given(host: Host) -> list[m.Assign]:
    """The assignments of jobs with a dataset that a host has heard."""
    return [one for one in host.heard(m.Assign) if one.data]


def forgetful(folder: Path) -> Coordinator:
    """One that keeps nothing which nobody needs."""
    fleet = Coordinator(folder, keep_unreferenced_days=0.0, trainers=TRAINERS)
    fleet.skew_s = fleet.disk.modified_s(folder) - fleet.now.wall_s
    return fleet


def clean_up(fleet: Coordinator, after_s: float = 8 * HOUR_S) -> None:
    """Time passes, in which old things are deleted every six hours."""
    for _ in range(round(after_s / (4 * HOUR_S))):
        fleet.waits(4 * HOUR_S)
        fleet.files()


def test_blobs_are_drawn_one_after_the_other_and_the_dataset_is_known_after_the_last(
    tmp_path: Path,
) -> None:
    fleet = Coordinator(tmp_path)
    first = push(fleet).data
    assert (first["name"], first["digest"], first["lacks"]) == ("cifar", DIGEST, sha256(PACKS[0]))
    assert sends(fleet, b"y" * 1500).state == "rejected"
    assert known(fleet) == []
    assert push_all(fleet) == [*ALL], "packs in their order, then the layout"
    assert known(fleet) == [("cifar", DIGEST, 0)]
    assert push_all(fleet) == [], "nothing is sent again"


def test_a_push_is_told_of_once_however_many_blobs_it_has(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    remove(fleet)
    events = fleet.asks(m.AskEvents(id=new_id())).data["events"]
    told = [(one["event"], one["why"]) for one in events if "data" in one["event"]]
    title = {"code": "dataset", "name": "cifar", "digest": DIGEST}
    assert told == [("push-data", title), ("remove-data", title)]


def test_a_push_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """Another client goes on after a restart of the coordinator, in the middle of a pack."""
    fleet = Coordinator(tmp_path)
    push(fleet)
    sends(fleet, PACKS[0])
    push(fleet)
    fleet.handle(Incoming(fleet.topics.push_chunk(OPERATOR, 0), PACKS[1][:1024]))
    fleet.files()
    fleet.shell.close()
    fleet = fleet.crashes()
    assert push(fleet, AGAIN).data["lacks"] == sha256(PACKS[1])
    assert isinstance(sends(fleet, PACKS[1], AGAIN), m.Stored)
    assert push_all(fleet) == [LAYOUT]


def test_a_second_version_sends_what_it_does_not_share(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    assert push_later(fleet) == [LATER_PACK, LATER_LAYOUT]
    assert known(fleet) == [("cifar", DIGEST, 0), ("cifar", LATER, 0)]


def test_a_blob_that_two_clients_push_is_told_to_both(tmp_path: Path) -> None:
    fleet = Coordinator(tmp_path)
    push(fleet)
    push(fleet, ANN)
    sends(fleet, PACKS[0])
    stored = {topic.host for topic, said in fleet.sent if isinstance(said, m.Stored)}
    assert stored == {OPERATOR, ANN}


def test_who_pushes_again_takes_the_place_of_the_own_push_before(tmp_path: Path) -> None:
    """It was cut off: nobody waits until it counts as given up."""
    fleet = Coordinator(tmp_path)
    push(fleet)
    fleet.sent.clear()
    push(fleet, AGAIN)
    assert [topic.host for topic, said in fleet.sent if isinstance(said, m.Grant)] == [AGAIN]
    assert isinstance(sends(fleet, PACKS[0], AGAIN), m.Stored)


def test_a_blob_has_the_size_that_is_stored(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    ask = m.AskData(id="o", offer=data_offers.offer(digest=LATER))
    wrong = ask.offer.model_copy(update={"layout": m.Blob(sha256(LAYOUT), 9)})
    assert fleet.asks(ask.model_copy(update={"offer": wrong})).why["code"] == "other_size"


def test_only_so_many_datasets_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_datasets, "MAX_DATASETS", 1)
    fleet = pushed(tmp_path)
    assert push(fleet, digest=LATER).why["code"] == "datasets"
    assert push(fleet).ok, "it is known already"


def test_a_dataset_outlives_a_crash_and_the_clean_up(tmp_path: Path) -> None:
    fleet = pushed(tmp_path).crashes()
    assert known(fleet) == [("cifar", DIGEST, 0)]
    clean_up(fleet, 40 * DAY_S)
    assert all(fleet.store.has(sha256(data)) for data in ALL)


def test_after_a_restored_backup_a_push_sends_nothing_again(tmp_path: Path) -> None:
    """The ledger is older than the store, which has all blobs."""
    fleet = Coordinator(tmp_path)
    fleet.ledger.close()
    ledger = tmp_path / FILE_NAME
    before = ledger.read_bytes()
    fleet = fleet.crashes()
    push_all(fleet)
    fleet.ledger.close()
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        path.unlink()
    ledger.write_bytes(before)
    fleet = fleet.crashes()
    assert known(fleet) == []
    assert push_all(fleet) == []
    assert known(fleet) == [("cifar", DIGEST, 0)]


@pytest.mark.parametrize("crashes", [False, True])
def test_what_has_come_of_a_push_is_kept_for_a_day(tmp_path: Path, *, crashes: bool) -> None:
    fleet = forgetful(tmp_path)
    push(fleet)
    sends(fleet, PACKS[0])
    if crashes:
        fleet.shell.close()
        fleet.ledger.close()
        fleet = forgetful(tmp_path)
    clean_up(fleet, DAY_S / 2)
    assert fleet.store.has(sha256(PACKS[0]))
    clean_up(fleet, DAY_S)
    assert not fleet.store.has(sha256(PACKS[0]))


def test_packs_of_a_removed_version_stay_for_the_push_that_needs_them(tmp_path: Path) -> None:
    """They are older than a day, and nothing else has them meanwhile."""
    fleet = forgetful(tmp_path)
    push_all(fleet)
    clean_up(fleet, 2 * DAY_S)
    packs = (PACKS[0], LATER_PACK)
    push(fleet, digest=LATER, packs=packs, layout=LATER_LAYOUT)
    remove(fleet, f"cifar@{DIGEST}")
    clean_up(fleet, DAY_S / 2)
    assert [fleet.store.has(sha256(data)) for data in PACKS] == [True, False]
    assert push_later(fleet) == [LATER_PACK, LATER_LAYOUT]


def test_a_pack_stays_while_some_dataset_has_it(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    push_later(fleet)
    assert remove(fleet, f"cifar@{DIGEST}").ok
    clean_up(fleet, 80 * DAY_S)
    there = [fleet.store.has(sha256(data)) for data in (*PACKS, LATER_PACK)]
    assert there == [True, False, True]


def test_a_dataset_is_removed_when_no_job_needs_it(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    assert run(fleet).ok
    assert known(fleet) == [("cifar", DIGEST, 1)]
    refused = remove(fleet)
    assert (refused.why["code"], refused.why["jobs"]) == ("dataset_in_use", ["mine"])
    fleet.asks(m.AskCancel(id="c", job="mine"))
    assert remove(fleet).ok
    assert known(fleet.crashes()) == []


def test_a_job_is_not_requeued_without_its_dataset(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    run(fleet)
    fleet.asks(m.AskCancel(id="c", job="mine"))
    remove(fleet)
    requeue = m.AskRequeue(id="again", job="mine")
    assert fleet.asks(requeue).why["code"] == "data_gone"
    push_all(fleet)
    assert fleet.asks(requeue.model_copy(update={"id": "now"})).ok


def test_a_tree_that_has_two_names_is_two_datasets_of_one_digest(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    assert push_all(fleet, name="copy") == []
    run(fleet, "copy")
    assert remove(fleet).why["code"] == "dataset_in_use", "the job may mean it by this name"
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    assert remove(fleet).ok
    assert known(fleet) == [("copy", DIGEST, 1)]


def test_a_host_gets_the_blobs_of_its_own_jobs_alone(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    push_later(fleet)
    host = fleet.host().joins(trainers=TRAINERS, data_id=None, slots=2)
    assert run(fleet, f"cifar@{DIGEST[:9]}").ok
    (assign,) = given(host)
    assert assign.data == (data_offers.dataset("prepared"),)
    grant = m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)
    for data in (*ALL, LATER_PACK, LATER_LAYOUT):
        host.says(fleet.topics.checkpoint_grant("pi", sha256(data)), grant)
    assert [*fleet.core.world.downloads] == [f"pi/{sha256(data)}" for data in ALL]


def test_a_dataset_that_was_pushed_again_comes_by_its_new_layout(tmp_path: Path) -> None:
    """Its job waited meanwhile; the packs of the old layout may be gone."""
    fleet = pushed(tmp_path)
    run(fleet)
    fleet.asks(m.AskCancel(id="c", job="mine"))
    remove(fleet)
    push_all(fleet, (*PACKS, LATER_LAYOUT), layout=LATER_LAYOUT)
    fleet.asks(m.AskRequeue(id="r", job="mine"))
    host = fleet.host().joins(trainers=TRAINERS, slots=2)
    (assign,) = given(host)
    assert [one.layout for one in assign.data] == [sha256(LATER_LAYOUT)]


def test_a_client_gets_the_layout_of_the_newest_version(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    push_later(fleet)
    told = fleet.asks(m.AskLayout(id="l", name="cifar")).data
    assert (told["digest"], told["size_bytes"]) == (LATER, len(LATER_LAYOUT))
    assert fleet.fetched() == LATER_LAYOUT
    assert fleet.asks(m.AskLayout(id="x", name="cifer")).why["code"] == "no_dataset"


def test_hosts_that_hold_a_dataset_are_listed_and_preferred(tmp_path: Path) -> None:
    """All else is equal: without the dataset the first name would win."""
    fleet = pushed(tmp_path)
    hosts = [Host(fleet.host().fleet, name) for name in ("attic", "pi")]
    hosts[0].joins(trainers=TRAINERS, slots=2)
    hosts[1].joins(trainers=TRAINERS, slots=2, holdings=(DIGEST,))
    (row,) = fleet.asks(m.AskDatasets(id="x")).data["datasets"]
    assert (row["hosts"], row["host_count"]) == (["pi"], 1)
    run(fleet)
    assert [len(given(host)) for host in hosts] == [0, 1]


def test_what_a_host_has_measured_is_in_the_forecast(tmp_path: Path) -> None:
    """The ledger has it with the attempt; given out anew, the job still lacks its dataset."""
    fleet = pushed(tmp_path)
    host = fleet.host().joins(trainers=TRAINERS, slots=2)
    run(fleet)
    job = fleet.job("mine")
    told = {"fetched_bytes": 20_000_000, "fetch_s": 40.0, "prepare_s": 5.0}
    host.reports(m.Started, job, slot=0, pid=1, **told)
    fleet.passes(10.0)
    host.reports(m.Released, fleet.job("mine"), why=m.Why(code="busy"))
    page = fleet.ledger.attempts(AttemptFilter())
    assert [{key: one[key] for key in m.LEAD} for one in page["attempts"]] == [told]
    seen = look(client_of(fleet, *page["attempts"])).forecast().outlooks
    size_bytes = sum(map(len, PACKS))
    lead = seen[fleet.job("mine").job_id].lead
    assert (lead.lacks_bytes, lead.fetch_s) == (size_bytes, size_bytes / 500_000)


def test_a_host_without_prepared_data_takes_a_job_that_brings_it(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    host = fleet.host().joins(trainers=TRAINERS, data_id=None, slots=2)
    run(fleet, "", name="bare")
    why = fleet.asks(m.AskWhy(id="w", job="bare")).data
    assert [one["code"] for one in why["hosts"][0]["reasons"]] == ["no-data"]
    run(fleet)
    assert [one.name for one in given(host)] == ["mine"]
    push(fleet, name="same")
    for ask in (m.AskWhy(id="w2", job="mine"), m.AskShow(id="s", job="mine")):
        assert fleet.asks(ask).data["data"] == {"prepared": f"cifar or same@{DIGEST}"}


def test_a_program_says_which_datasets_its_jobs_have_to_name(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    offer = programs.offer().model_copy(update={"data": ("train", "test")})
    fleet.asks(m.AskPush(id="p", offer=offer, chunk_bytes=2048))
    fleet.files()
    sends(fleet, programs.PARCEL[:1024])
    topic = fleet.topics.push_chunk(OPERATOR, 0)
    fleet.handle(Incoming(topic, programs.PARCEL))
    fleet.files()
    told = fleet.asks(m.AskTrainers(id="t")).data
    assert told["trainers"][f"vision@{programs.DIGEST}"]["data"] == ["train", "test"]
    assert [*told["datasets"]] == [f"cifar@{DIGEST}"]
    job = {"program": "vision", "parameters": {"lr": 0.1}, "data": {"train": "cifar"}}
    refused = fleet.asks(m.AskRun(id="r", job=job))
    assert [one["key"] for one in refused.data["errors"]] == ["data.test"]
    job |= {"data": {"train": "cifar", "test": f"cifar@{DIGEST}"}}
    assert fleet.asks(m.AskRun(id="r2", job=job)).ok
