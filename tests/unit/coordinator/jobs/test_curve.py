"""The curve of a job: bounded, whole from its first epoch, of one training, kept on disk."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.system.files import RealDisk
from coordinator.client.mirror import Mirror
from coordinator.client.rows import Tables
from coordinator.core.effects import KeepPoint, LookUp
from coordinator.jobs import curve
from coordinator.jobs.curve import MOST, Curve
from coordinator.store.curve_files import MOST_BYTES, CurveFiles
from coordinator.top import detail, job_table
from coordinator.web.pages.curves_page import _Told, news_of
from tests.harness.coordinator import joined, running, spec

JOB = "a" * 64


def _told(epoch: int, attempt: int = 1, first: int | None = 1, loss: float | None = None) -> Any:
    return m.Progress(
        attempt=attempt, epoch=epoch, epochs=9, first_epoch=first, val_loss=loss or 1 / (epoch + 1)
    )


def _after(*said: m.Progress) -> Curve:
    found = None
    for one in said:
        found = curve.extended(found, one)
    assert found is not None
    return found


@pytest.mark.parametrize("step", [1, 10])
def test_a_long_curve_is_thinned_evenly_and_keeps_its_ends(step: int) -> None:
    """However many epochs there are, at every one of them."""
    found = None
    for epoch in range(step, 5_001, step):
        found = curve.extended(found, _told(epoch, first=step))
        assert found is not None
        assert len(found.points) <= MOST
        assert (found.points[0].epoch, found.points[-1].epoch) == (step, epoch)
    assert found is not None
    epochs = [point.epoch for point in found.points]
    gaps = {after - before for before, after in pairwise(epochs[:-1])}
    assert len(found.points) >= MOST // 4
    assert max(gaps) < 2 * min(gaps)


@pytest.mark.parametrize(
    ("first", "epochs"), [(4, [1, 2, 3, 6]), (3, [1, 2, 6]), (1, [6]), (None, [1, 2, 3, 4, 6])]
)
def test_an_attempt_goes_on_from_what_is_before_its_first_epoch(
    first: int | None, epochs: list[int]
) -> None:
    """One from scratch keeps nothing, also where its first epochs were not heard."""
    found = _after(*map(_told, (1, 2, 3, 4)), _told(6, 2, first), _told(5))
    assert [point.epoch for point in found.points] == epochs
    assert found.attempt == 2


def test_the_curve_in_a_file_is_that_of_all_that_was_told(tmp_path: Path) -> None:
    """The file is bounded; a line that a power cut has cut costs that point alone."""
    kept = CurveFiles(tmp_path, RealDisk())
    told = [_told(epoch) for epoch in range(1, 9 * MOST)]
    told += [_told(epoch, 2, 1000) for epoch in range(1003, 1100)]
    for one in told:
        kept.add(JOB, one)
        kept.add(JOB, one)  # retained, it comes again
        (path,) = tmp_path.iterdir()
        assert path.stat().st_size <= MOST_BYTES
    assert kept.get(JOB) == _after(*told)
    with path.open("ab") as file:
        file.write(b"[1, 1, 10")
    kept.add(JOB, _told(1100, 2))
    kept.add(JOB, _told(1101, 2))
    assert kept.get(JOB) == _after(*told, _told(1101, 2))


def test_a_client_that_comes_late_has_the_whole_curve() -> None:
    """What the coordinator has kept, and what it has heard itself meanwhile."""
    fleet, pi, job = running()
    for epoch in (1, 2, 3):
        pi.says(fleet.topics.progress("pi", job.job_id), _told(epoch))
    kept = None
    for one in fleet.took(KeepPoint):
        kept = curve.extended(kept, one.told)
    fleet.asks(m.AskCurves(id="c", jobs=(job.job_id, "f" * 64)))
    (asked,) = fleet.took(LookUp)
    assert asked.job_ids == (job.job_id,)
    mirror = Mirror()
    mirror.load_jobs([job.row().model_dump(mode="json")])
    topic = fleet.topics.parse(fleet.topics.progress("pi", job.job_id))
    mirror.apply(topic, m.encode(_told(4)), fleet.now)
    assert mirror.begun() == [job.job_id]
    mirror.load_curves([curve.in_fields(job.job_id, kept)] if kept else [])
    assert [point.epoch for point in mirror.curves[job.job_id].points] == [1, 2, 3, 4]


def test_losses_of_an_earlier_attempt_are_shown_of_no_later_one() -> None:
    """Until that tells of its own: then of both, if it goes on from there."""
    fleet, pi = joined(spec())
    job, mirror = pi.runs(), Mirror()

    def shown(attempt: int, *told: m.Progress) -> int:
        row = job.row().model_copy(update={"attempt": attempt})
        mirror.load_jobs([row.model_dump(mode="json")])
        topic = fleet.topics.parse(fleet.topics.progress("pi", job.job_id))
        for one in told:
            mirror.apply(topic, m.encode(one), fleet.now)
        seen = mirror.snapshot()
        (found_row,) = Tables().update(seen, fleet.now)[0].add
        count = len(job_table.with_losses(found_row, seen).get("losses", ()))
        found, _ = _Told().news(seen)
        assert [len(one["points"]) for one in found] == ([count] if count else [])
        facts = dict(detail.job_facts(seen.jobs[job.job_id], found_row, seen, 80))
        assert ("Loss" in facts) is bool(count)
        return count

    assert shown(1, _told(1), _told(2), _told(3)) == 3
    assert shown(2) == 0
    assert shown(2, _told(3, 2, 3)) == 3
    assert shown(3) == 0
    assert shown(3, _told(1, 3, 1)) == 1


def test_a_page_that_is_told_what_is_new_has_what_there_is() -> None:
    """Also where the newest point was there for itself alone, and where others were thinned out."""
    found: Curve | None = None
    drawn: list[Any] = []
    for epoch in range(1, 3 * MOST):
        before, found = found, curve.extended(found, _told(epoch))
        assert found is not None
        news = news_of(before, found)
        kept = [] if news["from"] is None else [one for one in drawn if one[0] < news["from"]]
        drawn = kept + news["points"]
        assert drawn == list(found.points)
