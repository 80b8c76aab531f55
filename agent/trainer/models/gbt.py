"""Gradient-boosted trees by xgboost, on summary features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from agent.trainer.common.lean import without

with without("sklearn"):  # xgboost imports it where it is installed: four fifths of a second
    import xgboost as xgb

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import GbtHyper
from agent.trainer.common.errors import DivergedError
from agent.trainer.common.progress import Progress

_REPORT_EVERY: Final = 10  # rounds


def bins(
    features: Floats, label: Ints, weight: Floats, threads: int, like: xgb.DMatrix | None = None
) -> xgb.DMatrix:
    """Return windows (n, inputs) in bins, a byte a value; in those of others, if they are given."""
    return xgb.QuantileDMatrix(features, label=label, weight=weight, nthread=threads, ref=like)


class _Reporter(xgb.callback.TrainingCallback):
    """Reports every tenth round, and stops a training that has diverged."""

    def __init__(self, progress: Progress, rounds: int) -> None:
        super().__init__()
        self._progress = progress
        self._rounds = rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002 - xgboost names them
        train, validation = (next(iter(evals_log[name].values()))[-1] for name in ("train", "val"))
        if not np.isfinite([train, validation]).all():
            raise DivergedError(f"the loss is not finite after round {epoch + 1}; lower --lr")
        if (epoch + 1) % _REPORT_EVERY == 0:
            self._progress.epoch(epoch + 1, self._rounds, train, validation)
        return False


def train_gbt(
    train: xgb.DMatrix,
    validation: xgb.DMatrix,
    classes: int,
    hyper: GbtHyper,
    *,
    threads: int,
    seed: int,
    progress: Progress,
) -> tuple[xgb.Booster, list[tuple[float, float]]]:
    """Return the trees of the best round, and each round's losses. Raises DivergedError."""
    parameters = {
        "objective": "binary:logistic" if classes == 2 else "multi:softprob",
        "eval_metric": "logloss" if classes == 2 else "mlogloss",
        "tree_method": "hist",
        "eta": hyper.lr,
        "max_depth": hyper.max_depth,
        "min_child_weight": hyper.min_child_weight,
        "subsample": hyper.subsample,
        "colsample_bytree": hyper.colsample,
        "lambda": hyper.reg_lambda,
        "nthread": threads,
        "seed": seed,
        "verbosity": 0,
    }
    if classes > 2:
        parameters["num_class"] = classes
    log: dict[str, dict[str, list[float]]] = {}
    booster = xgb.train(
        parameters,
        train,
        num_boost_round=hyper.epochs,
        evals=[(train, "train"), (validation, "val")],
        evals_result=log,
        early_stopping_rounds=hyper.patience,
        verbose_eval=False,
        callbacks=[_Reporter(progress, hyper.epochs)],
    )
    losses = [next(iter(log[name].values())) for name in ("train", "val")]
    return booster[: booster.best_iteration + 1], list(zip(*losses))


def class_probabilities(trees: xgb.Booster, features: Floats, threads: int) -> Floats:
    """Return the classes' probabilities (n, classes)."""
    found = np.asarray(trees.predict(xgb.DMatrix(features, nthread=threads)))
    return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found


def gain(trees: xgb.Booster, names: Sequence[str]) -> dict[str, float]:
    """Return each input's share of what all splits gain, the largest first; unused ones are not in.

    The inputs of `trees` have no names: `names` (inputs,) are theirs in order.
    """
    found: dict[str, Any] = trees.get_score(importance_type="total_gain")
    total = sum(found.values())
    shares = {names[int(key.removeprefix("f"))]: value / total for key, value in found.items()}
    return dict(sorted(shares.items(), key=lambda one: (-one[1], one[0])))
