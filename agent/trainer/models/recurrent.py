"""Gated recurrent units and long short-term memory on raw windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from agent.trainer.models.layers import Dropout


@dataclass(frozen=True)
class RecurrentSize:
    """Channels in, classes out; the cell, its units in each direction, and layers."""

    inputs: int
    classes: int
    cell: Literal["gru", "lstm"]
    hidden: int
    layers: int
    dropout: float


class Recurrent(nn.Module):
    """Reads the window in both directions; mean and maximum over time go to a linear head."""

    def __init__(self, size: RecurrentSize) -> None:
        super().__init__()
        cell = nn.GRU if size.cell == "gru" else nn.LSTM
        self.cell = cell(
            size.inputs,
            size.hidden,
            size.layers,
            batch_first=True,
            bidirectional=True,
            dropout=size.dropout if size.layers > 1 else 0.0,
        )
        self.head = nn.Sequential(Dropout(size.dropout), nn.Linear(4 * size.hidden, size.classes))

    def forward(self, windows: Tensor) -> Tensor:
        """Return logits (batch, classes) of standardised `windows` (batch, steps, inputs)."""
        states, _ = self.cell(windows)
        logits: Tensor = self.head(torch.cat([states.mean(1), states.amax(1)], dim=1))
        return logits
