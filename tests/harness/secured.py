"""Brokers that know their clients by certificate, run with the files that the fleet renders."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.deploy import Ports, Site
from broker.protocol.acl import Principal
from broker.protocol.topic_table import Role
from tests.harness.client import DEADLINE_S, Client
from tests.harness.secure import House
from tests.harness.waiting import wait_until

RABBITMQ_START_S = 300.0  # three at once, on a machine that has other things to do
COME_BACK_S = 5.0
WITNESS = "observer:witness"  # reads everything of the fleet, and is sent it by everybody
PEOPLE = ("operator:alice", "operator:bob", "observer:carol", "observer:dave", WITNESS)
HOSTS = ("one", "two")


@dataclass
class Secured:
    """A broker that serves over TLS: where, and who signs for its clients' names.

    A test that is given one needs no more of it than `connect` and `restart`.
    """

    kind: str
    house: House
    ports: Ports
    start_process: Callable[[], subprocess.Popen[bytes]]
    start_deadline_s: float = DEADLINE_S
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    site: Site | None = None  # what its files were rendered from
    environment: dict[str, str] = field(default_factory=dict)  # of RabbitMQ's programs
    epmd_port: str = ""  # of Erlang's port mapper, where it is this broker's alone

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        self.process = self.start_process()

    def wait_ready(self) -> None:
        """Wait until it lets a client in."""
        probe = Actor("coordinator", self, port=self.ports.hosts)

        def lets_in() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the broker ended by itself: {self.words()}"
            return probe.try_connect()

        wait_until(
            lets_in, lambda: f"no connection: {probe.why}: {self.words()}", self.start_deadline_s
        )
        probe.stop()

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it, with all that it started."""
        if self.process is None:
            return
        os.killpg(self.process.pid, how)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(DEADLINE_S)
            self.process = None
        if self.epmd_port:
            end_epmd(self.epmd_port)

    def reload(self) -> None:
        """Have it read its files again; it does so a little later."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    @property
    def websocket_path(self) -> str:
        return "/ws" if self.kind == "rabbitmq" else "/mqtt"

    def words(self) -> str:
        """Return the end of what it logged."""
        return self.log.read_text("utf-8", "replace")[-2000:] if self.log else ""

    def connect(self, name: str, **options: Any) -> Actor:
        """Return a client with the certificate of `name`, connected."""
        actor = Actor(name, self, **options)
        actor.come_back()
        return actor


def end_epmd(port: str) -> None:
    """End Erlang's port mapper, which outlives the nodes that started it."""
    subprocess.run(
        ["/usr/bin/epmd", "-port", port, "-kill"],
        capture_output=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip


class Actor(Client):
    """A client with a certificate of its own.

    It takes being thrown out for an answer, comes back, and subscribes to what it had.
    """

    def __init__(
        self,
        name: str,
        broker: Secured,
        client_id: str = "",
        *,
        will: tuple[str, bytes] | None = None,
        port: int = 0,
        house: House | None = None,
        anonymous: bool = False,
        plain: bool = False,
        websocket: bool = False,
        page: str = "",
    ) -> None:
        """Its certificate is of `house`, if not of the broker's own CA.

        One that is `anonymous` has none; one that is `plain` speaks no TLS.
        """
        person = Principal.parse(name).role not in {Role.AGENT, Role.COORDINATOR}
        ports = broker.ports
        usual = ports.websocket if websocket else ports.people if person else ports.hosts
        shown = None if anonymous else (house or broker.house).known(name)
        super().__init__(
            port or usual or 0,
            client_id or f"fleet-{name.replace(':', '-')}",
            will,
            tls=None if plain else broker.house.context(shown),
            keepalive_s=30,
            websocket=broker.websocket_path if websocket else "",
            page=page,
        )
        self.broker = broker
        self.held: list[tuple[str, int]] = []

    def come_back(self) -> None:
        """Connect; try again for a while.

        RabbitMQ drops who comes back before it has put away what it kept for the last connection.
        """
        wait_until(
            self.try_connect, lambda: f"{self.client_id}: {self.why}: {self.broker.words()}",
            COME_BACK_S,
        )  # fmt: skip
        for filter_, qos in self.held:
            assert self.answer_to(filter_, qos) is not None

    def thrown_out(self) -> None:
        self.paho.loop_stop()
        self.come_back()

    def subscribe(self, filter_: str, qos: int = 0) -> bool:
        """Subscribe; tell whether the broker said that it took it, which proves nothing."""
        answer = self.answer_to(filter_, qos)
        granted = answer is not None and answer < 0x80
        if granted:
            self.held.append((filter_, qos))
        return granted

    def answer_to(self, filter_: str, qos: int = 0) -> int | None:
        """Return the code of the answer to a subscription, or none when thrown out for it."""
        return super().subscribe(filter_, qos)
