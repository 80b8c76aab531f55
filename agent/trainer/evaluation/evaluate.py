"""Metrics on the test windows, overall and per host, with intervals.

A metric that the data does not define, for example because a class is absent, is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from agent.trainer.common.arrays import Bools, Floats
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.bootstrap import Draws, Groups, one_group, resampling_groups
from agent.trainer.evaluation.floors import FLOORS
from agent.trainer.evaluation.intervals import exact_interval, interval
from agent.trainer.evaluation.metrics import (
    OF_PROBABILITIES,
    Called,
    Metrics,
    Scored,
    called_by,
    cuts,
    measure,
)
from agent.trainer.evaluation.report_schema import HostFigures, Mark, OverHosts, Thresholds

MODEL: Final = "model"
PROBE: Final = "probe"
_PROBE_METRICS: Final = ("auroc", "average_precision", "f1")
CHANCE: Final = 0.5  # the AUROC of a guess
TARGETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # false-positive rates
RANKING: Final = ("auroc", "average_precision")
LEAST_GROUPS: Final = 2  # that hold a class, for a ranking against it to say anything


@dataclass(frozen=True)
class Judged:
    """What one model says of the windows that it is tested on.

    `lacks` says which classes validation lacked, so that a threshold could not be chosen.
    """

    test: Scored
    thresholds: Thresholds
    lacks: tuple[str, ...] = ()


# By scorer: `MODEL`, `PROBE`, or one of the floors.
Judgements = dict[str, Judged]


@dataclass(frozen=True)
class Evaluation:
    """What the windows of all folds were called, and the metrics of that.

    `undefined` says why a metric is None.
    """

    test: Called
    metrics: Metrics
    undefined: dict[str, str]


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


def judge(validation: Scored, test: Scored, classes: Sequence[str], target_fpr: float) -> Judged:
    """Return a model's word on `test`, by thresholds that are chosen on `validation`."""
    lacks = _lacks("validation", validation, classes)
    if test.score.ndim == 2:
        return Judged(test, Thresholds(decision=None, alarm=None), lacks)
    return Judged(test, choose_thresholds(validation, target_fpr), lacks)


def choose_thresholds(validation: Scored, target_fpr: float) -> Thresholds:
    """Return the thresholds for a binary task."""
    positive, score = validation.label == 1, validation.score
    decision = alarm = None
    if positive.any():
        at, hits, false = cuts(positive, score)
        f1 = 2 * hits / (hits + false + hits[-1])
        decision = float(at[np.flatnonzero(f1 == f1.max())[-1]])  # the lowest of the best
    if not positive.all():
        alarm = float(np.quantile(score[~positive], 1 - target_fpr, method="higher"))
    return Thresholds(decision=decision, alarm=alarm)


def threshold_for_each(validation: Scored, target_fpr: float) -> dict[float, float]:
    """Return a threshold by target, the job's own among them; none without negatives."""
    found = {
        target: choose_thresholds(validation, target).alarm
        for target in sorted({*TARGETS, target_fpr})
    }
    return {target: one for target, one in found.items() if one is not None}


def draws_of(index: WindowIndex, judged: Sequence[Judged], n_resamples: int, seed: int) -> Draws:
    """Return draws of the windows of all folds; they hold for whoever judges the same windows."""
    windows = np.sort(np.concatenate([one.test.windows for one in judged]))
    return Draws(resampling_groups(index, windows), n_resamples, seed)


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


def evaluate(judged: Sequence[Judged], classes: Sequence[str], draws: Draws) -> Evaluation:
    """Return the metrics of what was `judged`: by one model, or each fold by its own.

    `draws` are of the same windows, by `draws_of`.
    """
    test, groups = _together(judged), draws.groups
    found = measure(test, draws)
    _withdraw(found, test, groups)
    metrics = _values(found)
    # An undefined metric has no interval either: the reason is given once.
    known = [name for name, value in metrics.items() if value is not None]
    metrics |= {f"{name}_ci": _interval(name, found[name], test, groups) for name in known}
    lacks = {one for each in judged for one in each.lacks} | set(_lacks("test", test, classes))
    undefined = _reasons(metrics, sorted(lacks, reverse=True), draws)
    return Evaluation(test, metrics, undefined)


def _together(judged: Sequence[Judged]) -> Called:
    """Return the windows of all folds, in the order of the index, and what they were called."""
    parts = [called_by(one.thresholds, one.test, fold) for fold, one in enumerate(judged)]
    names = ("windows", "label", "score", "called", "alarm", "fold")
    joined = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
    order = np.argsort(joined["windows"], kind="stable")
    return Called(**joined, probable=parts[0].probable).of(order)


