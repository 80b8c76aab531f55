"""Retries, quarantine, late results, twins, and how a host is in one word."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.core.effects import ArtifactLost, Collect, Collected
from tests.harness.coordinator import HEX, Fleet, Host, joined, running, spec


def _fails(
    host: Host, name: str = "job", error: str = "CUDA is out of memory", **more: Any
) -> None:
    host.reports(m.Failed, host.runs(name), error=error, exit_code=1, **more)


def test_a_failure_that_may_pass_is_tried_again_after_a_while() -> None:
    fleet, pi = joined(spec(retries=2))
    _fails(pi)
    assert (fleet.job().state, fleet.job().failures) == ("pending", 1)
    assert fleet.history[-1] == ("job", "retried")
    due_s = fleet.core.world.timers.when_s(("retry", fleet.job().job_id))
    fleet.passes(due_s - fleet.mono_s - 0.25)
    assert "retry" in fleet.reasons(), "to the end"
    assert not pi.heard(m.Assign)
    fleet.passes(30)
    assert fleet.job().attempt == 2
    _fails(pi, error="again")
    fleet.passes(29)
    assert not pi.heard(m.Assign), "the second wait is longer than the first may be"
    fleet.passes(40)
    _fails(pi, error="again")
    assert (fleet.job().state, fleet.job().error) == ("failed", "again")


def test_a_failure_that_cannot_pass_is_final_at_once_and_a_requeue_gives_fresh_retries() -> None:
    """Exit code 2: bad hyperparameters, missing data."""
    fleet, pi = joined(spec(retries=1))
    _fails(pi)
    fleet.passes(40)
    _fails(pi, error="no such column", transient=False)
    assert (fleet.job().state, fleet.job().error) == ("failed", "no such column")
    assert fleet.job().failures == 1
    fleet.asks(m.AskRequeue(id="q", job="job"))
    assert (fleet.job().state, fleet.job().failures) == ("claimed", 0)


def test_a_retry_goes_to_another_host_if_there_is_one() -> None:
    """The one on which it failed is held back for a while."""
    fleet, pi, job = running()
    attic = fleet.host("attic").joins()
    pi.reports(m.Failed, job, error="e", exit_code=1)
    fleet.passes(31)
    assert attic.heard(m.Assign)


def test_a_retry_waits_across_a_restart() -> None:
    fleet, pi = joined(spec())
    _fails(pi)
    fleet.start()
    pi.joins()
    assert not pi.heard(m.Assign)
    fleet.passes(31)
    assert pi.heard(m.Assign)


def test_requeue_leaves_a_kept_checkpoint_aside() -> None:
    fleet, pi = joined(spec(), max_attempts=1)
    fleet.core.world.stored[HEX] = 2000
    pi.reports(m.Released, pi.runs(), why=m.Why(code="quiet"), artifact_id=HEX, size_bytes=2000)
    (again,) = pi.heard(m.Assign)
    assert again.checkpoint.artifact_id == HEX
    pi.reports(m.Failed, fleet.job(), error="no", transient=False)
    fleet.asks(m.AskRequeue(id="q", job="job"))
    (anew,) = pi.heard(m.Assign)
    assert anew.checkpoint is None


def _sickens(fleet: Fleet, drained_by: str = "") -> Host:
    """Three jobs fail on a host, and are completed on another; perhaps it is drained meanwhile."""
    fleet.core.world.stored[HEX] = 2000
    sick, well = fleet.host("sick").joins(), fleet.host("well")
    for number in range(3):
        fleet.plan(*(spec(f"job{one}") for one in range(number + 1)))
        _fails(sick, f"job{number}")
        if drained_by and number == 2:
            fleet.asks(m.AskDrain(id="d", host="sick"), f"{drained_by}/cli")
        sick.status("offline", "lost")
        well.joins()
        fleet.passes(31)
        job = next(job for job in fleet.ledger.values() if job.state == "claimed")
        well.reports(m.Started, job, slot=0, pid=1)
        well.reports(m.Finished, job, artifact_id=HEX, size_bytes=2000)
        well.status("offline", "goodbye")
        well.session += "x"
        sick.session += "x"
        sick.joins()
    return sick


def test_a_host_on_which_others_jobs_fail_is_put_in_quarantine() -> None:
    """Three jobs that failed on it and were completed elsewhere; resume lifts it."""
    fleet = Fleet()
    sick = _sickens(fleet)
    fleet.plan(*(spec(f"job{number}") for number in range(4)))
    (reason,) = fleet.records["sick"].restraints()
    assert reason.figures["jobs"] == ["job0", "job1", "job2"]
    assert reason.figures["at"] == fleet.now.text()
    assert reason.code in fleet.reasons("job3")
    fleet.start()
    sick.joins()
    assert fleet.job("job3").state == "pending", "it is remembered across a restart"
    fleet.asks(m.AskResume(id="r", host="sick"))
    assert fleet.job("job3").host == "sick"


def test_a_success_clears_a_host() -> None:
    """Failures alone are no proof against it."""
    fleet, pi = joined(spec("a"), spec("b"))
    fleet.core.world.stored[HEX] = 2000
    _fails(pi, "a")
    pi.finishes(pi.runs("b"))
    assert "pi" not in fleet.core.world.evidence


def _gives_up(fleet: Fleet, pi: Host) -> Any:
    job = pi.runs()
    fleet.passes(60)
    assert fleet.job().state == "failed"
    return job


def test_a_result_that_comes_after_its_job_was_given_up_is_kept() -> None:
    """The job stays failed; requeue takes the result instead of training again."""
    fleet, pi = joined(spec(), stale_after_s=50.0, max_attempts=1)
    job = _gives_up(fleet, pi)
    pi.beats((job.job_id, 1, "reporting"))
    assert not pi.heard(m.Cancel), "it is told to stop what it has finished"
    fleet.core.world.stored[HEX] = 2000
    assert pi.finishes(job) == "stored"
    assert (fleet.job().state, fleet.job().artifact_id) == ("failed", HEX)
    assert fleet.history[-1] == ("job", "kept")
    assert pi.finishes(job) == "stored", "an answer that was lost is repeated"
    fleet.asks(m.AskRequeue(id="q", job="job"))
    assert (fleet.job().state, fleet.job().artifact_id) == ("completed", HEX)
    assert fleet.job().metrics == {"auroc": 0.9}


def test_a_late_result_is_uploaded_like_any_other() -> None:
    fleet, pi = joined(spec(), stale_after_s=50.0, max_attempts=1)
    job = _gives_up(fleet, pi)
    pi.beats((job.job_id, 1, "running"))
    (cancel,) = pi.heard(m.Cancel)
    assert cancel.keep_finished
    pi.brings_home(job)
    assert (fleet.job().state, fleet.job().artifact_id) == ("failed", HEX)


def test_an_assignment_is_for_one_process_of_the_agent() -> None:
    """Another process of that name takes no part; the claim is taken back at once."""
    fleet, pi = joined(spec())
    assert pi.heard(m.Assign)[0].instance == "i-pi"
    pi.session, pi.instance = "s-2", "i-2"
    pi.status("online", "birth")
    assert (fleet.job().state, fleet.job().losses) == ("pending", 0)
    pi.joins()
    (assign,) = pi.heard(m.Assign)
    assert (assign.instance, assign.attempt) == ("i-2", 2)


def test_a_host_holds_what_the_ledger_says_between_two_heartbeats() -> None:
    """`workers` and `list` agree; a heartbeat tells how far a job is, and what is to be stopped."""
    fleet, pi = joined(spec())

    def holds() -> list[tuple[str, str]]:
        return [(job["name"], job["phase"]) for job in fleet.worker()["jobs"]]

    (assign,) = pi.heard(m.Assign)
    assert holds() == [("job", "starting")]
    pi.reports(m.Accepted, fleet.job(), request_id=assign.id)
    pi.reports(m.Started, fleet.job(), slot=0, pid=7)
    assert holds() == [("job", "running")]
    pi.beats((fleet.job().job_id, 1, "bundling"))
    assert holds() == [("job", "bundling")]
    pi.brings_home(fleet.job())
    assert fleet.job().state == "completed"
    assert holds() == [], "its heartbeat is older"
    pi.beats(("e" * 64, 3, "running"))
    assert [job["phase"] for job in fleet.worker()["jobs"]] == ["stopping"]


@pytest.mark.parametrize(
    ("how", "word"),
    [("goodbye", "left"), ("reset", "cut-off"), ("cut", "cut-off"), ("sleep", "asleep"),
     ("battery", "asleep"), ("silence", "silent")],
)  # fmt: skip
def test_presence_in_one_word(how: str, word: str) -> None:
    """P7: a silent host is away whatever the broker says or does not say."""
    fleet = Fleet()
    pi = fleet.host().joins(battery=how == "battery")
    assert fleet.worker()["presence"] == "online"
    if how == "sleep":
        pi.beats(suspended_s=30.0)
    if how == "silence":
        fleet.passes(99)
        assert fleet.worker()["presence"] == "online"
        fleet.passes(2)
    else:
        fleet.passes(5 if how in {"reset", "goodbye"} else 50)
        pi.status("offline", "goodbye" if how == "goodbye" else "lost")
    assert fleet.worker()["presence"] == word
    if how == "silence":
        pi.beats()
        assert fleet.worker()["presence"] == "online"


def test_old_artifacts_are_collected_but_never_a_jobs_result() -> None:
    """What may go is forgotten first, and known again when it was too young to go."""
    fleet = Fleet(spec())
    world = fleet.core.world
    other, young = "0a" * 32, "0b" * 32
    world.stored.update({HEX: 2000, other: 10, young: 20})
    pi = fleet.host().joins()
    pi.finishes(pi.runs())
    assert fleet.job().artifact_id == HEX
    fleet.passes(301)
    (collect,) = fleet.took(Collect)
    assert collect.unreferenced == (other, young)
    assert {*world.stored} == {HEX}
    fleet.handle(Collected({young: 20}))
    assert world.stored == {HEX: 2000, young: 20}
    fleet.passes(7 * 3600)
    assert fleet.took(Collect), "again and again"


def test_an_artifact_that_was_deleted_by_hand_is_asked_for_again() -> None:
    """Nothing is completed by what the store only believes to have."""
    fleet, pi, job = running()
    fleet.core.world.stored[HEX] = 2000
    fleet.handle(ArtifactLost(HEX))
    assert pi.finishes(job) == "wanted"
    assert fleet.job().state == "running"
    assert fleet.asks(m.AskFetch(id="f", job="job")).code == "not_found"
