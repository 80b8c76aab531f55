"""How artifacts come in: results and checkpoints, from the report to the store."""

from __future__ import annotations

import pytest

from broker.protocol import messages as m
from broker.stream.ranges import RangeSet
from coordinator.core import effects as fx
from coordinator.core.uploads import ABANDONED_S, MAX_UPLOADS
from tests.harness.coordinator import HEX, Fleet, Host, joined, running, spec


def _offers(fleet: Fleet, host: Host, artifact_id: str) -> bool:
    """A host announces its job's result; whether it may send."""
    (job,) = fleet.core.world.book.held_by(host.name)
    host.reports(m.Finished, job, artifact_id=artifact_id, size_bytes=2000)
    for opened in fleet.took(fx.OpenPart):
        fleet.handle(fx.PartOpened(opened.artifact_id, RangeSet(), opened.part))
    return bool(host.heard(m.Grant))


def test_an_artifact_comes_home() -> None:
    """finished, grant, chunks, stored, completed, noted: in this order."""
    fleet, pi, job = running()
    assert pi.finishes(job) == "wanted"
    pi.uploads()
    assert [chunk.index for chunk in fleet.took(fx.WriteChunk)] == [0, 1]
    (finish,) = fleet.took(fx.FinishPart)
    assert (finish.model, finish.mode) == ("gbt", "oracle")
    assert fleet.job().state == "running", "completed before it is in the store"
    assert not pi.heard(m.Noted)
    fleet.handle(fx.PartStored(HEX, 2000))
    done = fleet.job()
    assert (done.state, done.artifact_id, done.host) == ("completed", HEX, "pi")
    assert [noted.verdict for noted in pi.heard(m.Noted)] == ["stored"]
    assert done.metrics == {"auroc": 0.9}
    assert pi.finishes(job) == "stored", "the agent did not hear it and reports again"
    pi.uploads()
    assert not fleet.took(fx.WriteChunk), "chunks that come late are dropped"


def test_a_disk_that_refuses_keeps_the_work() -> None:
    """The agent is told, and tries again until it fits."""
    fleet, pi, job = running()
    pi.finishes(job)
    pi.uploads()
    (upload,) = fleet.core.world.uploads.values()
    fleet.handle(fx.PartFailed(HEX, upload.part))
    assert pi.heard(m.Rejected)
    assert fleet.job().state == "running"
    pi.brings_home(job)
    assert fleet.job().state == "completed"


def test_an_ordinary_handover_of_a_checkpoint_is_no_false_report() -> None:
    """The answer to its report was lost: it repeats that, and the job has left it by then."""
    fleet, pi, job = running()
    fleet.asks(m.AskDrain(id="d", host="pi", now=True))
    pi.gives_back(job)
    pi.uploads()
    fleet.handle(fx.PartStored(HEX, 2000))
    assert (fleet.job().state, fleet.job().host) == ("pending", None)
    pi.heard(m.Noted)
    pi.gives_back(job)
    assert [noted.verdict for noted in pi.heard(m.Noted)] == ["stored"]
    assert not fleet.core.world.refused["report"]
    pi.gives_back(job, artifact_id="e" * 64)
    assert fleet.core.world.refused["report"] == 1, "of another checkpoint nobody knows"


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_what_is_given_back_late_is_not_lost_a_second_time(*, with_checkpoint: bool) -> None:
    """Its lease was over; a heartbeat from before comes after the report, and changes nothing."""
    fleet, pi, job = running(stale_after_s=50.0)
    pi.status("offline", "lost")
    fleet.passes(60)
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)
    fleet.asks(m.AskDrain(id="d", host="pi"))
    pi.session = "s-again"
    pi.status("online", "birth")
    if with_checkpoint:
        pi.gives_back(job)
        pi.uploads()
        fleet.handle(fx.PartStored(HEX, 2000))
    else:
        pi.reports(m.Released, job, why=m.Why(code="drained"), ran_s=12.0)
        assert fleet.changes[-1].ran_s == 12.0
    for _ in range(4):
        pi.beats((job.job_id, 1, "running"))
        for _ in range(3):
            pi.beats()
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)
    assert fleet.history.count(("job", "lost")) == 1


def _announces(host: Host, chunk_bytes: int) -> None:
    """Report the result again, cut into such chunks."""
    job = host.fleet.job()
    about = {"artifact_id": HEX, "size_bytes": 2000, "chunk_bytes": chunk_bytes}
    host.reports(m.Finished, job, **about)


def test_a_failure_of_an_earlier_opening_does_not_end_the_upload() -> None:
    """The agent has cut its artifact otherwise meanwhile; what it sends now is written."""
    fleet, pi = joined(spec())
    pi.runs()
    _announces(pi, 2048)
    (first,) = fleet.took(fx.OpenPart)
    fleet.handle(fx.PartOpened(HEX, RangeSet(), first.part))
    _announces(pi, 1024)
    (second,) = fleet.took(fx.OpenPart)
    fleet.handle(fx.PartFailed(HEX, first.part))
    fleet.handle(fx.PartOpened(HEX, RangeSet(), second.part))
    assert not pi.heard(m.Rejected)
    pi.uploads()
    assert fleet.took(fx.FinishPart)


def test_however_often_an_artifact_changes_one_part_is_opened_at_a_time() -> None:
    """While the disk hangs nothing piles up before it."""
    fleet, pi = joined(spec())
    pi.runs()
    for number in range(50):
        _announces(pi, 1024 * (1 + number % 2))
    assert len(fleet.took(fx.OpenPart)) == 1


def test_few_artifacts_of_one_host_come_at_once() -> None:
    """It must not take every place; its next one is taken when it is announced again."""
    fleet = Fleet(*(spec(name, seed=at) for at, name in enumerate("abc")))
    pi = fleet.host().joins(slots=3)
    jobs = [pi.fleet.job(name) for name in "abc"]
    for number, job in enumerate(jobs):
        pi.reports(m.Finished, job, artifact_id=f"{number}" * 64, size_bytes=2000)
    assert len(fleet.took(fx.OpenPart)) == 2
    fleet.handle(fx.PartStored("0" * 64, 2000))
    pi.reports(m.Finished, jobs[2], artifact_id="2" * 64, size_bytes=2000)
    assert [opened.artifact_id for opened in fleet.took(fx.OpenPart)] == ["2" * 64]


def test_a_part_that_is_being_checked_is_left_alone() -> None:
    """The same artifact, cut otherwise, must not open the file under the hasher."""
    fleet, pi, job = running()
    pi.finishes(job)
    pi.uploads()
    assert fleet.took(fx.FinishPart)
    _announces(pi, 2048)
    assert not fleet.took(fx.OpenPart)
    fleet.handle(fx.PartStored(HEX, 2000))
    assert fleet.job().state == "completed"


def test_hosts_that_are_away_keep_no_place_from_who_is_there() -> None:
    """A switch that fails leaves all of their uploads half done; a minute later others may come."""
    names = [f"host{number}" for number in range(MAX_UPLOADS + 2)]
    fleet = Fleet(*map(spec, names))
    hosts = [fleet.host(name).joins() for name in names]
    *gone, late, there = hosts
    assert all(_offers(fleet, host, f"{at:064x}") for at, host in enumerate(gone))
    assert not _offers(fleet, late, "a" * 64), "there is no place left"
    for host in gone:
        host.status("offline", "lost")
    fleet.passes(ABANDONED_S + 15)
    assert _offers(fleet, there, "b" * 64)
    assert _offers(fleet, late, "a" * 64)
    gone[0].status("online", "birth", "s-again")
    assert _offers(fleet, gone[0], f"{0:064x}")
