"""A residual 1-D convolutional network on raw windows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agent.trainer.models.layers import Dropout


@dataclass(frozen=True)
class CnnSize:
    """Channels in, classes out; filters, residual blocks and steps that a filter spans."""

    inputs: int
    classes: int
    hidden: int
    layers: int
    kernel: int
    dropout: float


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, size: CnnSize) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(size.hidden, size.hidden, size.kernel, padding="same", bias=False),
            nn.BatchNorm1d(size.hidden),
            nn.ReLU(),
            Dropout(size.dropout),
            nn.Conv1d(size.hidden, size.hidden, size.kernel, padding="same", bias=False),
            nn.BatchNorm1d(size.hidden),
        )

    def forward(self, series: Tensor) -> Tensor:
        return torch.relu(series + self.body(series))


class Cnn(nn.Module):
    """A convolution, residual blocks each at half the resolution, mean and maximum over time."""

    def __init__(self, size: CnnSize) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(size.inputs, size.hidden, size.kernel, padding="same", bias=False),
            nn.BatchNorm1d(size.hidden),
            nn.ReLU(),
        )
        self.blocks = nn.ModuleList(_Block(size) for _ in range(size.layers))
        self.head = nn.Sequential(Dropout(size.dropout), nn.Linear(2 * size.hidden, size.classes))

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
