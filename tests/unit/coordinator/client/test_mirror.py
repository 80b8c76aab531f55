"""What a client's copy of the fleet makes of messages."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.messages import Status, Why
from tests.harness.mirrored import Mirrored, job_id, told_row

QUIET = (Why(code="quiet"),)
NO_SUCH_ATTEMPT = 1 << 31


@pytest.fixture
def fleet() -> Mirrored:
    return Mirrored()


def _listed(*names: str) -> list[dict[str, Any]]:
    rows = [told_row(name, "running", host="pi") for name in names]
    return [row.model_dump(mode="json") for row in rows]


def _epochs(fleet: Mirrored) -> list[int]:
    return [point.epoch for point in fleet.mirror.curves[job_id("one")].points]


def test_what_is_heard_while_a_list_comes_is_newer_than_the_list(fleet: Mirrored) -> None:
    """Pages of a list take time; a job that moved meanwhile does not jump back."""
    fleet.mirror.expect_jobs()
    fleet.job("one", "completed", host="pi")
    fleet.mirror.load_jobs(_listed("one", "two"))
    found = [(row.name, row.state) for row in fleet.mirror.jobs.values()]
    assert found == [("one", "completed"), ("two", "running")]
    fleet.mirror.expect_jobs()
    fleet.mirror.load_jobs(_listed("two"))
    assert [row.name for row in fleet.mirror.jobs.values()] == ["two"]


def test_what_is_overtaken_or_garbage_changes_nothing(fleet: Mirrored) -> None:
    key = fleet.job("one", "running", attempt=2)
    fleet.status("pi")
    before = fleet.seen
    fleet.job("one", attempt=1)
    assert not fleet.hears(fleet.topics.job(key), b"{")
    assert not fleet.hears(fleet.topics.status("pi"), b"\xff")
    assert fleet.seen == before


def test_a_late_will_of_an_old_session_leaves_the_host_online(fleet: Mirrored) -> None:
    """Until the coordinator's list comes a host is as it says itself."""
    for session, state, word in (
        ("new", "online", "online"), ("old", "offline", "online"), ("new", "offline", "offline")
    ):  # fmt: skip
        fleet.status("pi", state, session=session)
        host = fleet.mirror.hosts["pi"]
        assert (host.online, host.condition) == (word == "online", word)


def test_the_curve_of_a_resumed_attempt_goes_on(fleet: Mirrored) -> None:
    """What was trained again is shown once, as it went the last time."""
    for attempt, epochs in ((1, (1, 2, 3)), (2, (3, 4))):
        fleet.job("one", "running", host="pi", attempt=attempt)
        for epoch in epochs:
            fleet.progress("one", "pi", epoch, 0.5, None, attempt)
    assert _epochs(fleet) == [1, 2, 3, 4]
    assert fleet.mirror.curves[job_id("one")].attempt == 2


def test_progress_is_that_of_the_attempt_and_the_host_that_the_job_has(fleet: Mirrored) -> None:
    """A host has yet to be told to stop, or makes it up: the job's own goes on being heard."""
    fleet.job("one", "running", host="pi", attempt=2)
    fleet.progress("one", "pi", 1, 0.5, attempt=2)
    for host, attempt in (("pi", 1), ("lab", 2), ("lab", NO_SUCH_ATTEMPT)):
        assert not fleet.progress("one", host, 7, 0.0, attempt=attempt), (host, attempt)
    assert fleet.progress("one", "pi", 2, 0.5, attempt=2)
    assert fleet.mirror.progress[job_id("one")].epoch == 2
    assert _epochs(fleet) == [1, 2]


def test_what_is_made_up_before_the_list_comes_silences_nobody(fleet: Mirrored) -> None:
    """Any host may tell of a job that is not known yet."""
    for name in ("one", "made-up"):
        fleet.progress(name, "lab", 9, 0.0, attempt=NO_SUCH_ATTEMPT)
    fleet.mirror.load_jobs(_listed("one"))
    assert (fleet.mirror.progress, fleet.mirror.curves) == ({}, {})
    assert not fleet.progress("made-up", "lab", 1, 0.5)
    assert fleet.progress("one", "pi", 2, 0.5)
    assert _epochs(fleet) == [2]


def test_hosts_that_go_with_the_broker_are_as_they_were(fleet: Mirrored) -> None:
    """Its last words are the wills of all of them; one that went before is gone."""
    for name in ("early", "pi"):
        fleet.status(name)
    there = [{"host": name, "status": "online", "condition": "online"} for name in ("early", "pi")]
    fleet.mirror.load_hosts(there)
    for name in ("early", "early", "pi"):
        fleet.status(name, "offline", "lost")
        fleet.passes(1.0)
    fleet.mirror.doubt(fleet.now)
    gone = Status(state="offline", reason="lost", session="s", instance="i", boot_id="b")
    assert not fleet.hears(fleet.topics.status("pi"), gone, retained=True)
    assert [host.online for host in fleet.mirror.hosts.values()] == [False, True]


@pytest.mark.parametrize(
    ("said", "refuses", "word"),
    [
        ("drained", (), "drained"), ("drained", QUIET, "drained"),
        ("online", QUIET, "refusing"), ("refusing", (), "online"),
        ("cut-off", (), "online"), ("silent", QUIET, "refusing"),
    ],
)  # fmt: skip
def test_how_a_host_is_follows_what_is_newer(
    fleet: Mirrored, said: str, refuses: tuple[Why, ...], word: str
) -> None:
    """The coordinator's word, but for what the host itself has said since."""
    fleet.status("pi")
    fleet.beats("pi", refuses=refuses)
    there = "offline" if said in {"cut-off", "silent"} else "online"
    fleet.mirror.load_hosts([{"host": "pi", "status": there, "condition": said}])
    assert fleet.mirror.hosts["pi"].condition == word
