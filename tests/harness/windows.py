"""Indexes of windows, for splits of them."""

from __future__ import annotations

import numpy as np

from agent.trainer.data.dataset import WindowIndex


def some_hosts(count: int, rows: int = 300) -> list[tuple[str, int]]:
    """Return an episode for each of so many hosts."""
    return [(f"h{number:02}", rows) for number in range(count)]


def an_index(
    episodes: list[tuple[str, int]], length: int = 10, stride: int = 5, unlabelled: int = 0
) -> WindowIndex:
    """Return windows over episodes (host, rows), a row a minute; every third is positive."""
    names = tuple(sorted({host for host, _ in episodes}))
    columns: list[tuple[int, int, int, int]] = []
    offset = 0
    for number, (host, rows) in enumerate(episodes):
        columns += [
            (names.index(host), number, offset + start, start)
            for start in range(0, rows - length + 1, stride)
        ]
        offset += rows
    host, episode, offsets, start = np.array(columns).T
    label = (np.arange(len(columns)) % 3 == 0).astype(np.int64)
    label[episode < unlabelled] = -1
    labels = tuple(str(number) for number in range(len(episodes)))
    return WindowIndex(names, labels, host, episode, offsets, start, label, length, stride, 60.0)