def _withdraw(found: dict[str, Floats], test: Scored, groups: Groups) -> None:
    """Take back rankings against a class that hardly any group holds: they say nothing."""
    present = np.unique(test.label)
    least = min(groups.holding(test.label == k) for k in present)
    if len(present) > 1 and least < LEAST_GROUPS:
        for name in RANKING:
            found[name] = np.full_like(found[name], np.nan)


def _interval(name: str, draws: Floats, test: Scored, groups: Groups) -> list[float] | None:
    """Return the 95 % interval of a metric, exact where it is at an end of what can be."""
    if (found := exact_interval(float(draws[0]), _holding(name, test, groups))) is not None:
        return found
    units = groups.hosts if groups.over_hosts else len(groups.host)
    most = 2.0 if name == "brier" and test.score.ndim == 2 else 1.0
    return interval(draws, units, most)


def _holding(name: str, test: Scored, groups: Groups) -> int:
    """Return how many groups hold the windows that a metric is of: of each class that it needs."""
    classes = {"tpr_at_fpr": [1], "fpr_realised": [0]}.get(name, np.unique(test.label))
    return min(groups.holding(test.label == k) for k in classes)


def _values(found: Mapping[str, Floats]) -> Metrics:
    """Return the metrics of the part itself, None where one is not defined."""
    values = {name: float(draws[0]) for name, draws in found.items()}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def figures_of_hosts(
    index: WindowIndex, found: Evaluation, classes: Sequence[str]
) -> dict[str, HostFigures]:
    """Return the figures of each host, by its name."""
    host, figures = index.host[found.test.windows], {}
    for number in np.unique(host):
        mine: Bools = host == number
        part = found.test.of(mine)
        metrics = measure(part, Draws(one_group(len(part.label))))
        figures[index.hosts[number]] = HostFigures(
            windows=len(part.label),
            counts=np.bincount(part.label, minlength=len(classes)).tolist(),
            metrics=_values(metrics),
        )
    return figures


def over_hosts(per_host: Mapping[str, HostFigures]) -> dict[str, OverHosts]:
    """Return mean and spread of each metric over the hosts that define it."""
    found = {}
    for name in next(iter(per_host.values())).metrics:
        values = [one.metrics[name] for one in per_host.values()]
        known = np.array([value for value in values if value is not None], dtype=float)
        if len(known):
            found[name] = OverHosts(
                hosts=len(known),
                mean=float(known.mean()),
                deviation=float(known.std(ddof=1)) if len(known) > 1 else None,
                least=float(known.min()),
                most=float(known.max()),
            )
    return found


def confusion(found: Evaluation, classes: Sequence[str]) -> list[list[int]]:
    """Return rows of true and columns of called classes; empty where there is no threshold."""
    label, called, count = found.test.label, found.test.called, len(classes)
    known = called >= 0
    if not known.any():
        return []
    pairs = count * label[known] + called[known]
    matrix: list[list[int]] = np.bincount(pairs, minlength=count**2).reshape(-1, count).tolist()
    return matrix


def _lacks(name: str, part: Scored, classes: Sequence[str]) -> tuple[str, ...]:
    absent = [label for k, label in enumerate(classes) if not (part.label == k).any()]
    return (f"the {name} part has no window of class {', '.join(absent)}",) if absent else ()


def _reasons(metrics: Mapping[str, Any], lacks: Sequence[str], draws: Draws) -> dict[str, str]:
    """Return why each metric that is None is so."""
    why = [*lacks, *(["no resamples were asked for"] if draws.asked == 0 else [])]
    few = f"a class is in too few groups; {LEAST_GROUPS} are the least, and a group is one "
    reason = "; ".join(why) or few + draws.groups.what
    return {
        name: "the score is no probability" if name in OF_PROBABILITIES else reason
        for name, value in metrics.items()
        if value is None
    }


def marks_of(metrics: Metrics, test: Scored) -> tuple[Mark, ...]:
    """Return what is wrong with a result on a test part."""
    area, floor = metrics["auroc"], metrics.get("floor_auroc")
    between = metrics.get("auroc_ci")
    marks = []
    if between is not None and max(between) < CHANCE:
        marks.append(Mark(code="below_chance", metric="auroc", value=area, limit=CHANCE))
    # To three decimals, as people see them.
    if area is not None and floor is not None and round(area, 3) < round(floor, 3):
        marks.append(Mark(code="below_floor", metric="auroc", value=area, limit=floor))
    brier, limit = metrics.get("brier"), brier_of_base_rate(test)
    if brier is not None and 0 < limit < brier:  # of one class alone it is 0
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
