"""A host's own threshold follows from its past scores alone."""

from __future__ import annotations

import numpy as np
import pytest

from agent.trainer.evaluation.report_schema import HostThreshold
from agent.trainer.evaluation.thresholds import Past, Track, choose_procedure


def test_the_threshold_is_exceeded_by_the_rate_of_the_newest_scores() -> None:
    procedure = HostThreshold(rate=0.1, needed=20, memory=100)
    scores = np.random.default_rng(0).random(300)
    found = Past(procedure).follow(scores)
    assert np.isnan(found[:20]).all()
    for at in (20, 99, 100, 250, 299):
        past = scores[max(0, at - 100) : at]
        # One more score, as like to lie anywhere among them, would exceed it with this probability.
        assert (past > found[at]).sum() + 1 == int(0.1 * (len(past) + 1))


def test_a_window_does_not_set_its_own_threshold() -> None:
    procedure = HostThreshold(rate=0.05, needed=10, memory=50)
    scores = np.random.default_rng(1).random(200)
    whole = Past(procedure).follow(scores)
    changed = scores.copy()
    changed[100:] += 5
    assert np.array_equal(Past(procedure).follow(changed)[:101], whole[:101], equal_nan=True)
    past = Past(procedure)
    pieces = [past.follow(part) for part in np.split(scores, [3, 77])]
    assert np.array_equal(np.concatenate(pieces), whole, equal_nan=True)


def a_track(seed: int, anomalies: float, windows: int = 2000) -> Track:
    """Return a host whose anomalies, of this share, have scores far above all others."""
    rng = np.random.default_rng(seed)
    label = (rng.random(windows) < anomalies).astype(np.int64)
    score = rng.normal(size=windows) + 10 * label + rng.normal()
    return Track(f"h{seed}", np.arange(windows), label, score, np.full(windows, np.nan))


@pytest.mark.parametrize("anomalies", [0.0, 0.1, 0.3])
def test_anomalies_in_the_past_do_not_hide_the_target(anomalies: float) -> None:
    """What is learnt on validation hosts holds on another: as many anomalies are in its past."""
    procedure = choose_procedure([a_track(seed, anomalies) for seed in range(3)], 0.05)
    assert procedure.rate == pytest.approx(anomalies + 0.05, abs=0.03)
    other = a_track(9, anomalies)
    own = Past(procedure).follow(other.score)
    judged = (other.label == 0) & ~np.isnan(own)
    assert 0.025 < (other.score > own)[judged].mean() < 0.1


def test_without_labels_enough_the_rate_is_the_target() -> None:
    for tracks in ([], [a_track(0, 0.1, windows=30)], [a_track(0, 1.0)]):
        assert choose_procedure(tracks, 0.02).rate == 0.02
