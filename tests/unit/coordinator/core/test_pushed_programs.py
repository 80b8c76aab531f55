"""Programs at the coordinator: who signs them, whom they go to, what they are called."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.programs.signatures import sign
from broker.programs.trust import verifier
from broker.protocol import messages as m
from coordinator.core.effects import JournalRead, ManifestRead
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import PushedRecord
from tests.harness import programs
from tests.harness.coordinator import spec
from tests.harness.pushing import asks, known, push, push_all, pushed, remove, run
from tests.harness.secure import FAKE_S, House
from tests.harness.shell import Coordinator, ledgers_closed  # noqa: F401 - a fixture

ANN = "operator:ann/cli"


def listed(fleet: Coordinator) -> list[tuple[str, int, list[str]]]:
    """Name, jobs and hosts of each program that is listed."""
    return [(one["name"], one["jobs"], one["hosts"]) for one in known(fleet, "program")]


def signed(signer: str, signature: m.ProgramSignature | None = None) -> m.ProgramOffer:
    return programs.offer(signer=signer, signature=signature)


def op_has_pushed(folder: Path) -> Coordinator:
    fleet = Coordinator(folder)
    push_all(fleet, signed("op"))
    return fleet


def removed(fleet: Coordinator, name: str = "vision") -> Any:
    return remove(fleet, "program", name)


@pytest.mark.parametrize("code", ["bad-signature", "other-ca", "expired", "signer-revoked"])
def test_a_signature_that_no_host_would_take_is_refused_at_once(tmp_path: Path, code: str) -> None:
    ours, fleet = House.make(tmp_path / "ours", at_s=FAKE_S), Coordinator(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ours.authority.pem)
    fleet.verify = verifier(tmp_path / "ca.crt", lambda: fleet.now)
    theirs = House.make(tmp_path / "theirs", at_s=FAKE_S) if code == "other-ca" else ours
    name = "other" if code == "bad-signature" else "vision"
    made = sign(theirs.identity("operator:op", days=2), name, programs.DIGEST)
    ask = m.AskPush(id="p", offer=signed("op", made))
    if code == "expired":
        fleet.mono_s += 3 * 86_400.0
    if code == "signer-revoked":
        ours.authority.revoke("operator:op", ours.now_s)
        fleet.handle(JournalRead((), ours.crl.decode()))
    answer = asks(fleet, ask)
    assert (answer.why["code"], answer.why["fault"]["code"]) == ("untrusted", code)
    assert answer.why["fault"]["signer"] == "op"
    assert not [said for _, said in fleet.sent if isinstance(said, m.Grant)]
    assert asks(fleet, ask) == answer, "a repetition is answered alike"


def test_a_signature_that_counts_is_checked_and_the_program_taken(tmp_path: Path) -> None:
    ours, fleet = House.make(tmp_path / "ours", at_s=FAKE_S), Coordinator(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ours.authority.pem)
    fleet.verify = verifier(tmp_path / "ca.crt", lambda: fleet.now)
    made = sign(ours.identity("operator:op"), "vision", programs.DIGEST)
    ask = m.AskPush(id="p", offer=signed("op", made))
    assert asks(fleet, ask) == asks(fleet, ask), "the answer may be lost on its way"
    assert push_all(fleet, signed("op", made)) == [programs.PARCEL]
    (tmp_path / "ca.crt").unlink()
    assert push(fleet, signed("op", made)).ok, "the hosts decide where it cannot be checked"


def test_nobody_pushes_what_another_has_signed(tmp_path: Path) -> None:
    fleet = Coordinator(tmp_path)
    assert push(fleet, signed("alice")).why["code"] == "signer"
    assert push_all(fleet, signed("op")) == [programs.PARCEL]


def test_whoever_pushes_the_same_program_adds_a_signature(tmp_path: Path) -> None:
    """A host whose owner trusts one of them goes on taking it, whoever pushes it later."""
    fleet = op_has_pushed(tmp_path)
    assert push(fleet, signed("ann"), ANN).data["is_there"]
    push(fleet, signed("op"))
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    run(fleet)
    assign = host.heard(m.Assign)[-1]
    assert sorted(one.signer for one in assign.signatures) == ["ann", "op"]
    assert sorted(assign.program.signers) == ["ann", "op"]


def test_a_job_that_waits_has_the_signature_that_comes_later(tmp_path: Path) -> None:
    fleet = op_has_pushed(tmp_path)
    host = fleet.host()
    host.joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    run(fleet)
    assert not host.heard(m.Assign)
    push(fleet, signed("ann"), ANN)
    assert sorted(one.signer for one in host.heard(m.Assign)[-1].signatures) == ["ann", "op"]


def test_a_job_goes_to_the_host_that_lets_its_program_in(tmp_path: Path) -> None:
    fleet = op_has_pushed(tmp_path)
    fleet.host().joins(programs=m.ProgramsAllowed(signed_by=("ann",)), trainers={})
    assert run(fleet).ok
    why = fleet.asks(m.AskWhy(id=fleet.new_id(), job="mine")).data
    assert [one["code"] for one in why["hosts"][0]["reasons"]] == ["not-signed"]
    host = fleet.host()
    host.returns(programs=m.ProgramsAllowed(signed_by=("op",)), trainers={})
    assign = host.heard(m.Assign)[-1]
    assert assign.program.digest == programs.DIGEST
    assert [one.signer for one in assign.signatures] == ["op"]
    assert listed(fleet) == [("vision", 1, ["pi"])]


def test_a_jobs_row_has_its_program(tmp_path: Path) -> None:
    fleet = pushed(tmp_path)
    run(fleet)
    rows = fleet.asks(m.AskList(id="rows")).data["jobs"]
    told = {row["name"]: (row["model"], row.get("program")) for row in rows}
    assert told == {"job": ("gbt", None), "mine": ("vision", programs.DIGEST)}


def test_each_program_is_listed_with_its_own_jobs_and_hosts(tmp_path: Path) -> None:
    fleet = op_has_pushed(tmp_path)
    other = PushedRecord(programs.offer("sound", "f" * 64), fleet.now.text(), "operator:op")
    fleet.core.world.pushed[other.offer.title] = other
    for name in ("b", "a"):
        fleet.host(name).joins(programs=m.ProgramsAllowed(signed_by=("op",)), trainers={})
    fleet.host("c").joins(programs=m.ProgramsAllowed(unsigned=True), trainers={})
    fleet.host("closed").joins()
    run(fleet)
    assert listed(fleet) == [("vision", 1, ["a", "b"]), ("sound", 0, ["c"])]


def test_a_program_that_the_manifest_names_stays(tmp_path: Path) -> None:
    """Else the manifest could not be read again, and no coordinator would start with it."""
    planned = replace(spec("mine"), model="vision", program=programs.program())
    fleet = Coordinator(tmp_path, planned)
    push_all(fleet)
    fleet.asks(m.AskCancel(id=fleet.new_id(), job="mine"))
    assert removed(fleet).why["code"] == "program_in_use"
    fleet.handle(ManifestRead(Plan(())))
    assert removed(fleet).ok


def test_a_name_that_several_programs_have_means_the_newest(tmp_path: Path) -> None:
    """Of a digest's beginning that fits several, all are named, and none is removed."""
    fleet = pushed(tmp_path)
    later = b"z" * len(programs.PARCEL)
    digest = hashlib.sha256(later).hexdigest()
    push_all(fleet, programs.offer(digest=digest), [later])
    why = removed(fleet, "vision@").why
    assert (why["code"], why["count"]) == ("no_program", 2)
    assert why["there"] == [f"vision@{programs.DIGEST[:12]}", f"vision@{digest[:12]}"]
    assert removed(fleet, f"other@{digest}").why["count"] == 0, "it has another name"
    why = removed(fleet, "vison").why
    assert (why["meant"], why["there"], removed(fleet, digest[:4]).ok) == ("vision", [], False)
    assert removed(fleet, "vision").data["digest"] == digest
    assert removed(fleet, "vision").data["digest"] == programs.DIGEST
