"""A coordinator with its Home Assistant face, and a broker that keeps what is retained."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming, Outgoing
from broker.protocol.topics import HOME_STATUS
from coordinator.faces.homeassistant import HomeAssistant
from coordinator.jobs.plan_entries import JobSpec, Plan
from tests.harness.coordinator import ADAPTERS, OPERATOR, Host
from tests.harness.shell import Coordinator


class Home(Coordinator):
    """A shell with the face; what comes from other threads comes at once."""

    def __init__(self, folder: Path, *specs: JobSpec, commands: bool = True, **more: Any) -> None:
        self.specs = specs
        self.retained: dict[str, bytes] = {}
        self.published: list[tuple[str, bytes]] = []  # for Home Assistant alone
        self.kept: bytes | None = None
        super().__init__(folder, manifest="plan.toml", home_commands=commands, **more)

    def start(self, kept: bytes | None = None) -> None:
        """Start (again), with what was kept."""
        self.close()
        self.face = HomeAssistant(
            self.topics, random.Random(2), "1.0", kept, self._keep,
            commands=self.settings.home_commands,
        )  # fmt: skip
        super().start()

    def close(self) -> None:
        """Let go of the ledger, without a word."""
        while self.opened:
            self.opened.pop().close()

    def plan(self) -> Plan:
        return Plan(self.specs)

    def put(self, event: Any) -> None:
        self.handle(event)

    def read(self, work: Callable[[], None]) -> None:
        work()

    def passes(self, seconds: float) -> None:
        """Time passes; every turn that is wanted is given at its time."""
        self.waits(seconds)

    def host(self, name: str = "pi", **capability: Any) -> Host:
        """A host that has joined, and was looked at."""
        host = Host(self, name).joins(**capability)
        self.passes(2)
        return host

    def born(self) -> None:
        """Home Assistant says that it has come."""
        self.handle(Incoming(HOME_STATUS, b"online"))

    def told(self, node: str, command: str, *, retained: bool = False) -> None:
        payload = m.encode(m.HomeCommand.model_validate({"type": command}))
        self.handle(Incoming(self.topics.home_command(node), payload, retained))

    def tells(self, ask: Any) -> None:
        self.handle(Incoming(self.topics.operator_request(OPERATOR), m.encode(ask)))

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
        topic = self.topics.home_event("coordinator")
        found = [m.decode(m.HOME_EVENT, payload) for at, payload in self.published if at == topic]
        self.published = [one for one in self.published if one[0] != topic]
        return found

    def story(self) -> list[tuple[str, str, str, str]]:
        """Who did what, and what came of it: what Home Assistant asked for."""
        rows = self.ledger._db.execute(
            "SELECT who, action, outcome, coalesce(host, '') FROM actions ORDER BY seq"
        ).fetchall()
        return [tuple(row) for row in rows if row[0] == "homeassistant"]

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
