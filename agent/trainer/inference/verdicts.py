"""From scores to verdicts, by a stored model's thresholds and each host's past."""

from __future__ import annotations

from typing import Any

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.evaluation.thresholds import Past
from agent.trainer.models.description import Description


class Verdicts:
    """Follows the scores of each host in order."""

    def __init__(self, told: Description) -> None:
        self._told = told
        self._pasts: dict[str, Past] = {}

    def of(self, host: str, scores: dict[str, Floats]) -> dict[str, Any]:
        """Return the verdicts, columns (n,), on a host's next windows with the columns `scores`."""
        told, found = self._told, {}
        several = [name for name in scores if name.startswith("p_")]
        if told.task == "multiclass" and several:
            best = np.stack([scores[name] for name in several]).argmax(axis=0)
            found["called"] = np.array(told.classes)[best]
        elif told.thresholds.decision is not None:
            positive = scores["score"] >= told.thresholds.decision
            found["called"] = np.where(positive, told.classes[1], told.classes[0])
        if told.thresholds.alarm is not None and "score" in scores:
            found |= self._alarms(host, scores["score"], told.thresholds.alarm)
        return found

    def _alarms(self, host: str, score: Floats, pooled: float) -> dict[str, Any]:
        found: dict[str, Any] = {"alarm": score > pooled}
        if self._told.host_threshold is not None:
            past = self._pasts.setdefault(host, Past(self._told.host_threshold))
            own = past.follow(score)
            found["host_threshold"] = np.where(np.isnan(own), pooled, own)
            found["host_alarm"] = score > found["host_threshold"]
        return found
