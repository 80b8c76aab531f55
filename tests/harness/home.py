"""A coordinator with its Home Assistant face, and a broker that keeps what is retained."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Now
from broker.protocol import messages as m
from broker.protocol.events import Connected, Incoming, Outgoing
from broker.protocol.topic_table import Kind
from broker.protocol.topics import HOME_STATUS, Topics
from broker.system.files import RealDisk
from coordinator.core.core_settings import CoreSettings
from coordinator.core.effects import ManifestRead
from coordinator.core.reactor import Core
from coordinator.faces.homeassistant import HomeAssistant
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.ledger.ledger import Ledger
from coordinator.service.performer import Surroundings
from coordinator.service.shell import Shell
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store
from tests.harness.coordinator import ADAPTERS, Host

OPERATOR = "operator:op/cli"


class Home:
    """A shell on a real ledger with the face; its clock is ours, and hosts speak to it."""

    def __init__(self, folder: Path, *specs: JobSpec, root: str = "fleet", commands: bool = True,
                 **settings: Any) -> None:  # fmt: skip
        self.folder, self.topics, self.specs = folder, Topics(root), specs
        self.mono_s = 1000.0
        self._ids = itertools.count()
        self.retained: dict[str, bytes] = {}
        self.published: list[tuple[str, bytes]] = []  # for Home Assistant alone
        self.sent: list[tuple[Any, Any]] = []
        self.kept: bytes | None = None
        self.settings = CoreSettings(
            instance="c", boot_id="b", manifest="plan.toml", home_commands=commands, **settings
        )
        self._opened = contextlib.ExitStack()
        self.start()

    def start(self, kept: bytes | None = None) -> None:
        """Start (again), with what was kept."""
        self.close()
        around = Surroundings(
            topics=self.topics, disk=RealDisk(), rng=random.Random(1), new_id=self.new_id,
            publish=self._publish, put=self.handle, background=lambda _: None,
            writing=lambda _: None, read_plan=lambda _: Plan(self.specs),
        )  # fmt: skip
        self.face = HomeAssistant(
            self.topics,
            random.Random(2),
            "1.0",
            kept,
            self._keep,
            commands=self.settings.home_commands,
        )
        self.ledger = self._opened.enter_context(closing(Ledger(self.folder / "l.db")))
        self.shell = Shell(
            self.settings, around, self.ledger, Store(self.folder),
            JobLogs(self.folder / "logs", 9999), self.now, face=self.face,
        )  # fmt: skip
        self.handle(ManifestRead(Plan(self.specs)), Connected(self.new_id()))

    def close(self) -> None:
        """Let go of the ledger, without a word."""
        self._opened.close()

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    @property
    def core(self) -> Core:
        return self.shell.core

    @property
    def now(self) -> Now:
        return Now(self.mono_s, 1.8e9 + self.mono_s)

    def handle(self, *events: Any) -> None:
        """One turn."""
        self.shell.turn(events, self.now)

    def passes(self, seconds: float) -> None:
        """Time passes; every turn that is wanted is given at its time."""
        end_s = self.mono_s + seconds
        while (due_s := self.shell.next_deadline()) is not None and due_s <= end_s:
            self.mono_s = max(self.mono_s, due_s)
            self.handle()
        self.mono_s = end_s

    def host(self, name: str = "pi", **capability: Any) -> Host:
        """A host that has joined, and was looked at."""
        host = Host(self, name).joins(**capability)
        self.passes(2)
        return host

    def job(self, name: str = "job") -> Job:
        """A job, as the ledger has it."""
        return next(job for job in self.ledger.load().values() if job.spec.name == name)

    def born(self) -> None:
        """Home Assistant says that it has come."""
        self.handle(Incoming(HOME_STATUS, b"online"))

    def told(self, node: str, command: str, *, retained: bool = False) -> None:
        """Home Assistant publishes a command."""
        payload = m.encode(m.HomeCommand.model_validate({"type": command}))
        self.handle(Incoming(self.topics.home_command(node), payload, retained))

    def asks(self, ask: Any) -> Any:
        """An operator asks; the answer."""
        self.sent.clear()
        self.handle(Incoming(self.topics.operator_request(OPERATOR), m.encode(ask)))
        return next(said for topic, said in self.sent if topic.kind is Kind.OPERATOR_RESPONSE)

    def state(self, node: str = "pi") -> dict[str, Any]:
        """What is retained of a node's state."""
        found: dict[str, Any] = json.loads(self.retained[self.topics.home_state(node)])
        return found

    def configs(self, node: str = "") -> dict[str, dict[str, Any]]:
        """The messages of discovery that are retained, by `COMPONENT/KEY`; of one device."""
        found = {}
        for topic, payload in self.retained.items():
            if topic.startswith("homeassistant/"):
                _, component, of, key, _ = topic.split("/")
                if of == f"{self.topics.root}__{node}" or not node:
                    found[f"{component}/{key}"] = json.loads(payload)
        return found

    def events(self) -> list[m.HomeEvent]:
        """Take the events that were told."""
        topic = self.topics.home_event("coordinator")
        found = [m.decode(m.HOME_EVENT, payload) for at, payload in self.published if at == topic]
        self.published = [one for one in self.published if one[0] != topic]
        return found

    def story(self) -> list[tuple[str, str, str, str]]:
        """Who did what, and what came of it: what Home Assistant asked for."""
        rows = self.ledger._db.execute(
            "SELECT who, action, outcome, coalesce(host, '') FROM actions ORDER BY seq"
        ).fetchall()
        return [row for row in rows if row[0] == "homeassistant"]

    def _publish(self, *messages: Outgoing) -> bool:
        for message in messages:
            self._take(message)
        return True

    def _take(self, message: Outgoing) -> None:
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message.payload
            else:
                self.retained.pop(message.topic, None)
        if message.topic.startswith(("homeassistant/", f"{self.topics.root}/homeassistant/")):
            self.published.append((message.topic, message.payload))
            return
        topic = self.topics.parse(message.topic)
        adapter = ADAPTERS.get(topic.kind)
        said = m.decode(adapter, message.payload) if adapter and message.payload else None
        self.sent.append((topic, said))

    def _keep(self, memory: bytes) -> None:
        self.kept = memory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Callable[..., Home]]:
    """`home(*specs, **settings)`: a coordinator with the face, until the test ends."""
    with contextlib.ExitStack() as made:
        yield lambda *specs, **settings: made.enter_context(
            closing(Home(tmp_path, *specs, **settings))
        )
