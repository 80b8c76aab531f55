"""Certificates given and taken back: recorded once, and a revoked host is given nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.embedded import Reason
from broker.errors import ConfigError
from broker.pki import ca_journal
from broker.pki.ca import Authority
from broker.protocol import messages as m
from coordinator.cli.status import _BY_BROKER
from coordinator.core.effects import JournalRead, PartStored
from coordinator.jobs.causes import cause
from coordinator.jobs.records import Action, Revocation
from coordinator.ledger.ledger import Ledger
from coordinator.service.journal_reader import JournalReader
from tests.harness.coordinator import HEX, Fleet, joined, running, spec

ALICE = "operator:alice/cli"


def entry(fleet: Fleet, action: Any = "revoke", name: str = "pi", **more: Any) -> m.AskIdentity:
    """What is told of the CA."""
    fields = {"id": f"e-{action}-{name.replace(':', '-')}", "made_at": fleet.now.wall_s} | more
    return m.AskIdentity(action=action, name=name, **fields)


def test_a_revoked_host_gives_back_its_job_and_gets_no_other() -> None:
    """On a broker that lets it stay as well; it is told to stop, and others are given the job."""
    fleet, pi = joined(spec())
    pi.runs()
    answer = fleet.asks(entry(fleet), ALICE)
    assert answer.data == {"name": "pi", "jobs": ["job"]}
    assert (fleet.job().state, fleet.job().host, fleet.job().losses) == ("pending", None, 0)
    row = fleet.worker()
    assert (row["presence"], row["status"]) == ("revoked", "online")
    assert [(one["code"], one["who"]) for one in row["barred"]] == [("revoked", "operator:alice")]
    why = fleet.why()
    assert row["barred"][0] in why["hosts"][0]["reasons"]
    assert fleet.host("other").joins().heard(m.Assign)[0].attempt == 2


def test_a_revoked_host_is_named_also_where_nothing_else_is_known_of_it() -> None:
    """After a restart of the coordinator, which takes nothing from it but that it is away."""
    fleet, _ = joined(spec())
    fleet.asks(entry(fleet), ALICE)
    revoked = dict(fleet.core.world.revoked)
    fleet.start()
    fleet.core.world.revoked.update(revoked)  # by the ledger
    fleet.plan(spec(), replace(spec("other"), denied_hosts=("pi",)))
    fleet.host().status("offline", "lost")

    would_help = [{"code": "enroll-unknown", "hosts": ["pi"], "count": 1}]
    assert fleet.why()["remedies"] == would_help
    assert fleet.why("other")["remedies"] == []


def test_nothing_that_a_revoked_host_says_counts() -> None:
    """Its result neither; but that it goes may be known. All of it is counted."""
    fleet, pi, job = running()
    fleet.asks(entry(fleet), ALICE)
    before = str(fleet.ledger)
    assert pi.finishes(job) is None
    pi.uploads()
    pi.beats((job.job_id, 1, "running"))
    pi.reports(m.Failed, job, error="forged")
    fleet.handle(PartStored(HEX, 2000))
    assert str(fleet.ledger) == before
    assert not fleet.core.world.uploads
    assert fleet.status()["refused"]["revoked"] == 5
    pi.status("offline", "lost")
    assert fleet.worker()["status"] == "offline"
    assert fleet.worker()["presence"] == "revoked"


def test_a_host_that_is_enrolled_again_is_given_jobs_again() -> None:
    """`fleet resume` is not for that, and says what is."""
    fleet, pi = joined(spec())
    fleet.asks(entry(fleet), ALICE)
    refusal = fleet.asks(m.AskResume(id="r", host="pi"), ALICE)
    assert refusal.why["reason"]["code"] == "revoked"
    pi.heard(m.Assign)
    fleet.asks(entry(fleet, "enroll"), ALICE)
    fleet.passes(90)  # it may have been at work on what it was told to stop
    pi.joins()
    assert pi.heard(m.Assign)[0].attempt == 2
    assert fleet.worker()["presence"] == "online"


def test_a_host_that_is_back_before_we_hear_of_it_is_asked_at_once() -> None:
    """Its agent connects as soon as it has the certificate, and what it is was refused then."""
    fleet, pi = joined(spec())
    fleet.asks(entry(fleet), ALICE)
    fleet.passes(90)
    pi.status("offline", "lost")
    pi.heard(m.Assign)
    pi.returns()
    assert not pi.heard(m.Assign)
    fleet.asks(entry(fleet, "enroll"), ALICE)
    assert len(pi.heard(m.Rebirth)) == 1
    pi.joins()
    assert len(pi.heard(m.Assign)) == 1


def test_it_stays_revoked_when_the_coordinator_restarts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    at = ["2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z", "2020-01-03T00:00:00.000Z"]

    def action(number: int, word: str, host: str | None, who: str = "operator:a") -> Action:
        return Action(at[number], who, word, "done", "", None, None, host)

    ledger.commit([
        action(0, "enroll", "pi"), action(1, "revoke", "pi"), action(0, "revoke", "back"),
        action(1, "enroll", "back"), action(0, "revoke", "gone", "operator:b"),
        action(0, "revoke", None), replace(action(2, "enroll", "gone"), outcome="refused"),
    ])  # fmt: skip
    expected = {
        "pi": Revocation(at[1], "operator:a"), "gone": Revocation(at[0], "operator:b"),
    }  # fmt: skip
    assert ledger.load_revoked() == expected
    assert ledger.prune_actions("2021-01-01T00:00:00.000Z", 100, 100) == 4
    assert ledger.load_revoked() == expected
    ledger.close()


def test_an_entry_counts_once_whoever_tells_of_it() -> None:
    """By its id: told by a command whose answer got lost, told again, and read by the file."""
    fleet, _ = joined(spec())
    first = fleet.asks(entry(fleet), ALICE)
    assert fleet.asks(entry(fleet), "operator:alice/another") == first
    fleet.handle(JournalRead((("operator:alice", entry(fleet)),)))
    fleet.start()
    fleet.handle(JournalRead((("operator:alice", entry(fleet)),)))
    rows = [one for one in fleet.actions if one.action == "revoke"]
    assert [(one.who, one.host, one.outcome) for one in rows] == [("operator:alice", "pi", "done")]


def test_the_record_says_who_and_when_and_what_came_of_it() -> None:
    """An entry that is told late, or by somebody else, says so."""
    fleet, _, _ = running()
    fleet.asks(entry(fleet, who="operator:bob", made_at=fleet.now.wall_s - 3600), ALICE)
    fleet.asks(entry(fleet, "enroll", "operator:carl", what="in a file"), ALICE)
    fleet.asks(entry(fleet, "init", "operator:alice", what="the CA"), ALICE)
    told = [(one.who, one.action, one.host, one.what) for one in fleet.actions[1:]]
    late = "2027-01-15T07:16:40.000Z"
    assert told == [
        ("operator:alice", "revoke", "pi",
         cause("certificate", by="operator:bob", made_at=late, jobs=["job"])),
        ("operator:alice", "enroll", None,
         cause("certificate", name="operator:carl", text="in a file")),
        ("operator:alice", "init", None, cause("certificate", text="the CA")),
    ]  # fmt: skip


@pytest.mark.parametrize("user", ["homeassistant", "observer:bob"])
def test_operators_alone_tell_of_certificates(user: str) -> None:
    """A dashboard that may cancel a job may not lock hosts out."""
    fleet, _ = joined(spec())
    answer = fleet.asks(entry(fleet), f"{user}/x")
    assert (answer.ok, answer.code) == (False, "refused")
    assert fleet.worker()["presence"] == "online"


def _done(id_: str, action: Any) -> m.AskIdentity:
    return m.AskIdentity(id=id_, action=action, name="pi", who="operator:a", made_at=1.8e9)


@pytest.mark.posix  # modes are
def test_the_journal_is_kept_beside_the_ca(tmp_path: Path) -> None:
    """For its owner alone, bounded, with what was told; a damaged one is named."""
    authority = Authority.create(tmp_path / "ca", 1.8e9)
    assert ca_journal.read(authority.folder).entries == ()
    for number in range(ca_journal.MAX_ENTRIES + 2):
        one = _done(f"e{number}", "enroll")
        if number < 2 or number > ca_journal.MAX_ENTRIES - 2:
            ca_journal.add(authority, one)
    path = authority.folder / ca_journal.FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    ca_journal.mark_told(authority, ["e0"])
    read = ca_journal.read(authority.folder)
    assert ([one.id for one in read.entries][:2], read.untold()[0].id) == (["e0", "e1"], "e1")
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"journal\.json: is damaged"):
        ca_journal.read(authority.folder)


def test_a_coordinator_that_has_the_ca_reads_what_is_new(tmp_path: Path) -> None:
    """A file that is damaged, or strange, changes nothing."""
    authority = Authority.create(tmp_path / "ca", 1.8e9)
    reader = JournalReader(authority.folder)
    assert reader.news() is None
    ca_journal.add(authority, _done("e1", "revoke"))
    news = reader.news()
    assert news is not None
    assert [(who, ask.id, ask.action) for who, ask in news.entries] == [
        ("operator:a", "e1", "revoke")
    ]
    assert "BEGIN X509 CRL" in news.crl
    assert reader.news() is None, "nothing is new"
    path = authority.folder / ca_journal.FILE_NAME
    path.write_text(path.read_text().replace("revoke", "steal"))
    assert reader.news() is None
    (authority.folder / ca_journal.FILE_NAME).write_text("{")
    assert reader.news() is None


def test_every_reason_of_the_broker_has_words() -> None:
    """`fleet status` tells people what each count is."""
    assert {reason.value for reason in Reason} == set(_BY_BROKER)
