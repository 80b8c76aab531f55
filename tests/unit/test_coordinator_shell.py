"""What a command's answer rests on: the commit of what it did, and nothing else."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.events import Connected, Incoming, Outgoing
from broker.protocol.signing import OperatorKey, signed_by
from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topics
from broker.system.files import RealDisk
from coordinator.core.effects import ManifestRead
from coordinator.core.state import CoreSettings
from coordinator.jobs.plan_entries import Plan
from coordinator.ledger.ledger import Ledger
from coordinator.service.performer import Surroundings
from coordinator.service.shell import Shell
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store
from tests.harness.coordinator import OPERATOR, spec

KEY = OperatorKey("k" * 64)
TOPICS = Topics()
TOPIC = TOPICS.operator_request(OPERATOR)


class Coordinator:
    """A shell on a real ledger; its clock is ours."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "l.db"
        self.said: list[m.OperatorResponse] = []
        self.mono_s = 0.0
        self.told: list[Any] = []  # by other threads, for the next turn
        self.reads: list[Callable[[], None]] = []  # what the thread that reads the plan has to do
        ids = itertools.count()
        around = Surroundings(
            topics=TOPICS, disk=RealDisk(), rng=random.Random(1),
            new_id=lambda: f"id{next(ids)}", publish=self._publish, put=self.told.append,
            background=lambda _: None, writing=lambda _: None, read_plan=lambda _: Plan((spec(),)),
            reading=self.reads.append,
        )  # fmt: skip
        self.shell = Shell(
            CoreSettings("c", "b", manifest="plan.toml", operator_key=KEY), around,
            Ledger(self.file), Store(folder), JobLogs(folder / "logs", 9999), self.now,
        )  # fmt: skip
        self.turn(ManifestRead(Plan((spec(),))), Connected("s"))

    @property
    def now(self) -> Now:
        return Now(self.mono_s, 1.8e9 + self.mono_s)

    def turn(self, *events: Any) -> None:
        """One turn."""
        self.shell.turn(events, self.now)

    def asks(self, ask: Any) -> m.OperatorResponse | None:
        """An operator asks with a signature; the answer, if there is one."""
        self.said.clear()
        signed = signed_by(KEY, TOPIC, ask, self.now.wall_s)
        self.turn(Incoming(TOPIC, m.encode(signed)))
        return self.said[0] if self.said else None

    def _publish(self, *messages: Outgoing) -> bool:
        for message in messages:
            if TOPICS.parse(message.topic).kind is Kind.OPERATOR_RESPONSE:
                self.said.append(m.decode(m.OPERATOR_RESPONSE, message.payload))
        return True


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """One that does not wait for whoever else uses its ledger."""
    monkeypatch.setattr("coordinator.ledger.database._WAIT_S", 0.0)
    made = Coordinator(tmp_path)
    yield made
    made.shell.close()


def test_a_command_that_the_disk_refused_is_not_answered_as_done(coordinator: Coordinator) -> None:
    """O2: it is carried out when it is repeated and the disk takes it, and once."""
    cancel = m.AskCancel(id="c", job="job")
    other = sqlite3.connect(coordinator.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert coordinator.asks(cancel) is None
    coordinator.mono_s += 60
    coordinator.turn()
    other.execute("ROLLBACK")
    other.close()
    first = coordinator.asks(cancel)
    assert first
    assert first.data == {
        "job_id": spec().job_id, "name": "job", "state": "cancelled", "others": []
    }  # fmt: skip
    assert coordinator.asks(cancel) == first
    page = coordinator.asks(m.AskEvents(id="e"))
    assert page
    told = [(row["who"], row["event"]) for row in page.data["events"]]  # type: ignore[index, call-overload, union-attr]
    assert told.count(("operator:op", "cancelled")) == 1


def test_while_a_manifest_is_read_the_others_are_answered(coordinator: Coordinator) -> None:
    """A large one takes a second; who asked for that hears when it is done, once."""
    reload = m.AskReload(id="r")
    assert coordinator.asks(reload) is None
    assert coordinator.asks(m.AskStatus(id="s"))
    assert coordinator.asks(reload) is None
    assert not coordinator.told, "no turn has read it"
    coordinator.said.clear()
    while coordinator.reads:
        coordinator.reads.pop(0)()
    coordinator.turn(*coordinator.told)
    assert {one.id for one in coordinator.said} == {"r"}
    data: Any = coordinator.said[0].data
    assert data["changes"]["unchanged"] == 1


def test_the_story_is_asked_for_over_the_wire(coordinator: Coordinator) -> None:
    """By name of the job; a job that there is not is told."""
    coordinator.asks(m.AskCancel(id="c", job="job"))
    coordinator.asks(m.AskCancel(id="d", job="job"))
    coordinator.asks(m.AskDrain(id="e", host="nobody"))
    page: Any = coordinator.asks(m.AskEvents(id="1", job="jo", who="operator"))
    told = [(row["event"], row["outcome"], row["why"]) for row in page.data["events"]]
    assert told == [
        ("cancelled", "done", ""), ("cancel", "refused", "job job is cancelled already")
    ]  # fmt: skip
    assert page.data["more"] is False
    missing = coordinator.asks(m.AskEvents(id="2", job="nothing"))
    assert missing
    assert missing.code == "not_found"
    later: Any = coordinator.asks(m.AskEvents(id="3", since=coordinator.now.wall_s + 1))
    assert later.data["events"] == []
