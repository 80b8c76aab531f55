"""What operators ask that is in the ledger, the store or a log; a ledger that cannot be read."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.core.filing import RETRY_S
from coordinator.jobs.result_words import command, kept_words
from coordinator.ledger.ledger import FILE_NAME
from tests.harness.coordinator import OPERATOR
from tests.harness.shell import ID, Coordinator, finished, ledgers_closed, reports
from tests.harness.stored import path_in

__all__ = ["ledgers_closed"]
DAY_S = 86_400.0
FIRST, SECOND = b"first weights" * 20, b"second weights" * 20


def hex_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Scene:
    """A coordinator on a real ledger and store, a job that a host trains, and an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.coordinator = Coordinator(folder)

    def brings(self, data: bytes, auroc: float = 0.9) -> None:
        """A host takes the job, and brings this; it becomes a file, written long ago."""
        host = self.coordinator.host().joins()
        reports(host, host.runs(), data, metrics={"auroc": auroc})
        self.coordinator.files()
        self.coordinator.passes(1.5)
        os.utime(path_in(self.coordinator.store, hex_of(data)), (0, 0))

    def asks(self, ask: Any) -> Any:
        """An operator asks; the answer."""
        self.coordinator.answers()
        self.coordinator.tells(ask)
        self.coordinator.files()
        return self.coordinator.answers()[0]

    def requeues(self) -> Any:
        """An operator has it trained again; what that is answered."""
        answer = self.asks(m.AskRequeue(id=self.coordinator.new_id(), job="job"))
        assert answer.ok, answer.why
        return answer.data

    def fetches(self, attempt: int | None) -> Any:
        """What an operator gets of an attempt, or why there is nothing."""
        answer = self.asks(m.AskFetch(id=self.coordinator.new_id(), job="job", attempt=attempt))
        if not answer.ok:
            return answer.why
        data = self.coordinator.fetched()
        stored = m.encode(m.Stored())
        self.coordinator.handle(Incoming(self.coordinator.topics.download_grant(OPERATOR), stored))
        return data

    def results(self) -> list[dict[str, Any]]:
        """What `show` tells of them."""
        answer = self.asks(m.AskShow(id=self.coordinator.new_id(), job="job"))
        found: list[dict[str, Any]] = answer.data["results"]
        return found

    def passes(self, days: float) -> None:
        """Time passes, and what is too old is deleted."""
        self.coordinator.passes(days * DAY_S)
        self.coordinator.files()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A job that nobody has trained yet."""
    return Scene(tmp_path)


def test_what_a_requeue_sets_aside_is_told_and_fetched(scene: Scene) -> None:
    """Beside the result that the job has since, and before it has one.

    Who knows of no attempt is told of the newest that has brought one.
    """
    why = scene.fetches(None)
    assert (why["lacks"], why["state"], why["there"]) == ("artifact", "pending", [])
    scene.brings(FIRST, 0.945)
    told = scene.requeues()
    assert (told["attempt"], told["keep_results_s"]) == (1, 30 * DAY_S)
    assert scene.fetches(1) == FIRST
    why = scene.fetches(None)
    assert (why["lacks"], why["state"], why["there"]) == ("artifact", "claimed", [1])
    scene.brings(SECOND, 0.8)
    assert (scene.fetches(1), scene.fetches(2), scene.fetches(None)) == (FIRST, SECOND, SECOND)
    first, second = scene.results()
    assert {name: first[name] for name in ("attempt", "artifact_id", "size_bytes", "metrics")} == {
        "attempt": 1, "artifact_id": hex_of(FIRST), "size_bytes": len(FIRST),
        "metrics": {"auroc": 0.945},
    }  # fmt: skip
    assert (first["is_there"], second["is_there"]) == (True, True)
    assert (first["set_aside_at"][:10], first["kept_until"][:10]) == ("2027-01-15", "2027-02-14")
    assert (second["attempt"], second["set_aside_at"], second["kept_until"]) == (2, None, None)


def test_a_result_is_kept_from_the_requeue_on_and_not_longer(scene: Scene) -> None:
    """However old it was by then. Who asks later is told when it was deleted, and what is there."""
    scene.brings(FIRST)
    scene.coordinator.host().joins().status("offline", "goodbye")
    scene.passes(40)
    scene.requeues()
    scene.passes(29)
    assert scene.fetches(1) == FIRST
    scene.passes(2)
    gone = scene.fetches(1)
    assert (gone["lacks"], gone["attempt"], gone["there"]) == ("gone", 1, [])
    assert gone["set_aside_at"].startswith("2027-02-24")
    assert gone["kept_until"].startswith("2027-03-26")
    scene.brings(SECOND)
    assert scene.fetches(1)["there"] == [2]
    told = [(one["is_there"], one["size_bytes"]) for one in scene.results()]
    assert told == [(False, len(FIRST)), (True, len(SECOND))]


def test_a_result_that_is_gone_already_is_not_promised(scene: Scene) -> None:
    """As after a damaged disk, or a repair by `fleet fsck`: no time was over."""
    scene.brings(FIRST)
    path_in(scene.coordinator.store, hex_of(FIRST)).unlink()
    scene.coordinator.ledger.close()
    scene.coordinator = Coordinator(scene.folder)
    assert "keep_results_s" not in scene.requeues()
    gone = scene.fetches(1)
    assert (gone["lacks"], gone["kept_until"]) == ("gone", None)


def test_what_the_job_has_again_is_kept_with_it(scene: Scene) -> None:
    """The same bytes came a second time: they are no longer set aside, whoever brought them."""
    scene.brings(FIRST)
    scene.requeues()
    scene.brings(FIRST)
    assert [one["kept_until"] for one in scene.results()] == [None, None]
    scene.passes(100)
    assert scene.fetches(1) == scene.fetches(None) == FIRST


@pytest.mark.parametrize(("attempt", "lacks"), [(7, "attempt"), (2, "result")])
def test_who_asks_for_an_attempt_without_a_result_is_told_which_have_one(
    scene: Scene, attempt: int, lacks: str
) -> None:
    scene.brings(FIRST)
    scene.requeues()
    host = scene.coordinator.host().joins()
    host.reports(m.Released, host.runs(), why=m.Why(code="leaving"))
    scene.brings(SECOND)
    why = scene.fetches(attempt)
    assert (why["lacks"], why["there"], why["attempts"]) == (lacks, [1, 3], 3)


def test_a_result_that_came_too_late_is_one_of_its_attempt(scene: Scene) -> None:
    """A requeue takes it instead of training again: it is the job's then."""
    scene.coordinator.ledger.close()
    with closing(sqlite3.connect(scene.folder / FILE_NAME)) as file:
        file.execute("UPDATE jobs SET losses = 2")
        file.commit()
    scene.coordinator = Coordinator(scene.folder)
    host = scene.coordinator.host().joins()
    job = host.runs()
    scene.coordinator.waits(7200)
    assert scene.coordinator.job().state == "failed"
    reports(host, job, FIRST, metrics={"auroc": 0.7})
    scene.coordinator.files()
    assert [(one["attempt"], one["set_aside_at"]) for one in scene.results()] == [(1, None)]
    assert scene.fetches(1) == FIRST
    scene.requeues()
    assert scene.coordinator.job().state == "completed"
    assert [(one["attempt"], one["set_aside_at"]) for one in scene.results()] == [(1, None)]
    assert scene.fetches(1) == scene.fetches(None) == FIRST


