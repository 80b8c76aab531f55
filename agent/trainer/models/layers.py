"""Layers that the networks share: dropout, standardisation, and the linear model beside them."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from agent.trainer.common.arrays import Floats

_LEVELS: Final = 256
_LEAST_SCALE: Final = 1e-6
_STATISTICS: Final = 5
_FAR: Final = 10.0  # deviations at which a statistic is cut off


class Dropout(nn.Module):
    """Drops a `share` of all values in training, to the nearest 256th, and scales up the others.

    On a CPU one draw of the generator decides eight values; torch's own draws for each, and costs
    the training of a transformer or cnn half as much again. On CUDA it is torch's own.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._dropped = min(round(share * _LEVELS), _LEVELS - 1)

    def forward(self, values: Tensor) -> Tensor:
        """Return `values`, some of them zero; same shape."""
        if not self.training or not self._dropped:
            return values
        if values.device.type != "cpu":
            return nn.functional.dropout(values, self._share)
        draws = torch.randint(-(2**63), 2**63 - 1, (values.numel() // 8 + 1,), dtype=torch.int64)
        level = draws.view(torch.uint8)[: values.numel()].view(values.shape)
        return values * ((level >= self._dropped) * (_LEVELS / (_LEVELS - self._dropped)))


class Standardise(nn.Module):
    """Subtracts the mean, divides by the deviation, of each input in the last dimension; squashes.

    Telemetry has long tails, and hosts never trained on are far out: what is z deviations from the
    mean becomes sign(z) log(1 + |z|).
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def fit(self, mean: Floats, deviation: Floats, of_a_unit: int = 1) -> None:
        """Set the statistics (inputs,); an input that never changes is only centred.

        `of_a_unit` neighbouring inputs have the same unit: the largest of them decides how small a
        deviation counts as rounding.
        """
        scale = torch.as_tensor(deviation, dtype=torch.float32)
        size = np.hypot(mean, deviation).reshape(-1, of_a_unit).max(axis=1)
        units = torch.as_tensor(np.repeat(np.minimum(size, 1.0), of_a_unit)).to(scale)
        least = _LEAST_SCALE * units
        self.mean.copy_(torch.as_tensor(mean, dtype=torch.float32))
        self.scale.copy_(torch.where(scale > least, scale, torch.ones_like(scale)))

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` standardised and squashed; same shape."""
        return squash(self.deviations(values))

    def deviations(self, values: Tensor) -> Tensor:
        """Return how many deviations `values` are from the mean; same shape."""
        return (values - self.mean) / self.scale


def squash(values: Tensor) -> Tensor:
    """Return sign(z) log(1 + |z|) of `values`; same shape."""
    return values.abs().log1p().copysign(values)


class WideAndDeep(nn.Module):
    """Adds a linear model of each window's mean, spread, extremes and change to a deep network.

    After Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016. With few hosts to
    learn from, a linear model carries over to others better than most. Both parts begin at zero, so
    that the linear one is learnt first. `deep`, which ends in the linear layer `head`, gets
    squashed windows; the statistics are standardised again and cut off: this carries over better.
    """

    def __init__(self, deep: nn.Module, head: nn.Linear, inputs: int) -> None:
        super().__init__()
        self.standardise = Standardise(inputs)
        self.level = Standardise(_STATISTICS * inputs)
        self.deep = deep
        self.wide = nn.Linear(_STATISTICS * inputs, head.out_features)
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
