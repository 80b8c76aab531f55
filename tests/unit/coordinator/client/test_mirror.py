"""What a client's copy of the fleet makes of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol.messages import Heartbeat, Progress, Status, encode
from broker.protocol.topics import Topics
from coordinator.client.mirror import Mirror

JOB, OTHER = "a" * 64, "b" * 64
TOPICS = Topics()


def _row(job_id: str = JOB, state: str = "running", attempt: int = 1) -> dict[str, Any]:
    return {
        "v": 1, "job_id": job_id, "name": job_id[:4], "model": "gbt", "mode": "oracle",
        "state": state, "priority": 0, "attempt": attempt, "host": "pi", "error": None,
        "artifact_id": None, "metrics": None, "created_at": "", "started_at": None,
        "finished_at": None,
    }  # fmt: skip


class _Heard:
    """A mirror that hears messages a second apart."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self._at_s = 0.0

    def says(self, topic: str, payload: bytes) -> bool:
        self._at_s += 1.0
        return self.mirror.apply(TOPICS.parse(topic), payload, Now(self._at_s, self._at_s))

    def job(self, **row: Any) -> bool:
        made = _row(**row)
        return self.says(TOPICS.job(made["job_id"]), json.dumps(made).encode())

    def epoch(self, epoch: int, attempt: int = 1) -> bool:
        progress = Progress(attempt=attempt, epoch=epoch, epochs=9, train_loss=1 / epoch)
        return self.says(TOPICS.progress("pi", JOB), encode(progress))


def _status(state: Any, session: str) -> bytes:
    return encode(Status(state=state, session=session, instance="i", boot_id="b"))


def test_what_is_heard_while_a_list_comes_is_newer_than_the_list() -> None:
    """Pages of a list take time; a job that moved meanwhile does not jump back."""
    heard = _Heard()
    heard.mirror.expect_jobs()
    heard.job(state="completed")
    heard.mirror.load_jobs([_row(state="running"), _row(OTHER)])
    assert list(heard.mirror.jobs) == [JOB, OTHER]  # as they will be claimed
    assert heard.mirror.jobs[JOB].state == "completed"
    assert heard.mirror.jobs[OTHER].state == "running"
    heard.mirror.expect_jobs()
    heard.mirror.load_jobs([_row(OTHER)])
    assert list(heard.mirror.jobs) == [OTHER]


def test_an_overtaken_row_changes_nothing() -> None:
    """A row of an earlier attempt that comes late is not believed."""
    heard = _Heard()
    heard.job(attempt=2)
    assert not heard.job(attempt=1, state="pending")
    assert heard.mirror.jobs[JOB].attempt == 2


def test_a_late_will_of_an_old_session_leaves_the_host_online() -> None:
    """As the coordinator has it, too."""
    heard = _Heard()
    heard.says(TOPICS.status("pi"), _status("online", "new"))
    heard.says(TOPICS.status("pi"), _status("offline", "old"))
    assert heard.mirror.hosts["pi"].online
    heard.says(TOPICS.status("pi"), _status("offline", "new"))
    assert not heard.mirror.hosts["pi"].online


def test_the_curve_of_a_resumed_attempt_goes_on() -> None:
    """What was trained again is shown once, as it went the last time."""
    heard = _Heard()
    heard.job()
    for epoch in (1, 2, 3):
        heard.epoch(epoch)
    heard.job(attempt=2)
    for epoch in (3, 4):
        heard.epoch(epoch, attempt=2)
    curve = heard.mirror.curves[JOB]
    assert [point.epoch for point in curve.points] == [1, 2, 3, 4]
    assert curve.attempt == 2


def test_progress_of_an_attempt_that_is_over_changes_nothing() -> None:
    """Its host has yet to be told to stop; a new attempt is not shown with its figures."""
    heard = _Heard()
    heard.job(attempt=2)
    heard.epoch(1, attempt=2)
    assert not heard.epoch(7, attempt=1)
    assert heard.mirror.progress[JOB].epoch == 1