@pytest.mark.words
def test_how_long_and_how_is_said_in_words() -> None:
    """As a person would; a fraction of a day in hours."""
    assert [kept_words(days * DAY_S) for days in (30.0, 7.5, 0.25)] == [
        "for 30 days", "for 7.5 days", "for 6 hours",
    ]  # fmt: skip
    assert command("gbt-oracle", 2) == "`fleet get gbt-oracle --attempt 2`"


def test_a_result_whose_file_was_emptied_is_said_to_be_gone(scene: Scene) -> None:
    """As a disk may leave it that lost its power; nothing is sent, and nothing ends."""
    scene.brings(FIRST)
    path = path_in(scene.coordinator.store, hex_of(FIRST))
    path.write_bytes(b"")
    scene.coordinator = scene.coordinator.crashes()
    assert scene.fetches(None)["lacks"] == "file"


@contextmanager
def unreadable(folder: Path, table: str) -> Iterator[None]:
    """A part of the ledger is not there, as where a disk has lost it."""
    other = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    other.execute(f"ALTER TABLE {table} RENAME TO hidden")
    try:
        yield
    finally:
        other.execute(f"ALTER TABLE hidden RENAME TO {table}")
        other.close()


@pytest.mark.parametrize(
    "ask",
    [
        m.AskShow(id="a", job="job"), m.AskEvents(id="a"), m.AskAttempts(id="a"),
        m.AskFetch(id="a", job="job", attempt=1),
    ],
)  # fmt: skip
def test_who_asks_is_told_what_is_wrong(tmp_path: Path, ask: Any) -> None:
    """And asks again, when it is mended."""
    scene = Scene(tmp_path)
    scene.brings(FIRST)
    scene.requeues()
    with unreadable(tmp_path, "events"):
        answer = scene.asks(ask)
        assert (answer.ok, answer.code) == (False, "refused")
        assert FILE_NAME in answer.why["text"]
        assert "no such table" in answer.why["text"]
    assert scene.asks(ask).ok


def test_a_small_result_that_cannot_be_read_becomes_a_file_later(tmp_path: Path) -> None:
    """It is in the ledger as long as that."""
    coordinator = finished(tmp_path)
    coordinator.slow.clear()
    with unreadable(tmp_path, "bundles"):
        again = coordinator
        again.core.world.unfiled[ID] = None
        again.core.world.timers.set(("unfiled",), again.mono_s)
        again.handle()
        again.files()
    assert not again.store.has(ID)
    again.passes(RETRY_S + 1)
    again.files()
    assert again.store.has(ID)


def test_what_is_fetched_while_it_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    """Nothing is sent in its place, and it does not count as lost."""
    coordinator: Coordinator = finished(tmp_path)
    coordinator.tells(m.AskFetch(id="f", job="job"))
    with unreadable(tmp_path, "bundles"):
        assert not coordinator.fetched()
    coordinator.passes(2)
    assert hex_of(coordinator.chunks[0]) == ID
