"""Figures as text."""

from __future__ import annotations

import pytest

from broker.figures import counted, rounded


@pytest.mark.words
def test_one_thing_is_not_several() -> None:
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


@pytest.mark.words
def test_a_large_figure_takes_no_more_room_than_a_small_one() -> None:
    values = (0.9447, -12.5, 1234.5678, -123456.7, 12_345_678.9, 1e300, 5, -20_000, 1.0, 10**300)
    assert [rounded(value) for value in values] == [
        "0.945", "-12.500", "1234.57", "-123457", "1.23e+07", "1e+300", "5", "-20000",
        "1.000", "1e+300",
    ]  # fmt: skip