def test_progress_by_a_host_that_has_not_got_the_job_changes_nothing() -> None:
    """Whatever attempt it says that is of: what the job's own host says goes on being heard."""
    heard = _Heard()
    heard.job()
    heard.epoch(1)
    forged = Progress(attempt=1 << 31, epoch=9, epochs=9, train_loss=0.0)
    assert not heard.says(TOPICS.progress("lab", JOB), encode(forged))
    assert heard.epoch(2)
    assert heard.mirror.progress[JOB].epoch == 2
    assert [point.epoch for point in heard.mirror.curves[JOB].points] == [1, 2]


def test_progress_of_an_attempt_that_there_was_not_silences_nobody() -> None:
    """Of a job that is not known yet any host may tell: whoever has it is heard all the same."""
    heard = _Heard()
    forged = Progress(attempt=1 << 31, epoch=9, epochs=9, train_loss=0.0)
    heard.says(TOPICS.progress("lab", JOB), encode(forged))
    heard.mirror.load_jobs([_row()])
    assert heard.epoch(2)
    assert heard.mirror.progress[JOB].epoch == 2
    assert [point.epoch for point in heard.mirror.curves[JOB].points] == [2]


def test_made_up_jobs_are_not_taken() -> None:
    """Any host may tell of progress with ids that it thinks of; once the list is there, in vain."""
    heard = _Heard()
    told = encode(Progress(attempt=1, epoch=1, epochs=9, train_loss=1.0))
    heard.says(TOPICS.progress("lab", OTHER), told)
    heard.mirror.load_jobs([_row()])
    assert not heard.says(TOPICS.progress("lab", OTHER), told)
    assert (heard.mirror.progress, heard.mirror.curves) == ({}, {})


def test_a_host_that_only_spoke_itself_is_as_it_says() -> None:
    """Until the coordinator's list comes."""
    heard = _Heard()
    heard.says(TOPICS.status("pi"), _status("online", "s"))
    assert heard.mirror.hosts["pi"].condition == "online"
    heard.says(TOPICS.status("pi"), _status("offline", "s"))
    assert heard.mirror.hosts["pi"].condition == "offline"


def test_hosts_that_go_with_the_broker_are_as_they_were() -> None:
    """Its last words are the wills of all of them; one that went before is gone."""
    heard = _Heard()
    for name in ("early", "pi"):
        heard.says(TOPICS.status(name), _status("online", "s"))
    there = [{"host": name, "status": "online", "condition": "online"} for name in ("early", "pi")]
    heard.mirror.load_hosts(there)
    gone = Status(state="offline", reason="lost", session="s", instance="i", boot_id="b")
    for name in ("early", "early", "pi"):
        heard.says(TOPICS.status(name), encode(gone))
    heard.mirror.doubt(Now(5.1, 5.1))
    again = TOPICS.parse(TOPICS.status("pi"))
    assert not heard.mirror.apply(again, encode(gone), Now(6.0, 6.0), retained=True)
    assert [host.online for host in heard.mirror.hosts.values()] == [False, True]


def test_garbage_changes_nothing() -> None:
    """Whoever may publish something cannot break the view."""
    heard = _Heard()
    heard.job()
    before = heard.mirror.snapshot()
    assert not heard.says(TOPICS.job(JOB), b"{")
    assert not heard.says(TOPICS.status("pi"), b"\xff")
    assert heard.mirror.snapshot() == before


@pytest.mark.parametrize(
    ("said", "refuses", "word"),
    [
        ("drained", "", "drained"), ("drained", "its disk is full", "drained"),
        ("online", "its disk is full", "refusing"), ("refusing", "", "online"),
        ("cut-off", "", "online"), ("silent", "its disk is full", "refusing"),
    ],
)  # fmt: skip
def test_how_a_host_is_follows_what_is_newer(said: str, refuses: str, word: str) -> None:
    """The coordinator's word, but for what the host itself has said since."""
    heard = _Heard()
    heard.says(TOPICS.status("pi"), _status("online", "s"))
    beat = Heartbeat(session="s", instance="i", seq=1, ram_available_bytes=1, refuses=refuses)
    heard.says(TOPICS.heartbeat("pi"), encode(beat))
    there = "offline" if said in {"cut-off", "silent"} else "online"
    heard.mirror.load_hosts([{"host": "pi", "status": there, "condition": said}])
    assert heard.mirror.hosts["pi"].condition == word
