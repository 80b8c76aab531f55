"""How long jobs take, and by what right that is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.manifest.builtin import builtin_trainers
from coordinator.scheduler.durations import History, default_epochs
from coordinator.scheduler.estimates import NEWEST, quantile
from coordinator.ui.outlook import rests_on


def ran(s: float, model: str = "cnn", mode: str = "oracle", host: str = "pi", **more: Any) -> Any:
    fields = {"end": "completed", "whole": True, "model": model, "mode": mode, "host": host, "s": s}
    return fields | more


@pytest.mark.words
def test_the_nearest_history_counts() -> None:
    """This model and mode here; then the model here; then others' hosts; then nothing."""
    past = History([
        ran(10.0), ran(12.0), ran(14.0), ran(99.0, mode="realistic"), ran(500.0, host="gpu"),
        ran(7.0, model="gru", host="gpu"),
    ])  # fmt: skip
    here = past.estimate("cnn", "oracle", "pi")
    assert (here.span.median_s, here.runs, here.basis) == (12.0, 3, "here")
    assert rests_on(here) == "3 runs of cnn-oracle here"
    in_another_mode = past.estimate("cnn", "realistic", "gpu")
    assert in_another_mode.basis == "model-here"
    assert rests_on(in_another_mode) == "1 run of cnn in another mode here"
    elsewhere = past.estimate("gru", "oracle", "pi")
    assert (elsewhere.span.median_s, elsewhere.basis) == (7.0, "elsewhere")
    assert rests_on(elsewhere) == "1 run of gru-oracle on other hosts"
    assert past.estimate("gru", "realistic", "pi").basis == "model-elsewhere"
    nothing = past.estimate("lstm", "oracle", "pi")
    assert (nothing.is_known, nothing.runs) == (False, 0)
    assert "never completed" in rests_on(nothing)


def test_only_whole_completed_attempts_are_a_measure_and_the_newest_count() -> None:
    """A failure is quick, and what goes on from a checkpoint quicker.

    A host that has been given a GPU is not judged by what it was.
    """
    never = ran(0.0, whole=False) | {"s": None}
    past = History([ran(1.0, end="failed"), ran(2.0, whole=False), never, ran(50.0)])
    assert past.estimate("cnn", "oracle", "pi").span == (50.0, 50.0, 50.0)
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
    assert (late.span.quick_s, late.span.slow_s) == (0.0, 400.0)


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
    early = past.left("cnn", "oracle", "pi", 9.0, share=0.25)
    assert (early.span.median_s, early.basis) == (91.0, "here"), "it may have loaded data till now"


@pytest.mark.words
def test_runs_of_as_many_epochs_count_first() -> None:
    """Also in another mode; and where a job sets none, those of its trainer's schema."""
    schema = builtin_trainers()["cnn"].hyper_schema
    past = History([
        ran(30.0), ran(32.0, epochs=30), ran(5.0, epochs=5), ran(7.0, epochs=90, host="gpu"),
        ran(200.0, epochs=200, mode="realistic"),
    ], {("cnn", "pi"): default_epochs(schema)})  # fmt: skip
    alike = past.estimate("cnn", "oracle", "pi")
    assert (alike.span.median_s, rests_on(alike)) == (31.0, "2 runs of cnn-oracle here")
    assert rests_on(alike, in_full=True) == (
        "2 runs of cnn-oracle here, of as many epochs, whatever their other parameters"
    )
    assert past.estimate("cnn", "oracle", "pi", 30) == alike
    other_mode = past.estimate("cnn", "oracle", "pi", 200)
    assert (other_mode.span.median_s, other_mode.basis) == (200.0, "model-here")
    assert past.estimate("cnn", "oracle", "pi", 90).span.median_s == 93.0, "this host comes first"
    unknown = History([ran(9.0)]).estimate("cnn", "oracle", "pi")
    assert rests_on(unknown, in_full=True).endswith("here, whatever their parameters")


