"""Which host is given which job, told as stories; the board against a plain scan is elsewhere."""

from __future__ import annotations

from dataclasses import replace

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.core.effects import ManifestRead
from coordinator.jobs.plan_entries import HostPolicy, Plan
from tests.harness.coordinator import Fleet, joined, spec
from tests.harness.plainscan import compared


def test_a_lost_job_goes_back_to_the_host_that_may_have_its_checkpoint() -> None:
    with compared():
        fleet = Fleet(spec())
        large = fleet.host("large").joins(physical_cores=16)
        large.runs()
        large.status("offline", "lost")
        fleet.asks(m.AskPause(id="p"))
        fleet.passes(3600)
        assert fleet.job().state == "pending"
        fleet.host("small").joins(physical_cores=2)
        back = fleet.host("large")
        back.session, back.instance = "s-2", "i-2"
        back.joins(physical_cores=16)
        fleet.asks(m.AskPause(id="q", off=True))
        assert (fleet.job().state, fleet.job().host) == ("claimed", "large")


def test_a_host_that_comes_free_is_given_the_next_job_in_claim_order() -> None:
    with compared():
        fleet, pi = joined(*(spec(f"job-{number}", priority=number) for number in range(5)))
        first = pi.runs("job-4")
        fleet.plan(*(spec(f"job-{number}", priority=number) for number in range(8)))
        pi.reports(m.Failed, first, error="e", exit_code=1, transient=False)
        assert fleet.job("job-7").state == "claimed"


def test_a_message_may_have_several_reports() -> None:
    """J3; one that has something else as well is garbage."""
    fleet, pi = joined(spec())
    job = fleet.job()
    about = {"job_id": job.job_id, "attempt": 1, "session": pi.session, "instance": pi.instance}
    (assign,) = pi.heard(m.Assign)
    accepted = m.encode(m.Accepted(**about, id="a", request_id=assign.id))
    started = m.encode(m.Started(**about, id="s", slot=0, pid=7))
    topic = fleet.topics.response(pi.name)
    fleet.handle(Incoming(topic, b"[%s,7]" % accepted))
    assert (fleet.core.world.dropped["job/response"], pi.heard(m.Lease)) == (1, [])
    fleet.handle(Incoming(topic, b"[%s,%s]" % (accepted, started)))
    assert fleet.job().state == "running"
    assert len(pi.heard(m.Lease)) == 1


def _held(fleet: Fleet) -> dict[str, str | None]:
    jobs = fleet.core.world.book.all()
    return {job.spec.name: job.host for job in jobs if job.state == "claimed"}


def test_a_host_of_quick_jobs_is_given_the_next_ones_ahead() -> None:
    """As many as it has slots; a host with a free slot comes first."""
    with compared():
        fleet = Fleet(*(spec(f"job-{number}", priority=-number) for number in range(9)))
        pi = fleet.host("pi").joins(slots=2)
        assert [*_held(fleet)] == ["job-0", "job-1"]
        pi.reports(m.Failed, fleet.job("job-0"), error="e", transient=False, ran_s=0.4)
        assert [*_held(fleet)] == ["job-1", "job-2", "job-3", "job-4"]
        fleet.host("other").joins(slots=2)
        pi.reports(m.Failed, fleet.job("job-1"), error="e", transient=False, ran_s=0.4)
        others = [name for name, host in _held(fleet).items() if host == "other"]
        assert others == ["job-5", "job-6"]
        assert [*_held(fleet)].count("job-7") == 1


def test_a_host_of_long_jobs_is_given_none_ahead() -> None:
    """Nor one that gave back what it was given ahead, nor one that runs another model."""
    with compared():
        jobs = [spec(f"job-{number}", priority=-number) for number in range(9)]
        fleet = Fleet(*jobs[:5], replace(jobs[5], model="cnn"), *jobs[6:])
        trainers = dict.fromkeys(("gbt", "cnn"), m.TrainerInfo(hyper_schema={}))
        pi = fleet.host("pi").joins(trainers=trainers)

        def ends(number: int, ran_s: float) -> list[str]:
            job = fleet.job(f"job-{number}")
            pi.reports(m.Failed, job, error="e", transient=False, ran_s=ran_s)
            return [*_held(fleet)]

        assert ends(0, 60.0) == ["job-1"]
        assert ends(1, 0.4) == ["job-2", "job-3"]
        pi.reports(m.Released, fleet.job("job-3"), why=m.Why(code="busy"))
        assert [*_held(fleet)] == ["job-2"]
        assert ends(2, 0.4) == ["job-3", "job-4"]
        assert ends(3, 0.4) == ["job-4", "job-5"]
        assert ends(4, 0.4) == ["job-5"], "nobody knows how long a cnn takes there"


def test_a_restart_gives_nobody_the_card_that_the_manifest_keeps_jobs_off() -> None:
    """What was assigned is asked for again, from a ledger that does not know of the manifest."""
    job = spec(prefer_cuda=True)
    plan = ManifestRead(Plan((job,), {"pi": HostPolicy("pi", cuda=False)}))
    fleet = Fleet(prefer_cuda_grace_s=0.0)
    fleet.handle(plan)
    pi = fleet.host().joins(gpus=(m.Gpu(index=0),))
    assert {one.use_cuda for one in pi.heard(m.Assign)} == {False}
    fleet.start()
    fleet.sent.clear()  # a service reads the manifest before it connects
    fleet.handle(plan)
    pi.joins(gpus=(m.Gpu(index=0),))
    fleet.passes(3)
    assert {one.use_cuda for one in pi.heard(m.Assign)} == {False}
