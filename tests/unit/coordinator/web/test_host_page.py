"""What the page of a host tells of the manifest."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from coordinator.jobs.plan_entries import HostPolicy, policy_to_dict
from coordinator.web.pages.host_page import allowed


@pytest.mark.words
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"description": "first"}, {}),
        ({"deny_jobs": ("gru-*", "gbt"), "slots": 2, "cuda": False},
         {"deny jobs": "gru-*, gbt", "slots": "2", "cuda": "false"}),
    ],
)  # fmt: skip
def test_a_host_has_what_the_manifest_says_of_it(
    more: dict[str, Any], said: dict[str, str]
) -> None:
    told = allowed(policy_to_dict(HostPolicy("alpha", **more)))
    assert {name: words for name, words in told.items() if words} == said
    assert not any(allowed({}).values())
