"""The evaluation of a job: its model, a probe and the floors, over one test part or all folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.evaluate import Evaluation, Judged, draws_of, evaluate
from agent.trainer.evaluation.floors import FLOORS
from agent.trainer.evaluation.metrics import Metrics, Scored
from agent.trainer.evaluation.report_schema import Mark

MODEL: Final = "model"
PROBE: Final = "probe"
_PROBE_METRICS: Final = ("auroc", "average_precision", "f1")
CHANCE: Final = 0.5  # the AUROC of a guess

# By scorer: `MODEL`, `PROBE`, or one of the floors.
Judgements = dict[str, Judged]


def overall(
    index: WindowIndex,
    folds: Sequence[Mapping[str, Judged]],
    classes: Sequence[str],
    *,
    n_resamples: int,
    seed: int,
) -> Evaluation:
    """Return the evaluation of the model, by what each scorer says of each fold.

    A scorer that some fold lacks is left out: it would be measured on other windows.
    """
    names = [name for name in folds[0] if all(name in fold for fold in folds)]
    judged = {name: [fold[name] for fold in folds] for name in names}
    draws = draws_of(index, judged[MODEL], n_resamples, seed)
    found = {name: evaluate(index, one, classes, draws) for name, one in judged.items()}
    evaluation = found[MODEL]
    if PROBE in found:
        evaluation = _with_probe(evaluation, found[PROBE])
    return _with_floors(evaluation, {name: found[name] for name in FLOORS if name in found})


def _with_probe(evaluation: Evaluation, probe: Evaluation) -> Evaluation:
    """Return the evaluation with the probe's: its metrics stand beside those of an anomaly score.

    With several classes they are the same.
    """
    told = {}
    if evaluation.test.score.ndim == 1:
        told = {f"probe_{name}": name for name in _PROBE_METRICS}
    undefined = {ours: probe.undefined[its] for ours, its in told.items() if its in probe.undefined}
    return replace(
        evaluation,
        metrics=evaluation.metrics | {ours: probe.metrics[its] for ours, its in told.items()},
        undefined=evaluation.undefined | undefined,
        probe=probe.metrics,
    )


def _with_floors(evaluation: Evaluation, floors: Mapping[str, Evaluation]) -> Evaluation:
    """Return the evaluation with its floors beside it, and marked by them.

    `floor_auroc`, the better of theirs, stands among its metrics.
    """
    metrics = dict(evaluation.metrics)
    areas = [one.metrics["auroc"] for one in floors.values()]
    if known := [area for area in areas if area is not None]:
        metrics["floor_auroc"] = max(known)
    return replace(
        evaluation,
        metrics=metrics,
        floors={name: one.metrics for name, one in floors.items()},
        marks=marks_of(metrics, evaluation.test),
    )


def marks_of(metrics: Metrics, test: Scored) -> tuple[Mark, ...]:
    """Return what is wrong with a result on a test part."""
    area, floor = metrics["auroc"], metrics.get("floor_auroc")
    between = metrics.get("auroc_ci")
    marks = []
    if between is not None and max(between) < CHANCE:
        marks.append(Mark(code="below_chance", metric="auroc", value=area, limit=CHANCE))
    if area is not None and floor is not None and area < floor:
        marks.append(Mark(code="below_floor", metric="auroc", value=area, limit=floor))
    brier, limit = metrics.get("brier"), brier_of_base_rate(test)
    if brier is not None and brier > limit:
        mark = Mark(code="brier_above_base_rate", metric="brier", value=brier, limit=limit)
        marks.append(mark)
    return tuple(marks)


def brier_of_base_rate(test: Scored) -> float:
    """Return the Brier score of who knows the part's class shares and gives each window these."""
    shares = np.bincount(test.label) / len(test.label)
    whole = 1.0 - float((shares**2).sum())
    return whole / 2 if test.score.ndim == 1 else whole


def plain_figures(metrics: Metrics) -> Metrics:
    """Return metrics without their intervals."""
    return {name: value for name, value in metrics.items() if not name.endswith("_ci")}
