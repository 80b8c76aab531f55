"""The logistic regression and the quantile of Student's t are those of the usual libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit
from sklearn.linear_model import LogisticRegression

from agent.trainer.evaluation.intervals import student
from agent.trainer.evaluation.logistic import fit_logistic


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("weights", [None, "balanced"])
def test_it_gives_the_probabilities_that_sklearn_gives(
    classes: int, strength: float, weights: str | None
) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(600, 5)) * (1, 1, 1, 10, 0.1)
    label = (inputs[:, :classes] + rng.normal(size=(600, classes)) + [0, 1, 2][:classes]).argmax(1)
    theirs = LogisticRegression(C=strength, class_weight=weights, max_iter=5000, tol=1e-6)
    expected = theirs.fit(inputs, label).predict_proba(inputs)
    fitted = fit_logistic(
        inputs, label, classes, strength=strength, iterations=5000, balanced=bool(weights)
    )
    assert np.abs(fitted.probabilities(inputs) - expected).max() < 1e-3


def test_a_class_that_was_never_shown_gets_no_probability() -> None:
    inputs = np.array([[0.0], [1.0], [2.0], [3.0]])
    fitted = fit_logistic(inputs, np.array([0, 0, 2, 2]), 3, iterations=100)
    found = fitted.probabilities(inputs)
    assert (found[:, 1] == 0).all()
    assert found[:, 2] == pytest.approx(1 - found[:, 0])
    assert list(found.argmax(axis=1)) == [0, 0, 2, 2]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 29, 1000])
def test_the_quantile_is_that_of_scipy(freedom: int) -> None:
    assert student(freedom) == pytest.approx(stdtrit(freedom, 0.975), rel=1e-9)
