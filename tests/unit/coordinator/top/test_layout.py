"""Columns, bars and curves made of characters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.cells import cell_len

from coordinator.top import host_table, job_table, layout
from coordinator.top.layout import Column


@pytest.mark.parametrize("columns", [host_table.COLUMNS, job_table.COLUMNS], ids=["hosts", "jobs"])
@pytest.mark.parametrize("window", [37, 57, 77, 80, 100, 120, 157, 240])
def test_the_columns_fit_the_window(columns: Sequence[Column], window: int) -> None:
    """From a small terminal on; a wide one has more of them, and no room is left unused."""
    fitted = layout.fit(columns, window)
    total = sum(width for _, width in fitted) + layout.gap(window) * (len(fitted) - 1)
    assert total <= window
    assert total == window or all(width >= column.most for column, width in fitted)
    assert len(layout.fit(columns, 160)) > len(layout.fit(columns, 80))


def test_a_narrow_window_keeps_what_matters_most() -> None:
    """Whole columns, fewer of them."""
    titles = [column.title for column, _ in layout.fit(host_table.COLUMNS, 57)]
    assert titles == ["HOST", "STATUS", "CPU", "GPU", "JOB"]
    titles = [column.title for column, _ in layout.fit(job_table.COLUMNS, 57)]
    assert titles == ["JOB", "STATE", "HOST", "PROGRESS"]


def test_a_cell_has_its_width_in_any_script() -> None:
    """Wide characters count as two; what does not fit ends in an ellipsis."""
    assert layout.padded("機械学習", 6) == "機械 …"
    assert cell_len(layout.padded("機械学習", 6)) == 6
    assert layout.padded("abc", 5, right=True) == "  abc"
    assert layout.padded("abcdef", 4) == "abc…"


def test_a_curve_falls_from_its_highest_to_its_lowest() -> None:
    """However many epochs there are; a flat one is flat."""
    assert layout.spark([1.0, 0.5, 0.0], 8) == "█▅▁"
    assert layout.spark([0.3, 0.3], 8) == "▁▁"
    assert layout.spark([], 8) == ""
    assert layout.spark([-1.7e308, 0.0, 1.7e308], 8) == "▁▅█", "their distance is beyond a float"
    long = layout.spark([1 / (epoch + 1) for epoch in range(1000)], 12)
    assert (len(long), long[0], long[-1]) == (12, "█", "▁")
