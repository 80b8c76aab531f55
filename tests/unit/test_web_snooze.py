"""How long a host is snoozed by what a browser answers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from coordinator.web.pages.host_page import snooze_s


@pytest.mark.parametrize(
    ("answers", "expected_s"),
    [
        ({"for": "10800", "tomorrow_s": 50_000}, 10_800.0),
        ({"for": "tomorrow", "tomorrow_s": 50_000}, 50_000.0),
        ({"for": "tomorrow", "tomorrow_s": -5}, 3_600.0),
        ({"for": "tomorrow", "tomorrow_s": 1e9}, 3_600.0),
        ({"for": "tomorrow", "tomorrow_s": float("nan")}, 3_600.0),
        ({"for": "tomorrow"}, 3_600.0),
        ({"for": "99999999"}, 3_600.0),
        ({"for": ["10800"]}, 3_600.0),
        ({}, 3_600.0),
    ],
)
def test_a_browser_chooses_among_what_it_is_offered(
    answers: dict[str, Any], expected_s: float
) -> None:
    """Anything else is an hour, whatever it says."""
    assert snooze_s(answers) == expected_s
