"""Events are counted once each, with the time until the first alarm; chance is told apart."""

from __future__ import annotations

import numpy as np
import pytest

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.events import measure_events, runs
from agent.trainer.evaluation.report_schema import Events


def an_index(episode: list[int], start: list[int]) -> WindowIndex:
    """Return windows of one host at these places: a stride of ten, a row a minute."""
    n = len(start)
    zeros = np.zeros(n, dtype=np.int64)
    at, of = np.array(start), np.array(episode)
    return WindowIndex(("h",), ("a", "b"), zeros, of, at, at, zeros, 60, 10, 60.0)


def measured(index: WindowIndex, positive: list[int], alarm: list[int]) -> Events | None:
    """Measure all windows of `index`."""
    marks = (np.array(one, dtype=bool) for one in (positive, alarm))
    return measure_events(index, np.arange(len(positive)), *marks)


def test_a_run_ends_at_a_gap_and_at_another_episode() -> None:
    index = an_index([0, 0, 0, 0, 1, 1], [0, 10, 30, 40, 50, 60])
    chosen = np.array([1, 1, 1, 1, 1, 0], dtype=bool)
    assert runs(index, np.arange(6), chosen).tolist() == [0, 0, 1, 1, 2, -1]


def test_an_event_is_noticed_by_its_first_alarm() -> None:
    index = an_index([0] * 10, list(range(0, 100, 10)))
    found = measured(index, [0, 1, 1, 1, 0, 0, 1, 1, 0, 0], [1, 0, 0, 1, 1, 0, 0, 0, 1, 1])
    assert found is not None
    assert (found.events, found.noticed, found.recall) == (2, 1, 0.5)
    assert found.delay_s is not None
    assert (found.delay_s.median, found.delay_s.p90) == (20 * 60, 20 * 60)
    # The first alarm and the last two are runs without an event; the second run begins in one.
    assert found.false_alarms_per_day == pytest.approx(2 / (100 / 1440))


def test_random_alarms_are_no_better_than_chance() -> None:
    """Long events are noticed by whoever cries often: the share by chance says so."""
    rng = np.random.default_rng(0)
    positive = (np.arange(9000) % 90 < 20).astype(int)
    alarm = (rng.random(9000) < 0.05).astype(int)
    index = an_index([0] * 9000, list(range(0, 90_000, 10)))
    found = measured(index, positive.tolist(), alarm.tolist())
    assert found is not None
    assert found.recall == pytest.approx(1 - 0.95**20, abs=0.1)
    assert found.recall_by_chance == pytest.approx(found.recall, abs=0.1)
    sure = measured(index, positive.tolist(), positive.tolist())
    assert sure is not None
    assert sure.recall == 1.0 > sure.recall_by_chance


def test_without_events_there_is_nothing_to_notice() -> None:
    index = an_index([0, 0], [0, 10])
    assert measured(index, [0, 0], [1, 0]) is None
    unnoticed = measured(index, [1, 0], [0, 0])
    assert unnoticed is not None
    assert (unnoticed.recall, unnoticed.delay_s) == (0.0, None)
