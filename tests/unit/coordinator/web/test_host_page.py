"""What the page of a host tells of the manifest."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from broker.protocol.messages import ProgramsAllowed
from coordinator.jobs.plan_entries import HostPolicy, policy_to_dict
from coordinator.web.pages.host_page import allowed, lets_in


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        (None, "none"),
        (ProgramsAllowed(signed_by=("alice", "bob"), pinned=("ab" * 32,)),
         "signed by alice, bob; 1 pinned; in bwrap"),
        (ProgramsAllowed(unsigned=True, sandbox="none"), "unsigned; without a sandbox"),
    ],
)  # fmt: skip
def test_a_host_says_which_programs_its_owner_lets_in(
    programs: ProgramsAllowed | None, said: str
) -> None:
    assert lets_in(programs) == said


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
