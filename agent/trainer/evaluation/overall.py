"""The evaluation of a job: its model, a probe and the floors, over one test part or all folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.bootstrap import Groups
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


@dataclass(frozen=True)
class Overall:
    """The evaluation of the model, and the metrics of its probe (None: there is none) and floors.

    Among the model's metrics stand those of the probe, as `probe_*`, and `floor_auroc`, the better
    of the floors'.
    """

    model: Evaluation
    groups: Groups
    probe: Metrics | None
    floors: dict[str, Metrics]


def overall(
    index: WindowIndex,
    folds: Sequence[Mapping[str, Judged]],
    classes: Sequence[str],
    *,
    n_resamples: int,
    seed: int,
) -> Overall:
    """Return the evaluation of the model, by what each scorer says of each fold.

    A scorer that some fold lacks is left out: it would be measured on other windows.
    """
    names = [name for name in folds[0] if all(name in fold for fold in folds)]
    judged = {name: [fold[name] for fold in folds] for name in names}
    draws = draws_of(index, judged[MODEL], n_resamples, seed)
    found = {name: evaluate(one, classes, draws) for name, one in judged.items()}
    model, probe = found[MODEL], found.get(PROBE)
    metrics, undefined = dict(model.metrics), dict(model.undefined)
    if probe is not None and model.test.score.ndim == 1:  # of several classes they are the same
        for name in _PROBE_METRICS:
            metrics[f"probe_{name}"] = probe.metrics[name]
            if name in probe.undefined:
                undefined[f"probe_{name}"] = probe.undefined[name]
    floors: dict[str, Metrics] = {name: found[name].metrics for name in FLOORS if name in found}
    areas = [one["auroc"] for one in floors.values() if one["auroc"] is not None]
    if areas:
        metrics["floor_auroc"] = max(areas)
    model = replace(model, metrics=metrics, undefined=undefined)
    return Overall(model, draws.groups, probe.metrics if probe else None, floors)


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
