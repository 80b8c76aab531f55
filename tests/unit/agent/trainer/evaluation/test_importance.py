"""A channel matters as much as the score gets worse without it."""

from __future__ import annotations

import numpy as np

from agent.trainer.evaluation import importance
from agent.trainer.evaluation.importance import channel_columns, permutation_importance, sample


def test_a_channel_that_the_score_does_not_use_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    label = np.arange(400) % 2
    inputs = rng.normal(size=(400, 4))
    inputs[:, :2] += label[:, None]
    columns = channel_columns(["load__mean", "load__max", "noise__mean", "noise__max"])

    def score(given: np.ndarray) -> np.ndarray:
        return np.asarray(given[:, 0] + given[:, 1])

    found = permutation_importance(inputs, label, columns, score, seed=1)
    assert list(found) == ["load", "noise"]
    assert found["load"] > 0.2
    assert found["noise"] == 0.0
    assert found == permutation_importance(inputs, label, columns, score, seed=1)


def test_several_classes_and_whole_windows_are_exchanged() -> None:
    label = np.arange(300) % 3
    inputs = np.zeros((300, 5, 2))
    inputs[:, :, 1] = label[:, None]
    found = permutation_importance(
        inputs,
        label,
        channel_columns(["a", "b"]),
        lambda one: np.eye(3)[one[:, 0, 1].astype(int)],
        0,
    )
    assert found["b"] > 0.3
    assert found["a"] == 0.0


def test_one_class_has_no_importance() -> None:
    """There is no area that could fall."""
    zeros = np.zeros(5, dtype=np.int64)
    assert permutation_importance(np.ones((5, 1)), zeros, {"a": zeros[:1]}, np.ravel, 0) == {}


def test_the_cost_is_limited() -> None:
    label = np.zeros(100_000, dtype=np.int64)
    for channels in (1, 38, 200):
        assert len(sample(label, channels, 0)) * channels <= importance.SCORED
    assert len(sample(label[:50], 38, 0)) == 50
