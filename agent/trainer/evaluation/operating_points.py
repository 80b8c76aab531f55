"""What thresholds for several target rates, chosen on validation, do on the test part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Bools
from agent.trainer.evaluation.evaluate import choose_thresholds
from agent.trainer.evaluation.metrics import Scored
from agent.trainer.evaluation.report_schema import OperatingPoint
from agent.trainer.evaluation.thresholds import Track

TARGETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


def threshold_for_each(validation: Scored, target_fpr: float) -> dict[float, float]:
    """Return a threshold by target, the job's own among them; none without negatives."""
    found = {
        target: choose_thresholds(validation, target).alarm
        for target in sorted({*TARGETS, target_fpr})
    }
    return {target: one for target, one in found.items() if one is not None}


def points_of(
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
        fpr=share(called, ~positive),
        recall=share(called, positive),
        precision=share(positive, called),
    )


def share(chosen: Bools, among: Bools) -> float | None:
    """Return the share that is `chosen` (n,) of those `among` (n,) whom it is counted."""
    return float(chosen[among].mean()) if among.any() else None
