"""Tests a trained model, and its floors, on windows that it was not trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION
from agent.trainer.evaluation.evaluate import (
    MODEL,
    PROBE,
    Judged,
    Judgements,
    choose_thresholds,
    judge,
    overall,
    plain_figures,
    threshold_for_each,
)
from agent.trainer.evaluation.floors import Score, fit_floors
from agent.trainer.evaluation.importance import channel_columns, permutation_importance, sample
from agent.trainer.evaluation.report_schema import FoldFigures, HostParts, HostThreshold, Thresholds
from agent.trainer.evaluation.results import Tested
from agent.trainer.evaluation.thresholds import Past, Track, choose_procedure
from agent.trainer.training.loading import Loaded, Trained


def tested(loaded: Loaded, trained: Trained) -> Tested:
    """Return what a model does on its test part."""
    told = _judged(loaded, trained)
    falls, windows = _falls(loaded, trained)
    thresholds = told[MODEL].thresholds
    procedure = procedure_of(loaded, trained, thresholds)
    # With several classes the score that has an alarm has no labels: no class is the normal one.
    if procedure is None or thresholds.alarm is None or loaded.schema.task == "multiclass":
        return Tested(told, procedure, (), {}, falls, windows)
    decision = np.nan if thresholds.decision is None else thresholds.decision
    tracks = tuple(
        replace(
            track,
            own=Past(procedure).follow(track.score),
            alarm=thresholds.alarm,
            decision=decision,
        )
        for track in _tracks(loaded, trained, TEST)
    )
    validation = loaded.scored_on(loaded.validation, trained.score)
    targets = threshold_for_each(validation, loaded.job.hyper.target_fpr)
    return Tested(told, procedure, tracks, targets, falls, windows)


def procedure_of(loaded: Loaded, trained: Trained, thresholds: Thresholds) -> HostThreshold | None:
    """Return how a host's own threshold is set with a model; None where there is no alarm."""
    if thresholds.alarm is None:
        return None
    return choose_procedure(_tracks(loaded, trained, VALIDATION), loaded.job.hyper.target_fpr)


def _tracks(loaded: Loaded, trained: Trained, part: int) -> tuple[Track, ...]:
    """Return the track of each host of a part, without thresholds."""
    index, found = loaded.index, []
    windows = np.flatnonzero(loaded.splits.part == part)
    score = loaded.scored_on(windows, trained.score).score
    for host in np.unique(index.host[windows]):
        mine = index.host[windows] == host
        label, none = index.label[windows[mine]], np.full(int(mine.sum()), np.nan)
        found.append(Track(index.hosts[host], windows[mine], label, score[mine], none))
    return tuple(found)


def _falls(loaded: Loaded, trained: Trained) -> tuple[dict[str, float], int]:
    """Return the fall of the AUROC by channel, and on how many labelled test windows."""
    columns = channel_columns(trained.inputs)
    label = loaded.index.label[loaded.test]
    chosen = sample(label, len(columns), loaded.job.seed)
    anomalies_alone = trained.pretrained_on is not None and loaded.schema.task == "multiclass"
    if anomalies_alone or not len(chosen):
        return {}, 0

    def score(inputs: Floats) -> Floats:
        return loaded.of_positive(trained.of_inputs(inputs))

    inputs = trained.gather(loaded.test[chosen])
    found = permutation_importance(inputs, label[chosen], columns, score, loaded.job.seed)
    return found, len(chosen)


def _judged(loaded: Loaded, trained: Trained) -> Judgements:
    """Return what model, probe and floors say of the test windows."""
    found = {MODEL: _model(loaded, trained)}
    if trained.probe is not None:
        found[PROBE] = _judge(loaded, trained.probe)
    return found | _floors(loaded)


def _model(loaded: Loaded, trained: Trained) -> Judged:
    if trained.pretrained_on is None:
        return _judge(loaded, trained.score)
    if trained.probe is not None and loaded.schema.task == "multiclass":
        thresholds = thresholds_of(loaded, trained)
        by_probe = _judge(loaded, trained.probe)
        return Judged(by_probe.test, thresholds, by_probe.lacks)
    return _judge(loaded, trained.score, probable=False)


def thresholds_of(loaded: Loaded, trained: Trained) -> Thresholds:
    """Return the thresholds that a model is stored with."""
    scored = loaded.scored_on(loaded.validation, trained.score)
    if scored.score.ndim == 2:
        return Thresholds(decision=None, alarm=None)
    if loaded.schema.task == "multiclass":
        # No class of several is the normal one: every validation window sets the alarm.
        scored = replace(scored, label=np.zeros_like(scored.label))
    return choose_thresholds(scored, loaded.job.hyper.target_fpr)


def _judge(loaded: Loaded, score: Score, *, probable: bool = True) -> Judged:
    validation = loaded.scored_on(loaded.validation, score, probable=probable)
    test = loaded.scored_on(loaded.test, score, probable=probable)
    return judge(validation, test, loaded.schema.classes, loaded.job.hyper.target_fpr)


def _floors(loaded: Loaded) -> Judgements:
    if not loaded.has_labels:
        return {}
    classes, label = len(loaded.schema.classes), loaded.index.label
    floors = fit_floors(loaded.features, label, loaded.train, loaded.validation, classes)
    return {
        name: _judge(loaded, score, probable=name != "threshold" or classes > 2)
        for name, score in floors.items()
    }


def fold_figures(loaded: Loaded, trained: Trained, tested: Tested) -> FoldFigures:
    """Return what the report tells of a fold."""
    job, classes = loaded.job, loaded.schema.classes
    found = overall(loaded.index, [tested.judged], classes, n_resamples=0, seed=job.seed)
    return FoldFigures(
        fold=job.fold,
        windows=loaded.splits.sizes(),
        hosts=hosts_of(loaded),
        thresholds=tested.judged[MODEL].thresholds,
        training=trained.training,
        metrics=plain_figures(found.model.metrics),
    )


def hosts_of(loaded: Loaded) -> HostParts:
    """Return the hosts of each part."""
    index, splits = loaded.index, loaded.splits
    return HostParts(**{
        name: [index.hosts[host] for host in np.unique(index.host[splits.windows(part)])]
        for part, name in ((TRAIN, "training"), (VALIDATION, "validation"), (TEST, "test"))
    })  # fmt: skip
