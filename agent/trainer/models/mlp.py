"""A multi-layer perceptron on summary features."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import Tensor, nn

from agent.trainer.models.standardise import Standardise


@dataclass(frozen=True)
class MlpSize:
    """Features in, classes out, and the layers between them."""

    inputs: int
    classes: int
    hidden: int
    layers: int
    dropout: float


class Mlp(nn.Module):
    """Linear, layer norm, GELU, dropout; as often as there are layers; then a linear head."""

    def __init__(self, size: MlpSize) -> None:
        super().__init__()
        self.standardise = Standardise(size.inputs)
        widths = [size.inputs, *[size.hidden] * size.layers]
        body: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            body += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
            body.append(nn.Dropout(size.dropout))
        self.body = nn.Sequential(*body, nn.Linear(size.hidden, size.classes))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (batch, classes) of `features` (batch, inputs)."""
        logits: Tensor = self.body(self.standardise(features))
        return logits
