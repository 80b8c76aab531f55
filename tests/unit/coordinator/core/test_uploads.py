"""How artifacts come in: results and checkpoints, from the report to the store."""

from __future__ import annotations

import pytest

from broker.protocol import messages as m
from broker.protocol.events import Incoming
from broker.stream.ranges import RangeSet
from coordinator.core.effects import (
    AppendIndex,
    FinishPart,
    OpenPart,
    PartFailed,
    PartOpened,
    PartStored,
    WriteChunk,
)
from coordinator.core.uploads import MAX_UPLOADS
from tests.harness.coordinator import HEX, Fleet, Host, running, spec


def _offers(fleet: Fleet, host: Host, artifact_id: str) -> bool:
    """A host has its job's result to bring, and offers it; whether it may send."""
    (job,) = fleet.core.world.held_at(host.name)
    host.reports(m.Finished, job, artifact_id=artifact_id, size_bytes=2000)
    offer = m.Offer(
        job_id=job.job_id, attempt=1, instance=host.instance, size_bytes=2000, chunk_bytes=1024
    )
    host.says(fleet.topics.offer(host.name, artifact_id), offer)
    for opened in fleet.took(OpenPart):
        fleet.handle(PartOpened(opened.artifact_id, RangeSet(), opened.part))
    return bool(host.heard(m.Grant))


def test_an_artifact_comes_home() -> None:
    """finished, wanted, offer, grant, chunks, stored, completed: in this order."""
    fleet, pi, job = running()
    assert pi.finishes(job) == "wanted"
    pi.uploads(job)
    assert [chunk.index for chunk in fleet.took(WriteChunk)] == [0, 1]
    (finish,) = fleet.took(FinishPart)
    assert (finish.model, finish.mode) == ("gbt", "oracle")
    assert fleet.job().state == "running", "completed before it is in the store"
    assert not pi.heard(m.Stored)
    fleet.handle(PartStored(HEX, 2000))
    done = fleet.job()
    assert (done.state, done.artifact_id, done.host) == ("completed", HEX, "pi")
    assert pi.heard(m.Stored)
    assert fleet.took(AppendIndex)[0].row["metrics"] == {"auroc": 0.9}
    assert pi.finishes(job) == "stored", "the agent did not hear it and reports again"


def test_what_is_stored_already_completes_at_once() -> None:
    """S7: a re-run to the same bytes sends nothing."""
    fleet = Fleet(spec())
    fleet.core.world.stored[HEX] = 2000
    pi = fleet.host().joins()
    job = pi.runs()
    assert pi.finishes(job) == "stored"
    assert fleet.job().state == "completed"


def test_an_offer_that_nobody_awaits_is_sent_back_to_its_report() -> None:
    _, pi, job = running()
    pi.uploads(job)
    (rejected,) = pi.heard(m.Rejected)
    assert not rejected.final


def test_a_disk_that_refuses_keeps_the_work() -> None:
    """The agent is told, not finally, and may try again until it fits."""
    fleet, pi, job = running()
    pi.finishes(job)
    pi.uploads(job)
    (upload,) = fleet.core.world.uploads.values()
    fleet.handle(PartFailed(HEX, upload.part, "no space left"))
    (rejected,) = pi.heard(m.Rejected)
    assert not rejected.final
    assert fleet.job().state == "running"
    pi.brings_home(job)
    assert fleet.job().state == "completed"


def test_the_result_of_an_old_attempt_is_superseded() -> None:
    """J1: somebody else has the job now."""
    fleet, pi, job = running(stale_after_s=50.0)
    pi.status("offline", "lost")
    fleet.passes(60)
    fleet.host("attic").joins().runs()
    assert pi.finishes(job, attempt=1) == "superseded"
    assert fleet.job().host == "attic"


def test_the_result_of_the_newest_attempt_is_taken_late() -> None:
    """J6: also when the lease is long over."""
    fleet, pi, job = running(stale_after_s=50.0)
    pi.status("offline", "lost")
    fleet.passes(60)
    assert fleet.job().state == "pending"
    pi.brings_home(job, attempt=1)
    assert fleet.job().state == "completed"


