"""A linear model of each window's summary beside a deep network: the deep one adds to it.

After Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016. Telemetry has few hosts to
learn from; a linear model of plain statistics carries over to others better than most. Both parts
begin at nought, so that what is linear is learnt first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agent.trainer.models.standardise import Standardise

STATISTICS = 5


class WideAndDeep(nn.Module):
    """Adds to the logits of `deep` those of a linear model of mean, spread, extremes and change.

    `deep` takes windows (batch, steps, inputs), standardises them by `standardise`, and ends in the
    linear layer `head`.
    """

    def __init__(
        self, deep: nn.Module, standardise: Standardise, head: nn.Linear, inputs: int
    ) -> None:
        super().__init__()
        self.deep = deep
        self.wide = nn.Linear(STATISTICS * inputs, head.out_features)
        self._standardise = [standardise]  # in a list: it is the deep part's, and saved there
        for layer in (self.wide, head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of `windows` (batch, steps, inputs)."""
        logits: Tensor = self.deep(windows) + self.wide(self.summary(windows))
        return logits

    def summary(self, windows: Tensor) -> Tensor:
        """Return (batch, 5 inputs): mean, deviation, least, most, mean change; squashed."""
        series = self._standardise[0].centred(windows)
        change = series.diff(dim=1).abs().mean(1)
        parts = [series.mean(1), series.std(1, correction=0), series.amin(1), series.amax(1)]
        found = torch.cat([*parts, change], dim=1)
        return found.sign() * found.abs().log1p()