@pytest.mark.words
def test_runs_of_other_epochs_are_scaled_and_the_spread_says_what_is_unsure() -> None:
    """Those of the nearest number: between no change at all and all of the ratio."""
    past = History([ran(s, epochs=5) for s in (9.0, 10.0, 10.0, 11.0)] + [ran(1.0, epochs=1)])
    longer = past.estimate("cnn", "oracle", "pi", 100)
    assert longer.span.quick_s == pytest.approx(9.3), "it may stop as early as they did"
    assert longer.span.median_s == 200.0
    assert longer.span.slow_s == pytest.approx(214.0)
    assert rests_on(longer) == "4 runs of cnn-oracle of 5 epochs here, scaled to 100"
    assert rests_on(longer, in_full=True) == (
        f"{rests_on(longer)}, whatever their other parameters"
    )
    shorter = History([ran(100.0, epochs=50, host="gpu")]).estimate("cnn", "oracle", "pi", 10)
    assert shorter.span == (20.0, 20.0, 100.0), "what it begins with takes as long"
    assert rests_on(shorter) == "1 run of cnn-oracle of 50 epochs on other hosts, scaled to 10"
    once = History([ran(3.0, epochs=1)]).estimate("cnn", "realistic", "pi", 2)
    assert rests_on(once) == "1 run of cnn in another mode of 1 epoch here, scaled to 2"


@pytest.mark.words
def test_what_a_run_begins_with_is_not_multiplied_where_two_amounts_are_known() -> None:
    """4 epochs in 12 s and 104 in 17 s: 10 s and more are the same for all of them."""
    known = [ran(12.0, epochs=4), ran(17.0, epochs=104)]
    long = History(known).estimate("cnn", "oracle", "pi", 2004)
    assert long.span.median_s == pytest.approx(112.0)
    assert long.span.quick_s == 17.0
    assert long.span.slow_s == pytest.approx(17.0 * 2004 / 104)
    assert rests_on(long) == "1 run of cnn-oracle of 104 epochs here, scaled to 2004"
    short = History(known).estimate("cnn", "oracle", "pi", 2)
    assert short.span.median_s == pytest.approx(11.9)
    many = [*known, ran(16.0, epochs=90), ran(16.0, epochs=90)]
    again = History(many).estimate("cnn", "oracle", "pi", 2004)
    assert again.span.median_s == pytest.approx(112.0), "the furthest says most of what one takes"
    for odd in (ran(30.0, epochs=4), ran(0.1, epochs=4)):  # more epochs were no slower; or far
        plain = History([odd, ran(17.0, epochs=104)]).estimate("cnn", "oracle", "pi", 208)
        assert plain.span.median_s == pytest.approx(34.0)


def test_every_trainer_that_is_built_in_has_a_number_of_epochs() -> None:
    """Or a job that sets none could not be scaled."""
    found = {model: default_epochs(one.hyper_schema) for model, one in builtin_trainers().items()}
    assert found.keys() >= {"gbt", "mlp", "transformer_ssl"}
    assert all(found.values()), found


def test_progress_is_measured_from_where_an_attempt_began() -> None:
    """A tenth of the job in 50 s: it was at six tenths when it went on."""
    resumed = History().left("cnn", "oracle", "pi", 50.0, share=0.7, begun=0.6)
    assert resumed.span == pytest.approx((150.0,) * 3)
    assert not History().left("cnn", "oracle", "pi", 50.0, share=0.61, begun=0.6).is_known


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 2e6),
    st.sampled_from([None, 1, 9, 10, 11, 1000]), st.floats(0, 1),
)  # fmt: skip
def test_quick_is_never_slower_than_slow(
    took_s: list[float], elapsed_s: float, epochs: int | None, begun: float
) -> None:
    past = History([ran(s, epochs=(10, 10, 400)[at % 3]) for at, s in enumerate(took_s)])
    kind: Any = ("cnn", "oracle", "pi")
    for found in (
        past.estimate(*kind, epochs),
        past.left(*kind, elapsed_s, epochs=epochs),
        past.left(*kind, elapsed_s, epochs=epochs, begun=begun, share=0.5),
        past.left(*kind, elapsed_s, epochs=epochs, eta_s=60.0),
    ):
        quick_s, median_s, slow_s = found.span
        assert 0.0 <= quick_s <= median_s * (1 + 1e-9)
        assert median_s <= slow_s * (1 + 1e-9)


def test_quantiles_lie_between_the_numbers() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.1) == pytest.approx(1.0)
    assert quantile([5.0], 0.9) == 5.0
