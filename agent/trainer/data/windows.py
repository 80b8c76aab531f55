"""Cuts a stream of rows into windows and labels them; holds no more than a batch of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from agent.trainer.common.arrays import AnyArray, Floats, Ints
from agent.trainer.data.raw_file import UNLABELLED, Rows
from agent.trainer.data.schema import EpisodeEntry, LabelRule, Task

# Of each task: how a window's label can follow from its rows'; the first is the default.
RULES: Final[Mapping[Task, tuple[LabelRule, ...]]] = {
    "binary": ("any", "last", "share"),
    "multiclass": ("majority", "last"),
    "unlabelled": ("any", "last", "share", "majority"),
}


@dataclass(frozen=True)
class Labelling:
    """The task, its classes in order of their numbers, and how a window is labelled.

    A window is positive if `any` of its rows is, if a `share` of them is, or of the class of the
    `last` row, or of the `majority` (the most frequent one; at a tie, the lowest). A window with an
    unlabelled row is unlabelled.
    """

    task: Task
    classes: tuple[str, ...]
    rule: LabelRule = "any"
    share: float | None = None

    def of_windows(self, labels: Ints) -> Ints:
        """Return the labels (n,) of windows whose rows are labelled `labels` (n, steps)."""
        if self.task == "unlabelled" or not len(labels):
            return np.full(len(labels), UNLABELLED, dtype=np.int16)
        match self.rule:
            case "any":
                label = labels.max(axis=1)
            case "last":
                label = labels[:, -1]
            case "share":
                label = (labels == 1).mean(axis=1) >= (self.share or 0.0)
            case "majority":
                counts = np.stack([(labels == at).sum(axis=1) for at in range(len(self.classes))])
                label = counts.argmax(axis=0)
        unlabelled = (labels == UNLABELLED).any(axis=1)
        return np.where(unlabelled, UNLABELLED, label).astype(np.int16)


@dataclass(frozen=True)
class Block:
    """Some rows of an episode, and the windows that these rows complete.

    `fresh` (rows, channels) are the new rows; `windows` (n, channels, steps) is a view; `starts`
    (n,) are the windows' first rows, counted from the episode's first; `labels` (n,).
    """

    entry: EpisodeEntry
    fresh: Floats
    windows: Floats
    starts: Ints
    labels: Ints


def cut_windows(
    stream: Iterable[Rows], window: int, stride: int, labelling: Labelling
) -> Iterator[Block]:
    """Yield a block for each piece of `stream`; windows start at multiples of `stride`."""
    entry: EpisodeEntry | None = None
    kept: list[tuple[Floats, Ints]] = []  # rows of the episode that a later window still needs
    row = next_start = 0  # of the episode: its first row in `values`, and of the next window
    for rows in stream:
        if rows.entry != entry:
            entry, kept, row, next_start = rows.entry, [], 0, 0
        kept.append((rows.values, rows.labels))
        values, labels = (np.concatenate(pieces) for pieces in zip(*kept))
        # A stride above the window's length may put the next window beyond these rows.
        first = min(next_start - row, len(values))
        count = max(0, (len(values) - first - window) // stride + 1)
        taken = slice(first, first + stride * count, stride)
        yield Block(
            rows.entry,
            rows.values,
            _views(values, window)[taken],
            row + first + stride * np.arange(count),
            labelling.of_windows(_views(labels, window)[taken]),
        )
        next_start += stride * count
        keep = min(next_start - row, len(values))
        kept = [(values[keep:].copy(), labels[keep:].copy())]
        row += keep


def _views(values: AnyArray, window: int) -> AnyArray:
    """Return every window of `values` along its first axis, which becomes the last."""
    if len(values) < window:
        return np.empty((0, *values.shape[1:], window), dtype=values.dtype)
    return sliding_window_view(values, window, axis=0)
