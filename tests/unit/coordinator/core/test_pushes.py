"""What holds of programs and datasets alike: pushed blob by blob, kept, listed, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.core import pushes
from coordinator.ledger.ledger import FILE_NAME
from tests.harness import datasets, programs
from tests.harness.coordinator import OPERATOR
from tests.harness.datasets import LAYOUT, PACKS, sha256
from tests.harness.pushing import (
    DATASET,
    PROGRAM,
    TRAINERS,
    Goods,
    known,
    new_id,
    push,
    push_all,
    pushed,
    remove,
    run,
    sends,
)
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

HOUR_S, DAY_S = 3600.0, 86_400.0
AGAIN, ANN = "operator:op/again", "operator:ann/cli"
LATER_PACK, LATER_LAYOUT, LATER = b"c" * 900, b"other layout", "d2" * 32
LATER_OFFER = datasets.offer(
    digest=LATER, packs=(PACKS[0], LATER_PACK), layout=LATER_LAYOUT
)  # fmt: skip
each_kind = pytest.mark.parametrize("goods", [PROGRAM, DATASET], ids=lambda goods: goods.kind)


def titles(fleet: Coordinator, kind: m.PushKind = "dataset") -> list[str]:
    return [f"{one['name']}@{one['digest']}" for one in known(fleet, kind)]


def push_later(fleet: Coordinator) -> list[bytes]:
    """Push a second version, which keeps one pack of the first; what was sent."""
    return push_all(fleet, LATER_OFFER, (PACKS[0], LATER_PACK, LATER_LAYOUT))


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


@each_kind
def test_blobs_are_drawn_one_after_the_other_and_it_is_known_after_the_last(
    tmp_path: Path, goods: Goods
) -> None:
    fleet = Coordinator(tmp_path)
    first = push(fleet, goods.offer).data
    lacks = sha256(goods.blobs[0])
    assert first == {"name": goods.offer.name, "digest": goods.offer.digest, "lacks": lacks}
    assert sends(fleet, b"y" * 1500).state == "rejected"
    assert known(fleet, goods.kind) == []
    assert push_all(fleet, goods.offer, goods.blobs) == [*goods.blobs], "in their order"
    assert titles(fleet, goods.kind) == [goods.offer.title]
    assert push_all(fleet, goods.offer) == [], "nothing is sent again"


@each_kind
def test_a_push_is_told_of_once_however_many_blobs_it_has(tmp_path: Path, goods: Goods) -> None:
    """Of a program is told, too, whether it was there already."""
    fleet = pushed(tmp_path, goods)
    push(fleet, goods.offer)
    remove(fleet, goods.kind, goods.offer.name)
    events = fleet.asks(m.AskEvents(id=new_id())).data["events"]
    told = [(one["event"], one["why"]) for one in events if "digest" in one["why"]]
    title = {"code": goods.kind, "name": goods.offer.name, "digest": goods.offer.digest}
    if goods is DATASET:
        assert told == [("push-data", title), ("push-data", title), ("remove-data", title)]
    else:
        there = [title | {"is_there": one} for one in (False, True)]
        assert told == [*(("push", one) for one in there), ("remove", title)]


def test_a_push_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """Another client goes on after a restart of the coordinator, in the middle of a pack."""
    fleet = Coordinator(tmp_path)
    push(fleet, DATASET.offer)
    sends(fleet, PACKS[0])
    push(fleet, DATASET.offer)
    fleet.handle(Incoming(fleet.topics.push_chunk(OPERATOR, 0), PACKS[1][:1024]))
    fleet.files()
    fleet.shell.close()
    fleet = fleet.crashes()
    assert push(fleet, DATASET.offer, AGAIN).data["lacks"] == sha256(PACKS[1])
    asked = [said.missing for _, said in fleet.sent if isinstance(said, m.Grant)]
    assert asked[-1] == ((1, 2),), "not what had come of the pack"
    assert isinstance(sends(fleet, PACKS[1], AGAIN), m.Stored)
    assert push_all(fleet, DATASET.offer, DATASET.blobs) == [LAYOUT]


def test_a_second_version_sends_what_it_does_not_share(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    assert push_later(fleet) == [LATER_PACK, LATER_LAYOUT]
    assert titles(fleet) == [DATASET.offer.title, LATER_OFFER.title]


def test_a_blob_that_two_clients_push_is_told_to_both(tmp_path: Path) -> None:
    fleet = Coordinator(tmp_path)
    push(fleet)
    push(fleet, client=ANN)
    sends(fleet)
    stored = {topic.host for topic, said in fleet.sent if isinstance(said, m.Stored)}
    assert stored == {OPERATOR, ANN}


def test_who_pushes_again_takes_the_place_of_the_own_push_before(tmp_path: Path) -> None:
    """It was cut off: nobody waits until it counts as given up."""
    fleet = Coordinator(tmp_path)
    push(fleet)
    fleet.sent.clear()
    push(fleet, client=AGAIN)
    assert [topic.host for topic, said in fleet.sent if isinstance(said, m.Grant)] == [AGAIN]
    assert isinstance(sends(fleet, client=AGAIN), m.Stored)


def test_only_so_many_are_pushed_at_once(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    for number in range(pushes.MAX_PUSHES):
        other = programs.offer(digest=f"{number:064x}")
        assert push(fleet, other, f"operator:op/c{number}").ok
    last = programs.offer(digest="f" * 64)
    assert push(fleet, last, AGAIN).why["code"] == "pushes"
    fleet.waits(120.0)
    fleet.files()
    assert push(fleet, last, AGAIN).ok, "nothing has come of the others"
    fleet.waits(120.0)
    fleet.files()


def test_a_blob_has_the_size_that_is_stored(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    wrong = DATASET.offer.model_copy(update={"layout": m.Blob(sha256(LAYOUT), 9)})
    assert push(fleet, wrong).why["code"] == "other_size"


def test_only_so_many_datasets_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "MAX_KNOWN", 1)
    fleet = pushed(tmp_path, DATASET)
    assert push(fleet, LATER_OFFER).why["code"] == "datasets"
    assert push(fleet, DATASET.offer).ok, "it is known already"
    assert push_all(fleet) == [programs.PARCEL], "programs count by themselves"


def test_the_oldest_program_without_a_job_makes_room_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "MAX_KNOWN", 1)
    fleet, other = pushed(tmp_path), programs.offer(digest="f" * 64)
    run(fleet)
    assert push(fleet, other).why["code"] == "programs", "the only one has a job"
    fleet.asks(m.AskCancel(id=new_id(), job="mine"))
    assert push(fleet, other).ok
    assert known(fleet, "program") == []
    fleet.waits(120.0)
    fleet.files()


@each_kind
def test_what_is_known_outlives_a_crash_and_the_clean_up(tmp_path: Path, goods: Goods) -> None:
    fleet = pushed(tmp_path, goods).crashes()
    assert titles(fleet, goods.kind) == [goods.offer.title]
    clean_up(fleet, 40 * DAY_S)
    assert all(fleet.store.has(sha256(data)) for data in goods.blobs)


@each_kind
def test_after_a_restored_backup_a_push_sends_nothing_again(tmp_path: Path, goods: Goods) -> None:
    """The ledger is older than the store, which has all blobs."""
    fleet = Coordinator(tmp_path)
    fleet.ledger.close()
    ledger = tmp_path / FILE_NAME
    before = ledger.read_bytes()
    fleet = fleet.crashes()
    push_all(fleet, goods.offer, goods.blobs)
    fleet.ledger.close()
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        path.unlink()
    ledger.write_bytes(before)
    fleet = fleet.crashes()
    assert known(fleet, goods.kind) == []
    assert push_all(fleet, goods.offer) == []
    assert titles(fleet, goods.kind) == [goods.offer.title]


@each_kind
@pytest.mark.parametrize("crashes", [False, True])
def test_what_has_come_of_a_push_is_kept_for_a_day(
    tmp_path: Path, goods: Goods, *, crashes: bool
) -> None:
    fleet = forgetful(tmp_path)
    push(fleet, goods.offer)
    sends(fleet, goods.blobs[0])
    if crashes:
        fleet.shell.close()
        fleet.ledger.close()
        fleet = forgetful(tmp_path)
    clean_up(fleet, DAY_S / 2)
    assert fleet.store.has(sha256(goods.blobs[0]))
    clean_up(fleet, DAY_S)
    assert not fleet.store.has(sha256(goods.blobs[0]))


def test_packs_of_a_removed_version_stay_for_the_push_that_needs_them(tmp_path: Path) -> None:
    """They are older than a day, and nothing else has them meanwhile."""
    fleet = forgetful(tmp_path)
    push_all(fleet, DATASET.offer, DATASET.blobs)
    clean_up(fleet, 2 * DAY_S)
    push(fleet, LATER_OFFER)
    remove(fleet, "dataset", DATASET.offer.title)
    clean_up(fleet, DAY_S / 2)
    assert [fleet.store.has(sha256(data)) for data in PACKS] == [True, False]
    assert push_later(fleet) == [LATER_PACK, LATER_LAYOUT]


def test_a_pack_stays_while_some_dataset_has_it(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, DATASET)
    push_later(fleet)
    assert remove(fleet, "dataset", DATASET.offer.title).ok
    clean_up(fleet, 80 * DAY_S)
    there = [fleet.store.has(sha256(data)) for data in (*PACKS, LATER_PACK)]
    assert there == [True, False, True]


@each_kind
@pytest.mark.parametrize("called", ["{0.name}", "{0.name}@{0.digest:.6}", "{0.digest:.9}"])
def test_it_is_removed_when_no_job_needs_it(tmp_path: Path, goods: Goods, called: str) -> None:
    fleet, name = pushed(tmp_path, goods), called.format(goods.offer)
    assert run(fleet, goods).ok
    assert [one["jobs"] for one in known(fleet, goods.kind)] == [1]
    refused = remove(fleet, goods.kind, name)
    assert (refused.why["code"], refused.why["jobs"]) == (f"{goods.kind}_in_use", ["mine"])
    fleet.asks(m.AskCancel(id=new_id(), job="mine"))
    assert remove(fleet, goods.kind, name).ok
    assert remove(fleet, goods.kind, name).why["code"] == f"no_{goods.kind}"
    assert known(fleet.crashes(), goods.kind) == []


@each_kind
def test_a_job_is_not_requeued_without_what_it_needs(tmp_path: Path, goods: Goods) -> None:
    fleet = pushed(tmp_path, goods)
    run(fleet, goods)
    fleet.asks(m.AskCancel(id=new_id(), job="mine"))
    remove(fleet, goods.kind, goods.offer.name)
    why = fleet.asks(m.AskRequeue(id=new_id(), job="mine")).why
    assert why["code"] == ("program_gone" if goods is PROGRAM else "data_gone")
    push_all(fleet, goods.offer)
    assert fleet.asks(m.AskRequeue(id=new_id(), job="mine")).ok
