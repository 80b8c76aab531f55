"""What a trained model says of the windows that it is tested on, and what its floors say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent.trainer.data.splits import TEST, TRAIN, VALIDATION
from agent.trainer.evaluation.evaluate import Judged, choose_thresholds, judge
from agent.trainer.evaluation.floors import Score, fit_floors
from agent.trainer.evaluation.overall import MODEL, PROBE, Judgements, overall, plain_figures
from agent.trainer.evaluation.report_schema import FoldFigures, HostParts, Thresholds
from agent.trainer.evaluation.results import Tested
from agent.trainer.training.loading import Loaded, Trained


def judged(loaded: Loaded, trained: Trained) -> Judgements:
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
