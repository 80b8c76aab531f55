"""Standardisation inside the network, so that weights and statistics cannot come apart."""

from __future__ import annotations

from typing import Final

import numpy as np
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

    def fit(self, mean: Floats, deviation: Floats, of_a_unit: int | None = None) -> None:
        """Take over the statistics (inputs,); an input that never changes is only centred.

        So many neighbours are `of_a_unit`; None says that no input has a unit. How much of a change
        is but rounding goes by how large the largest of them is.
        """
        scale = torch.as_tensor(deviation, dtype=torch.float32)
        least = torch.full_like(scale, _LEAST_SCALE)
        if of_a_unit is not None:
            size = np.hypot(mean, deviation).reshape(-1, of_a_unit).max(axis=1)
            least *= torch.as_tensor(np.repeat(np.minimum(size, 1.0), of_a_unit)).to(least)
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
