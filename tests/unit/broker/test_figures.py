"""Figures as text."""

from __future__ import annotations

import pytest

from broker.figures import counted


@pytest.mark.words
def test_one_thing_is_not_several() -> None:
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
