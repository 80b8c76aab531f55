"""A ledger that cannot be read: whoever asks is told, and the coordinator goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.events import Incoming
from coordinator.core.filing import RETRY_S
from coordinator.ledger.ledger import FILE_NAME
from tests.harness.coordinator import OPERATOR
from tests.unit.test_filing import ID, Coordinator, finished, ledgers_closed
from tests.unit.test_results import FIRST, Scene, hex_of

__all__ = ["ledgers_closed"]


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
        assert FILE_NAME in answer.message
        assert "no such table" in answer.message
    assert scene.asks(ask).ok


def test_a_small_result_that_cannot_be_read_becomes_a_file_later(tmp_path: Path) -> None:
    """It is in the ledger as long as that."""
    coordinator = finished(tmp_path)
    coordinator.slow.clear()
    with unreadable(tmp_path, "bundles"):
        again = coordinator
        again.core.world.filing_s.clear()
        again.core.world.unfiled_left[ID] = None
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
    ask = m.encode(m.AskFetch(id="f", job="job"))
    coordinator.handle(Incoming(coordinator.topics.operator_request(OPERATOR), ask))
    topic = coordinator.topics.download_grant(OPERATOR)
    grant = Incoming(topic, m.encode(m.Grant(missing=((0, 1),), horizon=1, window_chunks=4)))
    with unreadable(tmp_path, "bundles"):
        coordinator.handle(grant)
    assert not coordinator.chunks
    coordinator.passes(2)
    assert hex_of(coordinator.chunks[0]) == ID
