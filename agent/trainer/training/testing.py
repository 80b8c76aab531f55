"""Tests a trained model on hosts that it was not trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.data.splits import TEST, VALIDATION
from agent.trainer.evaluation.findings_schema import HostThreshold
from agent.trainer.evaluation.importance import channel_columns, permutation_importance, sample
from agent.trainer.evaluation.operating_points import threshold_for_each
from agent.trainer.evaluation.overall import MODEL
from agent.trainer.evaluation.report_schema import Thresholds
from agent.trainer.evaluation.results import Tested
from agent.trainer.evaluation.thresholds import Past, Track, choose_procedure
from agent.trainer.training.judging import judged
from agent.trainer.training.loading import Loaded, Trained


def tested(loaded: Loaded, trained: Trained) -> Tested:
    """Return what a model does on its test part."""
    told = judged(loaded, trained)
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
        found = trained.of_inputs(inputs)
        return found[:, 1] if found.ndim == 2 and loaded.schema.task == "binary" else found

    inputs = trained.gather(loaded.test[chosen])
    found = permutation_importance(inputs, label[chosen], columns, score, loaded.job.seed)
    return found, len(chosen)
