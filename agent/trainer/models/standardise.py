"""Standardisation inside the network, so that weights and statistics cannot come apart."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from agent.trainer.arrays import Floats

LIMIT: Final = 8.0  # standard deviations; a host unlike those trained on must not swamp a layer
_LEAST_SCALE: Final = 1e-6


class Standardise(nn.Module):
    """Subtracts the mean and divides by the deviation of each input in the last dimension.

    A host that nobody trained on is far out in many inputs. What is far out is clipped, or with
    `squash` becomes sign(z) log(1 + |z|) throughout: for features with long tails.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, *, squash: bool = False) -> None:
        super().__init__()
        self._squash = squash
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def fit(self, mean: Floats, deviation: Floats) -> None:
        """Take over the statistics (inputs,); an input that never changes is only centred."""
        scale = torch.as_tensor(deviation, dtype=torch.float32)
        self.mean.copy_(torch.as_tensor(mean, dtype=torch.float32))
        self.scale.copy_(torch.where(scale > _LEAST_SCALE, scale, torch.ones_like(scale)))

    def centred(self, values: Tensor) -> Tensor:
        """Return `values` standardised, however far out; same shape."""
        return (values - self.mean) / self.scale

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` standardised, and clipped or squashed; same shape."""
        standardised = self.centred(values)
        if self._squash:
            return standardised.sign() * standardised.abs().log1p()
        return standardised.clamp(-LIMIT, LIMIT)
