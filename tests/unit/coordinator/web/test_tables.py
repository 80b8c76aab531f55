"""The tables of the web page fit the widths at which their columns appear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

grids = pytest.importorskip("coordinator.web.tables", reason="the web page is not installed")
PHONE_PX = 338  # a card's inside in a window of 360 pixels
TABLES = [grids.job_columns, grids.running_columns, grids.host_columns, grids.attempt_columns]


@pytest.mark.parametrize("make", TABLES)
def test_columns_fit_wherever_one_more_of_them_appears(
    make: Callable[[], list[dict[str, Any]]],
) -> None:
    """No table is wider than its place, which would hide the last columns."""
    columns = make()
    for width in sorted({one["context"]["from"] or PHONE_PX for one in columns}):
        shown = [one for one in columns if one["context"]["from"] <= width]
        assert sum(one["minWidth"] for one in shown) <= width, [one["headerName"] for one in shown]
