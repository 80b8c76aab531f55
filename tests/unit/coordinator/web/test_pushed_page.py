"""What the page of a program tells of hosts and of parameters."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from broker.protocol.messages import Capability, ProgramsAllowed
from coordinator.client.mirror import HostSeen
from coordinator.ui.facts import Link
from coordinator.web.pages.pushed_page import lets_in, parameters_of
from tests.harness import programs


def host(name: str, allowed: ProgramsAllowed | None, *holdings: str) -> HostSeen:
    """A host that has said which programs it lets in, and what it has."""
    return HostSeen(name, capability=Capability(
        session="s", instance="i", os="o", arch="a", python="3", physical_cores=4,
        ram_total_bytes=1, ram_available_bytes=1, programs=allowed,
        holdings=holdings,
    ))  # fmt: skip


def test_hosts_that_let_a_program_in_come_first_and_the_others_say_why_not() -> None:
    known = [
        host("a-closed", None), host("b-other", ProgramsAllowed(signed_by=("bob",))),
        host("c-open", ProgramsAllowed(signed_by=("alice",)), programs.DIGEST), HostSeen("d-new"),
    ]  # fmt: skip
    rows = lets_in(programs.program(signer="alice"), {one.name: one for one in known})
    names = [one[0].text for one in rows if isinstance(one[0], Link)]
    assert names == ["c-open", "a-closed", "b-other", "d-new"]
    assert [one[1] for one in rows] == ["yes", "no", "no", ""]
    assert [one[2] for one in rows] == ["yes", "", "", ""]
    assert [bool(one[3]) for one in rows] == [False, True, True, True]


@pytest.mark.words
def test_each_parameter_has_its_default_or_has_to_be_set() -> None:
    rows = parameters_of(programs.SCHEMA)
    assert rows == [
        ["lr", "required", "a number, at most 1"], ["epochs", "20", "a whole number"],
    ]  # fmt: skip
    assert parameters_of({}) == []
