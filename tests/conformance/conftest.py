"""The embedded broker on a network that nobody controls: with certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.embedded import EmbeddedBroker, ServerSettings
from tests.harness.inthread import InThread
from tests.harness.secure import House
from tests.harness.secured import HOSTS, PEOPLE, Actor, Secured
from tests.harness.secured_brokers import MAKERS
from tests.harness.waiting import wait_until


class Network:
    """An embedded broker with an identity, and its clients."""

    def __init__(self, folder: Path, connect: Callable[..., Any], **settings: Any) -> None:
        self.house = House.make(folder)
        self._connect = connect
        own = {"port": 0, "identity": self.house.broker} | settings
        self.running = InThread(lambda: EmbeddedBroker(ServerSettings(**own)))
        self.port = self.running.port

    @property
    def refused(self) -> dict[str, int]:
        counts: dict[str, int] = self.running.broker.refused
        return counts

    def refuses(self, counts: dict[str, int]) -> None:
        """Check what was refused: a client may see its end before it is counted."""
        wait_until(lambda: self.refused == counts, f"not {counts}, but {self.refused}")

    def tls(self, name: str | None) -> ssl.SSLContext:
        """What somebody's client needs; without a name, one that shows no certificate."""
        return self.house.context(None if name is None else self.house.known(name))

    def client(self, name: str, client_id: str | None = None, **options: Any) -> Any:
        return self._connect(self.port, client_id or name, tls=self.tls(name), **options)


@pytest.fixture(
    scope="module",
    params=["embedded", "mosquitto", "nats", pytest.param("rabbitmq", marks=pytest.mark.slow)],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Each broker in turn, with the files that the fleet renders for it."""
    folder = tmp_path_factory.mktemp(request.param)
    made = MAKERS[request.param](folder, people=PEOPLE, hosts=HOSTS)
    made.start()
    yield made
    made.end()


@pytest.fixture
def new_secured(tmp_path: Path) -> Iterator[Callable[..., Secured]]:
    """`new_secured(kind, people=...)`: a broker of the test's own, in `tmp_path`."""
    made: list[Secured] = []

    def start(kind: str, **options: Any) -> Secured:
        made.append(MAKERS[kind](tmp_path, **options))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture
def connect_to() -> Iterator[Callable[..., Actor]]:
    """`connect_to(broker, name, ...)`: a client that is stopped at the test's end."""
    made: list[Actor] = []

    def connected(broker: Secured, name: str, **options: Any) -> Actor:
        made.append(broker.connect(name, **options))
        return made[-1]

    yield connected
    for actor in made:
        actor.stop()


@pytest.fixture
def new_network(tmp_path: Path, client: Callable[..., Any]) -> Iterator[Callable[..., Network]]:
    """`new_network(setting=...)`: an embedded broker with an identity of its own."""
    made: list[Network] = []

    def start(**settings: Any) -> Network:
        made.append(Network(tmp_path / f"ca-{len(made)}", client, **settings))
        return made[-1]

    yield start
    for one in made:
        one.running.stop()


@pytest.fixture
def network(new_network: Callable[..., Network]) -> Network:
    """An embedded broker with an identity, at its usual limits."""
    return new_network()


@pytest.fixture
def new_embedded() -> Iterator[Callable[..., InThread]]:
    """`new_embedded(setting=...)`: an embedded broker on loopback."""
    made: list[InThread] = []

    def start(**settings: Any) -> InThread:
        made.append(InThread(lambda: EmbeddedBroker(ServerSettings(port=0, **settings))))
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.fixture
def ours(new_embedded: Callable[..., InThread]) -> InThread:
    """An embedded broker on loopback, at its usual limits."""
    return new_embedded()
