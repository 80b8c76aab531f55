"""What a report tells of models that were tested: of a single one, or of each fold's.

A job with all folds and `combine` use the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.trainer.common.arrays import Bools
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.curves import curves_of
from agent.trainer.evaluation.evaluate import (
    Judgements,
    confusion,
    figures_of_hosts,
    marks_of,
    over_hosts,
    overall,
)
from agent.trainer.evaluation.events import measure_events
from agent.trainer.evaluation.metrics import Metrics
from agent.trainer.evaluation.report_schema import (
    Events,
    FoldFigures,
    HostThreshold,
    HostThresholds,
    Importance,
    OperatingPoint,
    Realised,
    Thresholds,
)
from agent.trainer.evaluation.thresholds import Track


@dataclass(frozen=True)
class Tested:
    """What is known of a model after its test, and all that is kept of a fold's model.

    `procedure` is how it sets a host's own threshold. `tracks` and `targets` (thresholds by target
    rate) are empty where the task has no alarm. `falls` are those of the AUROC, by channel, on so
    many `windows`.
    """

    judged: Judgements
    procedure: HostThreshold | None
    tracks: tuple[Track, ...]
    targets: dict[float, float]
    falls: dict[str, float]
    windows: int


@dataclass(frozen=True)
class Stored:
    """What is told of the model that is stored; nothing where none is."""

    thresholds: Thresholds
    procedure: HostThreshold | None = None
    gain: dict[str, float] | None = None


@dataclass(frozen=True)
class Results:
    """What was found; `told` is what the report tells of it, but for the metrics of a `probe`."""

    stored: Stored
    told: dict[str, Any]
    probe: Metrics | None


def results_of(
    index: WindowIndex,
    classes: Sequence[str],
    tested: Sequence[Tested],
    folds: Sequence[FoldFigures],
    *,
    n_resamples: int,
    seed: int,
    stored: Stored,
) -> Results:
    """Return the results of the models that were `tested`: a single one, or each fold's."""
    judged = [one.judged for one in tested]
    found = overall(index, judged, classes, n_resamples=n_resamples, seed=seed)
    model, groups = found.model, found.groups
    tracks = [track for one in tested for track in one.tracks]
    per_host = figures_of_hosts(index, model, classes)
    told: dict[str, Any] = {
        "curves": curves_of(model.test, classes, tracks),
        "metrics": model.metrics,
        "floors": found.floors,
        "marks": marks_of(model.metrics, model.test),
        "undefined": model.undefined,
        "thresholds": stored.thresholds,
        "bootstrap": {
            "n_resamples": n_resamples,
            "group": groups.what,
            "hosts": groups.hosts,
            "these_hosts_only": not groups.over_hosts,
        },
        "confusion": confusion(model, classes),
        "per_host": per_host,
        "over_hosts": over_hosts(per_host),
        "host_thresholds": _host_thresholds(tracks, stored.procedure),
        "events": _events(index, tracks),
        "operating_points": _points([(one.tracks, one.targets) for one in tested]),
        "importance": _importance(tested, stored.gain),
    }
    if folds:
        told["folds"] = folds
    return Results(stored, told, found.probe)


def _host_thresholds(
    tracks: Sequence[Track], procedure: HostThreshold | None
) -> HostThresholds | None:
    """Return what both thresholds do on labelled windows whose host has its own threshold."""
    judged = {one.host: _judged(one) for one in tracks}
    judged = {host: one for host, one in judged.items() if len(one[0])}
    if not judged:
        return None
    positive, own, pooled = (np.concatenate(one) for one in zip(*judged.values()))
    return HostThresholds(
        procedure=procedure,
        overall=_realised(positive, own, pooled),
        per_host={host: _realised(*one) for host, one in judged.items()},
    )


def _judged(track: Track) -> tuple[Bools, Bools, Bools]:
    """Return labels and both alarms of the labelled windows whose host has its own threshold."""
    chosen = (track.label >= 0) & ~np.isnan(track.own)
    score = track.score[chosen]
    return track.label[chosen] == 1, score > track.own[chosen], score > track.alarm


def _realised(positive: Bools, own: Bools, pooled: Bools) -> Realised:
    return Realised(
        windows=len(positive),
        fpr=_share(own, ~positive),
        fpr_pooled=_share(pooled, ~positive),
        tpr=_share(own, positive),
        tpr_pooled=_share(pooled, positive),
    )


def _events(index: WindowIndex, tracks: Sequence[Track]) -> dict[str, Events]:
    """Return the events by the rule that calls them."""
    if not tracks:
        return {}
    rules: dict[str, Callable[[Track], Bools]] = {
        "alarm": lambda track: track.score > track.alarm,
        "host_alarm": lambda track: (
            track.score > np.where(np.isnan(track.own), track.alarm, track.own)
        ),
        "called": lambda track: track.score >= track.decision,
    }
    if np.isnan([track.decision for track in tracks]).any():
        del rules["called"]
    windows, label = (
        np.concatenate([getattr(track, name) for track in tracks]) for name in ("windows", "label")
    )
    order = np.argsort(windows)
    order = order[label[order] >= 0]
    found = {
        name: measure_events(
            index,
            windows[order],
            label[order] == 1,
            np.concatenate([rule(track) for track in tracks])[order],
        )
        for name, rule in rules.items()
    }
    return {name: events for name, events in found.items() if events is not None}


def _importance(tested: Sequence[Tested], gain: dict[str, float] | None) -> Importance | None:
    """Return the importance of each channel, of several folds the mean of those that tell."""
    told = [one for one in tested if one.falls]
    if not told and gain is None:
        return None
    falls = {
        name: float(np.mean([one.falls[name] for one in told]))
        for name in (told[0].falls if told else ())
    }
    ranked = dict(sorted(falls.items(), key=lambda one: (-one[1], one[0])))
    return Importance(windows=sum(one.windows for one in told), permutation=ranked, gain=gain)


def _points(
    models: Sequence[tuple[Sequence[Track], Mapping[float, float]]],
) -> list[OperatingPoint]:
    """Return the points of one model, or of each fold's, by its tracks and thresholds."""
    return [_point(target, models) for target in models[0][1]]


def _point(
    target: float, models: Sequence[tuple[Sequence[Track], Mapping[float, float]]]
) -> OperatingPoint:
    pairs = [(track, of[target]) for tracks, of in models if target in of for track in tracks]
    label = np.concatenate([track.label for track, _ in pairs])
    called = np.concatenate([track.score > threshold for track, threshold in pairs])[label >= 0]
    positive = label[label >= 0] == 1
    return OperatingPoint(
        target_fpr=target,
        threshold=models[0][1][target] if len(models) == 1 else None,
        fpr=_share(called, ~positive),
        recall=_share(called, positive),
        precision=_share(positive, called) if positive.any() else None,
    )


def _share(chosen: Bools, among: Bools) -> float | None:
    """Return the share that is `chosen` (n,) of those `among` (n,) whom it is counted."""
    return float(chosen[among].mean()) if among.any() else None
