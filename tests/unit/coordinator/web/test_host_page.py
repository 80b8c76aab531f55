"""What the page of a host tells of the manifest, and how long it snoozes a host."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from coordinator.jobs.plan_entries import HostPolicy, policy_to_dict
from coordinator.web.pages.host_page import allowed, described, snooze_s, unsaid


@pytest.mark.parametrize(
    ("policy", "description", "said"),
    [
        (HostPolicy("alpha", description="first"), "first", {}),
        (HostPolicy("alpha"), "", {}),
        (None, "", {}),
        (
            HostPolicy("alpha", deny_jobs=("gru-*", "gbt"), slots=2), "",
            {"deny jobs": "gru-*, gbt", "slots": "2"},
        ),
    ],
)  # fmt: skip
def test_a_host_has_what_the_manifest_says_of_it(
    policy: HostPolicy | None, description: str, said: dict[str, str]
) -> None:
    """What is not limited is left out; a description is something that it says, too."""
    told = policy and policy_to_dict(policy)
    assert (described(told), allowed(told)) == (description, said)
    assert ("but what it is" in unsaid(told)) is bool(description)


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
