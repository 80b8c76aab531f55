"""A linear model of each window's summary beside a deep network: the deep one adds to it.

After Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016. Telemetry has few hosts to
learn from; a linear model of plain statistics carries over to others better than most. Both parts
begin at nought, so that what is linear is learnt first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agent.trainer.models.standardise import Standardise, squash

STATISTICS = 5
_FAR = 10.0  # deviations at which a statistic is cut off


class WideAndDeep(nn.Module):
    """Adds to the logits of `deep` those of a linear model of mean, spread, extremes and change.

    Both see windows (batch, steps, inputs) standardised. `deep`, which ends in the linear layer
    `head`, sees them squashed; the statistics are standardised again, each by its own mean and
    deviation, and cut off: squashed, they carry over to other hosts worse.
    """

    def __init__(self, deep: nn.Module, head: nn.Linear, inputs: int) -> None:
        super().__init__()
        self.standardise = Standardise(inputs)
        self.level = Standardise(STATISTICS * inputs)
        self.deep = deep
        self.wide = nn.Linear(STATISTICS * inputs, head.out_features)
        for layer in (self.wide, head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of `windows` (batch, steps, inputs)."""
        series = self.standardise.deviations(windows)
        level = self.level.deviations(summary(series)).clamp(-_FAR, _FAR)
        logits: Tensor = self.deep(squash(series)) + self.wide(level)
        return logits


def summary(series: Tensor) -> Tensor:
    """Return (batch, 5 inputs) of windows: mean, deviation, least, most, mean change by a step."""
    change = (series[:, 1:] - series[:, :-1]).abs().mean(1)
    deviation = series.std(1, correction=0)
    return torch.cat([series.mean(1), deviation, series.amin(1), series.amax(1), change], dim=1)
