"""Which host is given which job, told as stories; the board against a plain scan is elsewhere."""

from __future__ import annotations

from broker.protocol import messages as m
from coordinator.core.effects import ManifestRead
from coordinator.jobs.plan_entries import HostPolicy, Plan
from tests.harness.coordinator import Fleet, spec
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


def test_a_job_behind_many_that_do_not_fit_is_found() -> None:
    never = [spec(f"never-{number:03}", priority=5, min_ram_gib=99.0) for number in range(300)]
    with compared():
        fleet = Fleet(*never)
        fleet.host("pi").joins()
        fleet.plan(*never, spec("last", priority=-1))
        assert fleet.job("last").state == "claimed"


def test_a_host_that_comes_free_is_given_the_next_job_in_claim_order() -> None:
    with compared():
        fleet = Fleet(*(spec(f"job-{number}", priority=number) for number in range(5)))
        pi = fleet.host("pi").joins()
        first = pi.runs("job-4")
        fleet.plan(*(spec(f"job-{number}", priority=number) for number in range(8)))
        pi.reports(m.Failed, first, error="e", exit_code=1, transient=False)
        assert fleet.job("job-7").state == "claimed"


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
