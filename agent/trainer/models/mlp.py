"""A multi-layer perceptron on summary features."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import Tensor, nn

from agent.trainer.models.layers import Dropout, Standardise


@dataclass(frozen=True)
class MlpSize:
    """Features in, classes out, and the layers between them."""

    inputs: int
    classes: int
    hidden: int
    layers: int
    dropout: float


class Mlp(nn.Module):
    """Layers on standardised features; these are apart, so that features that are, are so once."""

    def __init__(self, size: MlpSize) -> None:
        super().__init__()
        self.standardise = Standardise(size.inputs)
        self.layers = _Layers(size)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (batch, classes) of `features` (batch, inputs)."""
        logits: Tensor = self.layers(self.standardise(features))
        return logits


class _Layers(nn.Module):
    """A linear model, and beside it layers (linear, GELU, dropout) that add what it cannot say.

    Both begin at nought: what is linear is learnt first, and little else where data are few.
    """

    def __init__(self, size: MlpSize) -> None:
        super().__init__()
        widths = [size.inputs, *[size.hidden] * size.layers]
        body: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            body += [nn.Linear(before, after), nn.GELU(), Dropout(size.dropout)]
        self.linear = nn.Linear(size.inputs, size.classes)
        head = nn.Linear(size.hidden, size.classes)
        for layer in (self.linear, head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.body = nn.Sequential(*body, head)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.linear(inputs) + self.body(inputs)
        return logits
