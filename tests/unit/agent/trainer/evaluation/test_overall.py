"""Probabilities that are worse than knowing the shares of the classes are marked."""

from __future__ import annotations

import numpy as np
import pytest

from agent.trainer.evaluation.evaluate import brier_of_base_rate, marks_of
from agent.trainer.evaluation.metrics import Scored


def test_a_brier_score_above_the_base_rates_is_marked() -> None:
    label = np.array([1] + [0] * 9)
    test = Scored(np.arange(10), label, np.zeros(10))
    assert brier_of_base_rate(test) == pytest.approx(0.09)
    (mark,) = marks_of({"auroc": None, "brier": 0.1}, test)
    assert (mark.code, mark.metric, mark.value) == ("brier_above_base_rate", "brier", 0.1)
    assert mark.limit == pytest.approx(0.09)
    for brier in (0.08, None):
        assert marks_of({"auroc": None, "brier": brier}, test) == ()


def test_of_several_classes_the_base_rates_score_is_over_all() -> None:
    label = np.array([0, 1, 2, 2])
    test = Scored(np.arange(4), label, np.full((4, 3), 1 / 3))
    given = np.array([0.25, 0.25, 0.5])
    by_hand = np.mean([((np.eye(3)[k] - given) ** 2).sum() for k in label])
    assert brier_of_base_rate(test) == pytest.approx(by_hand)
