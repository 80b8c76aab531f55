"""Standardisation inside the network, so that weights and statistics cannot come apart."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from agent.trainer.arrays import Floats

_LEAST_SCALE: Final = 1e-6


class Standardise(nn.Module):
    """Subtracts the mean, divides by the deviation, of each input in the last dimension; squashes.

    A host that nobody trained on is far out in many inputs, and telemetry has long tails: what is
    z deviations from the mean becomes sign(z) log(1 + |z|).
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def fit(self, mean: Floats, deviation: Floats) -> None:
        """Take over the statistics (inputs,); an input that never changes is only centred."""
        scale = torch.as_tensor(deviation, dtype=torch.float32)
        self.mean.copy_(torch.as_tensor(mean, dtype=torch.float32))
        self.scale.copy_(torch.where(scale > _LEAST_SCALE, scale, torch.ones_like(scale)))

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` standardised and squashed; same shape."""
        return squash(self.deviations(values))

    def deviations(self, values: Tensor) -> Tensor:
        """Return how many deviations `values` are from the mean; same shape."""
        return (values - self.mean) / self.scale


def squash(values: Tensor) -> Tensor:
    """Return sign(z) log(1 + |z|) of `values`; same shape."""
    return values.abs().log1p().copysign(values)
