"""The supervised networks but the transformer: perceptron, convolutional, and recurrent."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn

from agent.trainer.models.layers import Dropout, Standardise


class Mlp(nn.Module):
    """A perceptron on features: standardisation, and layers that can be trained without it."""

    def __init__(self, inputs: int, classes: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.standardise = Standardise(inputs)
        self.layers = _Layers(inputs, classes, [hidden] * layers, dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (batch, classes) of `features` (batch, inputs)."""
        logits: Tensor = self.layers(self.standardise(features))
        return logits


class _Layers(nn.Module):
    """A linear model and layers beside it; both begin at zero, so the linear is learnt first."""

    def __init__(self, inputs: int, classes: int, hidden: list[int], dropout: float) -> None:
        super().__init__()
        body: list[nn.Module] = []
        for before, after in itertools.pairwise([inputs, *hidden]):
            body += [nn.Linear(before, after), nn.GELU(), Dropout(dropout)]
        self.linear = nn.Linear(inputs, classes)
        head = nn.Linear(hidden[-1], classes)
        for layer in (self.linear, head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.body = nn.Sequential(*body, head)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.linear(inputs) + self.body(inputs)
        return logits


class Cnn(nn.Module):
    """A convolution, residual blocks each at half the resolution, mean and maximum over time."""

    def __init__(
        self, inputs: int, classes: int, hidden: int, layers: int, kernel: int, dropout: float
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(inputs, hidden, kernel), nn.ReLU())
        self.blocks = nn.ModuleList(_Block(hidden, kernel, dropout) for _ in range(layers))
        self.head = nn.Sequential(Dropout(dropout), nn.Linear(2 * hidden, classes))

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of standardised `windows` (batch, steps, inputs)."""
        series = self.stem(windows.transpose(1, 2).contiguous())
        for at, block in enumerate(self.blocks):
            if at and series.shape[-1] >= 4:
                # Means, not maxima: their gradient is deterministic on CUDA too.
                series = nn.functional.avg_pool1d(series, 2)
            series = block(series)
        logits: Tensor = self.head(torch.cat([series.mean(-1), series.amax(-1)], dim=1))
        return logits


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, hidden: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(hidden, hidden, kernel),
            nn.ReLU(),
            Dropout(dropout),
            *_convolution(hidden, hidden, kernel),
        )

    def forward(self, series: Tensor) -> Tensor:
        return torch.relu(series + self.body(series))


def _convolution(inputs: int, outputs: int, kernel: int) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv1d(inputs, outputs, kernel, padding="same", bias=False)
    return convolution, nn.BatchNorm1d(outputs)


class Recurrent(nn.Module):
    """Reads the window in both directions; mean and maximum over time go to a linear head."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        cell: Literal["gru", "lstm"],
        hidden: int,
        layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.cell = (nn.GRU if cell == "gru" else nn.LSTM)(
            inputs,
            hidden,
            layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.head = nn.Sequential(Dropout(dropout), nn.Linear(4 * hidden, classes))

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of standardised `windows` (batch, steps, inputs)."""
        states, _ = self.cell(windows)
        logits: Tensor = self.head(torch.cat([states.mean(1), states.amax(1)], dim=1))
        return logits
