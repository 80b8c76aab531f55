"""What the page of a host tells of the manifest."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from coordinator.jobs.plan_entries import HostPolicy, policy_to_dict
from coordinator.web.pages import host_page


def test_a_description_is_something_that_the_manifest_says() -> None:
    """Though it allows and forbids nothing."""
    policy = policy_to_dict(HostPolicy("alpha", description="first"))
    assert (host_page.described(policy), host_page.allowed(policy)) == ("first", {})
    assert host_page.unsaid(policy) == "The manifest says nothing of it but what it is."


def test_a_host_that_the_manifest_does_not_name_is_told_as_such() -> None:
    """So is one of which the coordinator has not told yet."""
    for policy in (policy_to_dict(HostPolicy("alpha")), None):
        assert (host_page.described(policy), host_page.allowed(policy)) == ("", {})
        assert host_page.unsaid(policy) == "The manifest says nothing of it."


def test_what_a_host_may_do_is_told_by_name() -> None:
    """What is not limited is left out."""
    policy = policy_to_dict(HostPolicy("alpha", deny_jobs=("gru-*", "gbt"), slots=2))
    assert host_page.allowed(policy) == {"deny jobs": "gru-*, gbt", "slots": "2"}
