"""Gathers batches by window number; windows are views of the series and never stored."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from agent.trainer.arrays import Bools, Floats, Ints
from agent.trainer.data import Series, WindowIndex
from agent.trainer.errors import BadInputError

_CHUNK_ROWS: Final = 65_536
_DEVICE_SHARE: Final = 0.5  # of the free memory of a device that the series may take


class Batches(Protocol):
    """Where a network's inputs come from."""

    def gather(self, windows: Tensor) -> Tensor:
        """Return the inputs of `windows` (batch,), on the device."""

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (inputs,) over `windows`."""


class FeatureBatches:
    """Inputs (batch, features) out of the summary features."""

    def __init__(self, features: Floats, device: torch.device) -> None:
        self._features = features
        self._tensor = torch.from_numpy(features).to(device)

    def gather(self, windows: Tensor) -> Tensor:
        """Return (batch, features)."""
        return self._tensor.index_select(0, windows.to(self._tensor.device))

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (features,) over `windows`."""
        chosen = self._features[windows]
        return chosen.mean(axis=0, dtype=np.float64), chosen.std(axis=0, dtype=np.float64)


class WindowBatches:
    """Inputs (batch, steps, channels) out of the series; these lie on the device if they fit."""

    def __init__(self, series: Series, index: WindowIndex, device: torch.device) -> None:
        self._series = series
        self._steps = index.length
        self._device = device
        self._offsets = torch.from_numpy(index.offset)
        self._windows = index.offset
        parts = [torch.from_numpy(part) for part in series.parts]
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if sum(part.nbytes for part in parts) < _DEVICE_SHARE * free:
                parts = [part.to(device) for part in parts]
                self._offsets = self._offsets.to(device)
        self._views = [self._view(part) for part in parts]

    def _view(self, part: Tensor) -> Tensor:
        """Return every window as a row: (rows - steps + 1, steps * channels), overlapping."""
        rows, channels = part.shape
        shape = (rows - self._steps + 1, self._steps * channels)
        return part.as_strided(shape, (channels, 1))

    def gather(self, windows: Tensor) -> Tensor:
        """Return (batch, steps, channels)."""
        rows = self._offsets.index_select(0, windows.to(self._offsets.device))
        pieces = [
            view.index_select(0, rows).view(len(rows), self._steps, -1) for view in self._views
        ]
        return torch.cat(pieces, dim=2).to(self._device)

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (channels,) over the rows that `windows` cover, each once.

        Raises BadInputError where a value is not finite.
        """
        covered = self._covered(windows)
        count = int(covered.sum())
        total = np.concatenate([self._sums(part, covered, None) for part in self._series.parts])
        mean = total / count
        if not np.isfinite(mean).all():
            name = self._series.channels[int(np.flatnonzero(~np.isfinite(mean))[0])]
            raise BadInputError.at(
                "tensors", name, "holds values that are not finite", "prepare the data anew"
            )
        squares, at = [], 0
        for part in self._series.parts:
            squares.append(self._sums(part, covered, mean[at : at + part.shape[1]]))
            at += part.shape[1]
        return mean, np.sqrt(np.concatenate(squares) / count)

    def _covered(self, windows: Ints) -> Bools:
        ends = np.zeros(len(self._series.parts[0]) + 1, dtype=np.int64)
        np.add.at(ends, self._windows[windows], 1)
        np.add.at(ends, self._windows[windows] + self._steps, -1)
        return np.asarray(np.cumsum(ends)[:-1] > 0)

    @staticmethod
    def _sums(part: Floats, covered: Bools, mean: Floats | None) -> Floats:
        """Return the sum (channels,) of the covered rows, or of their squares about `mean`."""
        total = np.zeros(part.shape[1])
        for at in range(0, len(part), _CHUNK_ROWS):
            rows = part[at : at + _CHUNK_ROWS][covered[at : at + _CHUNK_ROWS]].astype(np.float64)
            total += rows.sum(axis=0) if mean is None else ((rows - mean) ** 2).sum(axis=0)
        return total
