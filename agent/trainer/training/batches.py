"""Gathers batches by window number; windows are views of the series and never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.data.dataset import Series, WindowIndex

_CHUNK_ROWS: Final = 8_192
_CHUNK_WINDOWS: Final = 1_024
_DEVICE_SHARE: Final = 0.5  # of the free memory of a device that the series may take


class ArrayBatches:
    """Inputs (batch, ..., inputs) out of an array (windows, ..., inputs), such as the features."""

    def __init__(self, inputs: Floats, device: torch.device) -> None:
        self._inputs = inputs
        self._tensor = torch.from_numpy(inputs).to(device)

    def gather(self, windows: Tensor) -> Tensor:
        """Return (batch, ..., inputs)."""
        return self._tensor.index_select(0, windows.to(self._tensor.device))

    def statistics(self, windows: Ints) -> tuple[Floats, Floats]:
        """Return mean and deviation (..., inputs) over `windows`."""

        def chunks() -> Iterator[Floats]:
            for at in range(0, len(windows), _CHUNK_WINDOWS):
                yield self._inputs[windows[at : at + _CHUNK_WINDOWS]]

        return mean_and_deviation(chunks)


class WindowBatches:
    """Inputs (batch, steps, channels) out of the series, which is on the device if it fits."""

    def __init__(self, series: Series, index: WindowIndex, device: torch.device) -> None:
        self._parts = series.parts
        self._steps = index.length
        self._device = device
        self._offsets = torch.from_numpy(index.offset)
        self._starts = index.offset
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
        """Return mean and deviation (channels,) over the rows that `windows` cover, each once."""
        runs = self._runs(windows)
        found = [mean_and_deviation(partial(_rows_of, part, runs)) for part in self._parts]
        mean, deviation = (np.concatenate(one) for one in zip(*found))
        return mean, deviation

    def _runs(self, windows: Ints) -> list[tuple[int, int]]:
        """Return [begin, end) of the rows that the windows cover; touching ones are merged."""
        begins = np.sort(self._starts[windows])
        breaks = np.flatnonzero(np.diff(begins) > self._steps) + 1
        firsts = begins[np.concatenate([[0], breaks])]
        lasts = begins[np.concatenate([breaks - 1, [-1]])]
        return [(int(first), int(last) + self._steps) for first, last in zip(firsts, lasts)]


Batches = ArrayBatches | WindowBatches


def _rows_of(part: Floats, runs: Iterable[tuple[int, int]]) -> Iterator[Floats]:
    """Yield the rows of all runs, some at a time."""
    for begin, end in runs:
        for at in range(begin, end, _CHUNK_ROWS):
            yield part[at : min(at + _CHUNK_ROWS, end)]


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
