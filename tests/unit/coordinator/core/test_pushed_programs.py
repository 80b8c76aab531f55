"""Programs at the coordinator: pushed, stored, listed, removed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.programs.signatures import sign
from broker.programs.trust import verifier
from broker.protocol import messages as m
from coordinator.core import programs as core_programs
from coordinator.core.effects import JournalRead, ManifestRead
from coordinator.core.pushes import MAX_PUSHES
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import ProgramRecord
from tests.harness import programs, signers
from tests.harness.coordinator import OPERATOR, spec
from tests.harness.pushing import push, pushed, pushes, run, sends
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

OTHERS, ANN = "operator:op/other", "operator:ann/cli"


def known(fleet: Coordinator) -> list[tuple[str, int, list[str]]]:
    """Name, jobs and hosts of each program that is listed."""
    data = fleet.asks(m.AskPrograms(id="list")).data
    return [(one["name"], one["jobs"], one["hosts"]) for one in data["programs"]]


def remove(fleet: Coordinator, name: str = "vision") -> Any:
    return fleet.asks(m.AskRemove(id=fleet.new_id(), name=name))


def test_a_parcel_is_drawn_by_grants_and_the_program_is_known_once_it_is_stored(
    tmp_path: Path,
) -> None:
    """Other bytes are rejected, and may be sent again; two who push the same are both served."""
    fleet = Coordinator(tmp_path)
    assert not push(fleet).data["is_there"]
    grants = [said for topic, said in fleet.sent if isinstance(said, m.Grant)]
    assert grants[-1].missing == ((0, 2),)
    assert sends(fleet, b"y" * len(programs.PARCEL))[-1].state == "rejected"
    assert known(fleet) == []
    push(fleet)
    push(fleet, ANN)
    sends(fleet)
    stored = [topic.host for topic, said in fleet.sent if isinstance(said, m.Stored)]
    assert sorted(stored) == [ANN, OPERATOR]
    assert known(fleet) == [("vision", 0, [])]
    assert push(fleet).data["is_there"], "it is not sent again"


def test_a_parcel_that_is_stored_has_one_size(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    offer = programs.offer()
    other = offer.program.model_copy(update={"size_bytes": 9})
    ask = m.AskPush(id="other", offer=offer.model_copy(update={"program": other}))
    assert fleet.asks(ask).why["code"] == "other_size"


@pytest.mark.parametrize("code", ["bad-signature", "other-ca", "expired", "signer-revoked"])
def test_a_signature_that_no_host_would_take_is_refused_at_once(tmp_path: Path, code: str) -> None:
    ours, fleet = signers.Fleet(tmp_path / "ours"), Coordinator(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ours.authority.pem)
    fleet.verify = verifier(tmp_path / "ca.crt", lambda: fleet.now)
    theirs = signers.Fleet(tmp_path / "theirs") if code == "other-ca" else ours
    name = "other" if code == "bad-signature" else "vision"
    made = sign(theirs.identity("operator:op", days=2), name, programs.DIGEST)
    ask = m.AskPush(id="p", offer=programs.offer(signer="op", signature=made), chunk_bytes=1024)
    if code == "expired":
        fleet.mono_s += 3 * 86_400.0
    if code == "signer-revoked":
        ours.authority.revoke("operator:op", signers.NOW_S)
        fleet.handle(JournalRead((), ours.crl.decode()))
    answer = pushes(fleet, ask)
    assert (answer.why["code"], answer.why["fault"]["code"]) == ("untrusted", code)
    assert answer.why["fault"]["signer"] == "op"
    assert not [said for _, said in fleet.sent if isinstance(said, m.Grant)]
    assert pushes(fleet, ask) == answer, "a repetition is answered alike"


def test_a_signature_that_counts_is_checked_and_the_program_taken(tmp_path: Path) -> None:
    ours, fleet = signers.Fleet(tmp_path / "ours"), Coordinator(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ours.authority.pem)
    fleet.verify = verifier(tmp_path / "ca.crt", lambda: fleet.now)
    made = sign(ours.identity("operator:op"), "vision", programs.DIGEST)
    assert push(fleet, signer="op", signature=made).ok
    assert isinstance(sends(fleet)[-1], m.Stored)
    (tmp_path / "ca.crt").unlink()
    assert push(fleet, signer="op", signature=made).ok, (
        "the hosts decide where it cannot be checked"
    )


def test_a_job_is_not_requeued_without_its_program(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    run(fleet)
    fleet.asks(m.AskCancel(id="cancel", job="mine"))
    remove(fleet)
    requeue = m.AskRequeue(id="again", job="mine")
    assert fleet.asks(requeue).why["code"] == "program_gone"
    assert push(fleet).ok
    assert fleet.asks(requeue.model_copy(update={"id": "now"})).ok


def test_only_so_many_are_pushed_at_once(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    for number in range(MAX_PUSHES):
        assert push(fleet, f"operator:op/c{number}", digest=f"{number:064x}").ok
    assert push(fleet, OTHERS, digest="f" * 64).why["code"] == "pushes"
    fleet.waits(120.0)
    fleet.files()
    assert push(fleet, OTHERS, digest="f" * 64).ok, "nothing has come of the others"
    fleet.waits(120.0)
    fleet.files()


def test_the_oldest_program_without_a_job_makes_room_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_programs, "MAX_PROGRAMS", 1)
    fleet = pushed(tmp_path)
    run(fleet)
    assert push(fleet, digest="f" * 64).why["code"] == "programs", "the only one has a job"
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    assert push(fleet, digest="f" * 64).ok
    assert known(fleet) == []
    fleet.waits(120.0)
    fleet.files()


def test_nobody_pushes_what_another_has_signed(tmp_path: Path) -> None:
    fleet = Coordinator(tmp_path)
    assert push(fleet, signer="alice").why["code"] == "signer"
    assert push(fleet, signer="op").ok
    assert isinstance(sends(fleet)[-1], m.Stored)


def test_whoever_pushes_the_same_program_adds_a_signature(tmp_path: Path) -> None:
    """A host whose owner trusts one of them goes on taking it, whoever pushes it later."""
    fleet = pushed(tmp_path, signer="op")
    assert push(fleet, "operator:ann/cli", signer="ann").data["is_there"]
    push(fleet, signer="op")
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    run(fleet)
    assign = host.heard(m.Assign)[-1]
    assert sorted(one.signer for one in assign.signatures) == ["ann", "op"]
    assert sorted(assign.program.signers) == ["ann", "op"]


def test_a_job_that_waits_has_the_signature_that_comes_later(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, signer="op")
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    run(fleet)
    assert not host.heard(m.Assign)
    push(fleet, "operator:ann/cli", signer="ann")
    assert sorted(one.signer for one in host.heard(m.Assign)[-1].signatures) == ["ann", "op"]


def test_a_program_and_its_parcel_outlive_a_crash(tmp_path: Path) -> None:
    fleet = pushed(tmp_path).crashes()
    assert known(fleet) == [("vision", 0, [])]
    fleet.waits(8 * 3600.0)
    fleet.files()
    assert fleet.store.has(programs.DIGEST), "nothing that is known is cleaned up"


def test_a_job_goes_to_the_host_that_lets_its_program_in(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, signer="op")
    fleet.host().joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    assert run(fleet).ok
    why = fleet.asks(m.AskWhy(id=fleet.new_id(), job="mine")).data
    assert [one["code"] for one in why["hosts"][0]["reasons"]] == ["not-signed"]
    host = fleet.host()
    host.returns(programs=m.ProgramsAllowed(signed_by=("op",)), trainers={})
    assign = host.heard(m.Assign)[-1]
    assert assign.program.digest == programs.DIGEST
    assert [one.signer for one in assign.signatures] == ["op"]
    assert known(fleet) == [("vision", 1, ["pi"])]


def test_the_events_tell_a_program_that_was_there_from_a_new_one(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    push(fleet)
    fleet.tells(m.AskEvents(id="story"))
    fleet.files()
    told = [one["why"] for one in fleet.answers()[-1].data["events"] if one["event"] == "push"]
    assert [one["is_there"] for one in told] == [False, True]


def test_a_jobs_row_has_its_program(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    run(fleet)
    rows = fleet.asks(m.AskList(id="rows")).data["jobs"]
    told = {row["name"]: (row["model"], row.get("program")) for row in rows}
    assert told == {"job": ("gbt", None), "mine": ("vision", programs.DIGEST)}


def test_each_program_is_listed_with_its_own_jobs_and_hosts(tmp_path: Path) -> None:
    fleet = pushed(tmp_path, signer="op")
    other = ProgramRecord(programs.offer("sound", "f" * 64), fleet.now.text(), "operator:op")
    fleet.core.world.programs[other.digest] = other
    for name in ("b", "a"):
        fleet.host(name).joins(programs=m.ProgramsAllowed(signed_by=("op",)), trainers={})
    fleet.host("c").joins(programs=m.ProgramsAllowed(unsigned=True), trainers={})
    fleet.host("closed").joins()
    run(fleet)
    assert known(fleet) == [("vision", 1, ["a", "b"]), ("sound", 0, ["c"])]


@pytest.mark.parametrize("name", ["vision", f"vision@{programs.DIGEST[:6]}", programs.DIGEST[:9]])
def test_a_program_is_removed_when_no_job_has_it(tmp_path: Path, name: str) -> None:
    fleet = pushed(tmp_path)
    run(fleet)
    refused = remove(fleet, name)
    assert (refused.why["code"], refused.why["jobs"]) == ("program_in_use", ["mine"])
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    assert remove(fleet, name).ok
    assert known(fleet) == []
    assert remove(fleet, name).why["code"] == "no_program"
    assert known(fleet.crashes()) == []


def test_a_program_that_the_manifest_names_stays(tmp_path: Path) -> None:
    """Else the manifest could not be read again, and no coordinator would start with it."""
    planned = replace(spec("mine"), model="vision", program=programs.program())
    fleet = Coordinator(tmp_path, planned)
    push(fleet)
    sends(fleet)
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    assert remove(fleet).why["code"] == "program_in_use"
    fleet.handle(ManifestRead(Plan(())))
    assert remove(fleet).ok


def test_a_name_that_several_programs_have_means_the_newest(tmp_path: Path) -> None:
    """Of a digest's beginning that fits several, all are named, and none is removed."""
    fleet = pushed(tmp_path)
    later = b"z" * len(programs.PARCEL)
    digest = hashlib.sha256(later).hexdigest()
    push(fleet, digest=digest)
    sends(fleet, later)
    why = remove(fleet, "vision@").why
    assert (why["code"], why["count"]) == ("no_program", 2)
    assert why["there"] == [f"vision@{programs.DIGEST[:12]}", f"vision@{digest[:12]}"]
    assert remove(fleet, f"other@{digest}").why["count"] == 0, "it has another name"
    why = remove(fleet, "vison").why
    assert (why["meant"], why["there"], remove(fleet, digest[:4]).ok) == ("vision", [], False)
    assert remove(fleet, "vision").data["digest"] == digest
    assert remove(fleet, "vision").data["digest"] == programs.DIGEST