def test_an_ordinary_handover_of_a_checkpoint_is_no_false_report() -> None:
    """The agent repeats its report when the checkpoint is stored, and the job has left it then."""
    fleet, pi, job = running()
    fleet.asks(m.AskDrain(id="d", host="pi", now=True))
    given_back = {"reason": "drained", "artifact_id": HEX, "size_bytes": 2000}
    pi.reports(m.Released, job, **given_back)
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    assert (fleet.job().state, fleet.job().host) == ("pending", None)
    pi.heard(m.Noted)
    pi.reports(m.Released, job, **given_back)
    assert [noted.verdict for noted in pi.heard(m.Noted)] == ["stored"]
    assert not fleet.core.world.refused["report"]
    pi.reports(m.Released, job, **{**given_back, "artifact_id": "e" * 64})
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
        pi.reports(m.Released, job, reason="drained", artifact_id=HEX, size_bytes=2000)
        pi.uploads(job)
        fleet.handle(PartStored(HEX, 2000))
    else:
        pi.reports(m.Released, job, reason="drained", ran_s=12.0)
        assert fleet.changes[-1].ran_s == 12.0
    for _ in range(4):
        pi.beats((job.job_id, 1, "running"))
        for _ in range(3):
            pi.beats()
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)
    assert fleet.history.count(("job", "lost")) == 1


def test_a_failure_of_an_earlier_opening_does_not_end_the_upload() -> None:
    """The agent has cut its artifact otherwise meanwhile; what it sends now is written."""
    fleet, pi, job = running()
    pi.finishes(job)
    topic = fleet.topics.offer("pi", HEX)
    offer = m.Offer(job_id=job.job_id, attempt=1, instance="i", size_bytes=2000, chunk_bytes=2048)
    pi.says(topic, offer)
    (first,) = fleet.took(OpenPart)
    fleet.handle(PartOpened(HEX, RangeSet(), first.part))
    pi.says(topic, offer.model_copy(update={"chunk_bytes": 1024}))
    (second,) = fleet.took(OpenPart)
    fleet.handle(PartFailed(HEX, first.part, "no space left"))
    fleet.handle(PartOpened(HEX, RangeSet(), second.part))
    assert not pi.heard(m.Rejected)
    for index, data in enumerate((b"x" * 1024, b"y" * 976)):
        fleet.handle(Incoming(fleet.topics.chunk("pi", HEX, index), data))
    assert fleet.took(FinishPart)


def test_however_often_an_offer_changes_one_part_is_opened_at_a_time() -> None:
    fleet, pi, job = running()
    pi.finishes(job)
    for number in range(50):
        pi.says(fleet.topics.offer("pi", HEX), m.Offer(
            job_id=job.job_id, attempt=1, instance="i", size_bytes=2000,
            chunk_bytes=1024 * (1 + number % 2),
        ))  # fmt: skip
    assert len(fleet.took(OpenPart)) == 1


def test_an_offer_is_answered_stored_as_often_as_it_comes() -> None:
    """S7: the agent did not hear it the first time."""
    fleet, pi, job = running()
    pi.finishes(job)
    pi.uploads(job)
    fleet.handle(PartStored(HEX, 2000))
    pi.heard(m.Stored)
    pi.uploads(job)
    assert pi.heard(m.Stored)
    assert not pi.heard(m.Rejected)


def test_a_part_that_is_being_checked_is_left_alone() -> None:
    """Another offer of the same artifact must not open the file under the hasher."""
    fleet, pi, job = running()
    pi.finishes(job)
    pi.uploads(job)
    assert fleet.took(FinishPart)
    offer = m.Offer(job_id=job.job_id, attempt=1, instance="i", size_bytes=2000, chunk_bytes=2048)
    pi.says(fleet.topics.offer("pi", HEX), offer)
    assert not fleet.took(OpenPart)
    fleet.handle(PartStored(HEX, 2000))
    assert fleet.job().state == "completed"


def test_failed_and_released_are_noted_each_time() -> None:
    """J3: the agent may not have heard the first answer."""
    fleet, pi, job = running()
    pi.reports(m.Failed, job, error="it diverged", exit_code=2, transient=False)
    assert fleet.job().error == "it diverged"
    assert pi.heard(m.Noted)[0].verdict == "recorded"
    pi.reports(m.Failed, job, error="it diverged", exit_code=1)
    assert pi.heard(m.Noted)[0].verdict == "superseded"
    assert fleet.history.count(("job", "failed")) == 1


def test_hosts_that_are_away_keep_no_place_from_who_is_there() -> None:
    """A switch that fails leaves all of their uploads half done; they go on when they are back."""
    names = [f"host{number}" for number in range(MAX_UPLOADS + 2)]
    fleet = Fleet(*map(spec, names))
    hosts = [fleet.host(name).joins() for name in names]
    *gone, late, there = hosts
    assert all(_offers(fleet, host, f"{at:064x}") for at, host in enumerate(gone))
    assert not _offers(fleet, late, "a" * 64), "there is no place left"
    for host in gone:
        host.status("offline", "lost")
    assert _offers(fleet, there, "b" * 64)
    assert _offers(fleet, late, "a" * 64)
    gone[0].status("online", "birth", "s-again")
    assert _offers(fleet, gone[0], f"{0:064x}")
