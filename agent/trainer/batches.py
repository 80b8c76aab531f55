"""Gathers batches by window number; windows are views of the series and never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from agent.trainer.arrays import Bools, Floats, Ints
from agent.trainer.data import Series, WindowIndex
from agent.trainer.errors import BadInputError
from agent.trainer.models.standardise import Standardise

_CHUNK_ROWS: Final = 65_536
_CHUNK_WINDOWS: Final = 1_024
_DEVICE_SHARE: Final = 0.5  # of the free memory of a device that the series may take


class Batches(Protocol):
    """Where a network's inputs come from."""

    def gather(self, windows: Tensor) -> Tensor:
        """Return the inputs of `windows` (batch,), on the device."""

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (inputs,) over `windows`."""


class FeatureBatches:
    """Inputs (batch, features) out of the summary features, which are its own from then on."""

    def __init__(self, features: Floats, device: torch.device) -> None:
        self._features = features
        self._tensor = torch.from_numpy(features).to(device)

    def gather(self, windows: Tensor) -> Tensor:
        """Return (batch, features)."""
        return self._tensor.index_select(0, windows.to(self._tensor.device))

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (features,) over `windows`."""

        def chunks() -> Iterator[Floats]:
            for at in range(0, len(windows), _CHUNK_WINDOWS):
                yield self._features[windows[at : at + _CHUNK_WINDOWS]]

        return mean_and_deviation(chunks)

    def standardise(self, standardise: Standardise) -> None:
        """Standardise all features, once and for all, in the place where they are."""
        for at in range(0, len(self._tensor), _CHUNK_WINDOWS):
            chunk = self._tensor[at : at + _CHUNK_WINDOWS]
            chunk.copy_(standardise(chunk))


class WindowBatches:
    """Inputs (batch, steps, channels) out of the series; these lie on the device if they fit."""

    def __init__(self, series: Series, index: WindowIndex, device: torch.device) -> None:
        self._parts = series.parts
        self._channels = series.channels
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
        found = [mean_and_deviation(partial(self._rows, part, covered)) for part in self._parts]
        mean, deviation = (np.concatenate(one) for one in zip(*found))
        if not np.isfinite(mean).all():
            name = self._channels[int(np.flatnonzero(~np.isfinite(mean))[0])]
            raise BadInputError.at(
                "tensors", name, "holds values that are not finite", "prepare the data anew"
            )
        return mean, deviation

    def _covered(self, windows: Ints) -> Bools:
        ends = np.zeros(len(self._parts[0]) + 1, dtype=np.int64)
        np.add.at(ends, self._windows[windows], 1)
        np.add.at(ends, self._windows[windows] + self._steps, -1)
        return np.asarray(np.cumsum(ends)[:-1] > 0)

    @staticmethod
    def _rows(part: Floats, covered: Bools) -> Iterator[Floats]:
        """Yield the covered rows, some at a time."""
        for at in range(0, len(part), _CHUNK_ROWS):
            yield part[at : at + _CHUNK_ROWS][covered[at : at + _CHUNK_ROWS]]


def mean_and_deviation(chunks: Callable[[], Iterable[Floats]]) -> tuple[Floats, Floats]:
    """Return mean and deviation (inputs,) of rows that come as `chunks` (n, inputs), twice."""
    count, total, squares = 0, 0.0, 0.0
    for chunk in chunks():
        count += len(chunk)
        total = total + chunk.sum(axis=0, dtype=np.float64)
    mean = np.asarray(total / count)
    for chunk in chunks():
        squares = squares + ((chunk - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(squares / count)
