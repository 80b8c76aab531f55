"""A job whose host is away is not talked about as if all were well."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli import status as verb
from coordinator.cli import why_lines
from coordinator.cli.lists import _draw_jobs as draw_jobs
from coordinator.client.rows import listed
from coordinator.jobs import reason_words, waiting_words
from coordinator.scheduler.play import Held
from tests.harness.coordinator import Fleet, joined, running, spec
from tests.harness.drawn import drawn
from tests.unit.coordinator.scheduler.test_forecast import host, named, whole


def _runs_at_a_host_that_goes(**settings: Any) -> Fleet:
    fleet, pi, job = running(stale_after_s=120.0, **settings)
    pi.trains(job, 1, 2, eta_s=49.0)
    pi.status("offline", "lost")
    fleet.passes(10)
    return fleet


def test_a_cut_is_told_with_what_comes_of_the_job() -> None:
    """By why, list and status alike; and what its trainer said last is of no use."""
    fleet = _runs_at_a_host_that_goes()
    why = fleet.why()
    told = {"host": "pi", "presence": "cut-off", "left_s": 110.0, "is_last": False}
    assert why["away"] == told
    rows = fleet.listed()
    assert rows[0]["away"] == told
    shown = drawn(draw_jobs(rows), 200)
    assert f"job: {reason_words.away(told)}" in shown
    assert "49 s" not in shown
    status = fleet.status()
    assert status["away"] == [told | {"job": "job"}]
    assert f"job: {reason_words.away(told)}" in drawn(verb._warnings(status), 200)
    fleet.passes(111)
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)


def test_the_last_loss_is_told_as_what_it_is() -> None:
    """The job will not go back into the queue any more."""
    fleet = _runs_at_a_host_that_goes(max_attempts=1)
    assert fleet.why()["away"]["is_last"]


def test_a_job_whose_data_is_on_its_way_to_a_host_that_is_cut_off_has_a_lease_too() -> None:
    fleet, pi = joined(spec(), stale_after_s=120.0)
    assign = pi.heard(m.Assign)[-1]
    pi.reports(m.Accepted, fleet.job(), request_id=assign.id)
    pi.status("offline", "lost")
    fleet.passes(10)
    assert (fleet.job().state, fleet.why()["away"]["left_s"]) == ("claimed", 110.0)
    fleet.passes(111)
    assert (fleet.job().state, fleet.job().losses) == ("pending", 1)


def test_a_result_that_its_host_cannot_bundle_is_told_wherever_one_looks() -> None:
    fleet, pi, job = running()
    fault = m.Fault(code="no-room")
    pi.beats(
        m.HeldJob(job_id=job.job_id, attempt=job.attempt, phase="bundling", fault=fault)
    )  # fmt: skip
    told = {"job": "job", "host": "pi", "fault": fault.told()}
    assert fleet.status()["held_up"] == [told]
    words = waiting_words.held_up("pi", fault.told())
    assert f"job: it {words}" in drawn(verb._warnings(fleet.status()), 200)
    rows = fleet.listed()
    assert rows[0]["held"] == {"phase": "bundling", "fault": fault.told()}
    assert f"job: it {words}" in drawn(draw_jobs(rows), 200)
    assert listed(rows[0], 0.0)["waits"] == words
    assert f"It {words}." in drawn(why_lines.in_lines((fleet.why(), None)), 200)
    pi.beats((job.job_id, job.attempt, "bundling"))
    assert fleet.status()["held_up"] == []


def test_nothing_is_said_of_a_host_that_is_there() -> None:
    fleet, _, _ = running(spec(), spec("other"))
    assert fleet.status()["away"] == []
    rows = fleet.listed()
    assert [row["away"] for row in rows] == [None, None]


@pytest.mark.parametrize("online", [True, False])
def test_a_job_at_a_host_that_is_away_has_no_end_that_is_known(*, online: bool) -> None:
    held = Held(named("job"), "pi", elapsed_s=10.0, share=0.5, eta_s=10.0)
    found = whole(views=[host("pi", online=online)], held=(held,))
    (one,) = found.outlooks.values()
    assert one.ends_known == online
    assert (found.end is not None, found.unknown) == (online, int(not online))
