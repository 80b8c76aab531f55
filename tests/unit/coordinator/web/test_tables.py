"""The tables of the web page fit the widths at which their columns appear."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordinator.ui.fleet_columns import DATASETS, HOSTS, JOBS, PROGRAMS, FleetColumn, shown

grids = pytest.importorskip("coordinator.web.tables", reason="the web page is not installed")
PHONE_PX = 338  # a card's inside in a window of 360 pixels


@pytest.mark.parametrize(
    "columns",
    [shown(JOBS, "page"), shown(HOSTS, "page"), PROGRAMS, DATASETS, grids.ATTEMPTS],
)
def test_columns_fit_wherever_one_more_of_them_appears(columns: Sequence[FleetColumn]) -> None:
    """No table is wider than its place, which would hide the last columns."""
    made = grids.definitions(columns, "state")
    for width in sorted({max(PHONE_PX, one["context"]["from"]) for one in made}):
        seen = [one for one in made if one["context"]["from"] <= width]
        assert sum(one["minWidth"] for one in seen) <= width, [one["headerName"] for one in seen]
    phone = {one["colId"] for one in made if one["context"]["from"] <= PHONE_PX}
    assert phone >= {one.key for one in columns if not one.rank}
