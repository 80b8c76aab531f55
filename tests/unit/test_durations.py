"""How long jobs take, and by what right that is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.durations import NEWEST, History, quantile


def ran(s: float, model: str = "cnn", mode: str = "oracle", host: str = "pi", **more: Any) -> Any:
    """A completed attempt."""
    fields = {"end": "completed", "whole": True, "model": model, "mode": mode, "host": host, "s": s}
    return fields | more


def test_the_nearest_history_counts() -> None:
    """This model and mode here; then the model here; then others' hosts; then nothing."""
    past = History([
        ran(10.0), ran(12.0), ran(14.0), ran(99.0, mode="realistic"), ran(500.0, host="gpu"),
        ran(7.0, model="gru", host="gpu"),
    ])  # fmt: skip
    here = past.estimate("cnn", "oracle", "pi")
    assert (here.span.median_s, here.runs, here.basis) == (12.0, 3, "here")
    assert here.words() == "3 runs of cnn-oracle here"
    in_another_mode = past.estimate("cnn", "realistic", "gpu")
    assert in_another_mode.basis == "model-here"
    assert in_another_mode.words() == "1 run of cnn in another mode here"
    elsewhere = past.estimate("gru", "oracle", "pi")
    assert (elsewhere.span.median_s, elsewhere.basis) == (7.0, "elsewhere")
    assert elsewhere.words() == "1 run of gru-oracle on other hosts"
    assert past.estimate("gru", "realistic", "pi").basis == "model-elsewhere"
    nothing = past.estimate("lstm", "oracle", "pi")
    assert (nothing.is_known, nothing.runs) == (False, 0)
    assert "never completed" in nothing.words()


def test_only_whole_completed_attempts_are_a_measure() -> None:
    """A failure is quick, and what goes on from a checkpoint quicker."""
    past = History([
        ran(1.0, end="failed"), ran(2.0, whole=False), ran(None, whole=False), ran(50.0)
    ])  # type: ignore[arg-type] # fmt: skip
    assert past.estimate("cnn", "oracle", "pi").span == (50.0, 50.0, 50.0)


def test_the_newest_runs_count() -> None:
    """A host that has been given a GPU is not judged by what it was."""
    past = History([*(ran(10.0) for _ in range(NEWEST)), *(ran(9000.0) for _ in range(500))])
    assert past.estimate("cnn", "oracle", "pi").span.slow_s == 10.0


def test_what_is_left_of_a_run() -> None:
    """Of the runs that took longer than this one has so far; beyond them all, nobody knows."""
    past = History([ran(s) for s in (100.0, 200.0, 300.0)])
    assert past.left("cnn", "oracle", "pi", 0.0).span.median_s == 200.0
    assert past.left("cnn", "oracle", "pi", 150.0).span.median_s == 100.0
    assert past.left("cnn", "oracle", "pi", 250.0).span == (50.0, 50.0, 50.0)
    late = past.left("cnn", "oracle", "pi", 400.0)
    assert (late.is_known, late.basis) == (False, "overdue")
    beyond = late.span
    assert beyond.quick_s == 0.0
    assert beyond.slow_s == 400.0


def test_the_trainers_word_is_believed_first() -> None:
    """Then its progress; both spread as widely as the history is."""
    past = History([ran(s) for s in (50.0, 100.0, 200.0)])
    eta = past.left("cnn", "oracle", "pi", 10.0, share=0.9, eta_s=1000.0)
    assert (eta.span.median_s, eta.basis) == (1000.0, "eta")
    assert eta.span.quick_s == pytest.approx(600.0)  # 60 of 100 s is the tenth percentile
    share = past.left("cnn", "oracle", "pi", 10.0, share=0.25)
    assert (share.span.median_s, share.basis) == (30.0, "progress")
    alone = History().left("cnn", "oracle", "pi", 10.0, share=0.5)
    assert alone.span == (10.0, 10.0, 10.0)
    assert alone.is_known


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 2e6))
def test_quick_is_never_slower_than_slow(took_s: list[float], elapsed_s: float) -> None:
    """Whatever has been measured."""
    past = History([ran(s) for s in took_s])
    for found in (
        past.estimate("cnn", "oracle", "pi"),
        past.left("cnn", "oracle", "pi", elapsed_s),
        past.left("cnn", "oracle", "pi", elapsed_s, eta_s=60.0),
    ):
        quick_s, median_s, slow_s = found.span
        assert 0.0 <= quick_s <= median_s * (1 + 1e-9)
        assert median_s <= slow_s * (1 + 1e-9)


def test_quantiles_lie_between_the_numbers() -> None:
    """By linear interpolation."""
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.1) == pytest.approx(1.0)
    assert quantile([5.0], 0.9) == 5.0
