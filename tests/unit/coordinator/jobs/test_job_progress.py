"""How far a job is: of its newest attempt, and one number whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.faces.homeassistant_states import held_by_host, host_state
from coordinator.jobs import job_progress
from coordinator.jobs.jobs import Job
from tests.harness.coordinator import Fleet, Host, joined, running, spec


def _ask(fleet: Fleet) -> dict[str, Any]:
    """What `list` (`share`), `workers`, `plan` and Home Assistant are told of the only job."""
    world, now = fleet.core.world, fleet.now
    (job,) = fleet.asks(m.AskList(id="l")).data["jobs"]
    (worker,) = fleet.asks(m.AskWorkers(id="w")).data["workers"]
    (planned,) = fleet.asks(m.AskPlan(id="p")).data["jobs"]
    home = host_state(world, world.hosts["pi"], held_by_host(world)["pi"], None, now)
    return {
        "share": job["share"],
        "workers": worker["jobs"][0]["progress"],
        "plan": planned["share"],
        "eta": planned["eta_s"],
        "home": home.jobs[0].progress,
    }


def _says(host: Host, job: Job, epoch: int, attempt: int = 1) -> None:
    host.trains(job, epoch, attempt=attempt, eta_s=60.0)


def test_an_attempt_begins_at_nothing() -> None:
    """An agent that was killed in the middle of a job leaves what the trainer said last behind."""
    fleet, pi = joined(spec())
    _says(pi, pi.runs(), 8)
    pi.status("offline", "lost")
    fleet.passes(30.0)
    pi.returns(anew=True)
    job = pi.runs()
    assert (job.state.value, job.attempt) == ("running", 2)
    _says(pi, job, 8)  # retained: it comes with every new connection
    pi.beats((job.job_id, 2, "running"))
    assert {*_ask(fleet).values()} == {None}
    _says(pi, job, 1, attempt=2)
    assert _ask(fleet)["share"] == 0.01


def test_everybody_is_told_the_same_number() -> None:
    """That of the newest progress: a heartbeat is up to half a minute older."""
    fleet, pi, job = running()
    held = m.HeldJob(job_id=job.job_id, attempt=1, phase="running", progress=0.71)
    pi.beats(held)
    _says(pi, job, 82)
    assert _ask(fleet) == {
        "share": 0.82, "workers": 0.82, "plan": 0.82, "eta": 60.0, "home": 0.82
    }  # fmt: skip


@pytest.mark.parametrize(
    ("epoch", "phase", "beat", "found"),
    [
        (5, "running", 0.1, 0.5), (5, "stopping", 0.1, 0.5), (None, "running", 0.1, 0.1),
        (10, "uploading", 0.3, 0.3), (10, "bundling", None, None), (None, "running", None, None),
    ],
)  # fmt: skip
def test_a_hand_over_is_not_the_training(
    epoch: int | None, phase: Any, beat: float | None, found: float | None
) -> None:
    """Once the trainer has ended, its host alone says how far the hand-over is."""
    told = None if epoch is None else m.Progress(attempt=1, epoch=epoch, epochs=10)
    held = m.HeldJob(job_id="a" * 64, attempt=1, phase=phase, progress=beat)
    assert job_progress.share(told, held) == found


def test_an_end_that_has_passed_is_said_to_be_late() -> None:
    """Time goes on while a trainer says nothing, also where what it has said comes again."""
    fleet, pi, job = running()
    for passed_s, left_s in ((20.0, 40.0), (42.0, -2.0), (20.0, -22.0)):
        _says(pi, job, 8)
        fleet.passes(passed_s)
        assert _told(fleet)[0] == left_s
    _says(pi, job, 100)
    assert _told(fleet) == (60.0, 1)
    pi.trains(job, 100, eta_s=0.0)
    assert _told(fleet) == (None, None), "what comes after the training nobody has said"


def _told(fleet: Fleet) -> tuple[Any, Any]:
    """`left_s` of the list, and Home Assistant's time."""
    world = fleet.core.world
    (job,) = fleet.asks(m.AskList(id="l")).data["jobs"]
    home = host_state(world, world.hosts["pi"], held_by_host(world)["pi"], None, fleet.now)
    return job.get("left_s"), home.time_left_min


def test_a_retry_that_resumes_has_done_what_comes_after_its_first_epoch() -> None:
    """The plan says where it began; a first attempt began with nothing, whatever it tells first."""
    fleet, pi = joined(spec())

    def begun() -> float:
        (planned,) = fleet.asks(m.AskPlan(id="p")).data["jobs"]
        found: float = planned["begun"]
        return found

    pi.trains(pi.runs(), 25, first_epoch=5)
    assert begun() == 0.0
    pi.status("offline", "lost")
    fleet.passes(30.0)
    pi.returns(anew=True)
    job = pi.runs()
    assert (job.attempt, begun()) == (2, 0.0)
    pi.trains(job, 30, attempt=2, first_epoch=21)
    assert begun() == 0.2


def test_epochs_that_no_float_holds_end_nothing() -> None:
    """Progress is retained: a coordinator that it ended would end at each start."""
    fleet, pi, job = running()
    pi.trains(job, 10**400)
    assert fleet.asks(m.AskPlan(id="p")).data["jobs"][0]["share"] == 1.0
    assert fleet.asks(m.AskList(id="l")).data["jobs"][0]["share"] == 1.0
    set_aside = fleet.asks(m.AskRequeue(id="r", job="job")).data["set_aside"]
    assert set_aside == {"code": "stopped", "host": "pi", "share": 1.0}
