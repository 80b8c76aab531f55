"""A coordinator on a broker whose files were written before it had a topic more: P9.

What each broker does to who may not is in brokers.md. The coordinator says what is wrong and
what to do; where it cannot serve, it ends; and `fleet doctor` finds it before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.client.access import COORDINATOR, open_access
from broker.client.link import Link
from broker.errors import ConfigError
from broker.protocol import acl
from broker.protocol.acl import Rights
from broker.protocol.link_events import Disconnected
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.service.succession import DENIED_S, HEARD_S
from tests.harness.coming import Coming
from tests.harness.doctor import checks, doctor
from tests.harness.secured import Secured

TOPICS = Topics()
REMEDY = "may need its files written anew: `fleet broker config mosquitto`, `nats` or `rabbitmq`"


class Older(Coming):
    """One that comes to a broker over TLS."""

    def __init__(self, broker: Secured, tmp: Path) -> None:
        self.home = tmp
        folder = broker.house.known("coordinator")
        self.url = f"mqtts://127.0.0.1:{broker.ports.hosts}"
        own = BrokerSettings(url=self.url, identity=folder)
        access = open_access(own, COORDINATOR, time.time())
        client_id, filters = TOPICS.client_id(Role.COORDINATOR), TOPICS.before_coordinator()
        settings = access.link(client_id, filters, backoff_base_s=0.05, backoff_cap_s=0.2)
        super().__init__(settings, TOPICS)

    def hears_on(self) -> None:
        """Take what comes, until that ends it."""
        while True:
            self.hears()

    def doctor(self) -> tuple[int, tuple[str, str]]:
        """The exit code of `fleet doctor`; the level of what it says of rights, and that."""
        done = doctor(
            "--role=coordinator", "--json", f"--state={self.home / 'state'}",
            XDG_CONFIG_HOME=str(self.home), FLEET_BROKER=self.url,
        )  # fmt: skip
        return done.returncode, checks(done)["rights"]


@pytest.fixture
def older(
    tmp_path: Path, new_secured: Callable[..., Secured], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Older]]:
    """`older(kind)`: comes to a broker whose files know nothing of the holder's topic.

    With `hears`, it may hear that, and say it no more than before.
    """
    links: list[Link] = []

    def make(kind: str, *, hears: bool = False) -> Older:
        now = acl.TABLE[Role.COORDINATOR]
        before = Rights(*(_without_holder(one) for one in (now.publish, now.subscribe)))
        before = Rights(before.publish, now.subscribe) if hears else before
        monkeypatch.setitem(acl.TABLE, Role.COORDINATOR, before)
        broker = new_secured(kind, people=("operator:alice",), hosts=("one",))
        monkeypatch.undo()
        coming = Older(broker, tmp_path)
        links.append(coming.link)
        return coming

    yield make
    for link in links:
        link.stop()


def _without_holder(filters: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in filters if not one.endswith("/holder"))


@pytest.mark.parametrize("kind", ["nats", pytest.param("rabbitmq", marks=pytest.mark.slow)])
def test_who_may_not_hear_it_is_told_and_ends(older: Callable[..., Older], kind: str) -> None:
    """At every try with the topic and the remedy; after a while with that as its last word."""
    coming = older(kind)
    code, (level, text) = coming.doctor()
    assert (code, level) == (1, "fail")
    assert TOPICS.holder() in text
    assert REMEDY in text
    coming.link.start()
    for _ in range(3):
        event = coming.hears()
        assert isinstance(event, Disconnected)
        assert f"the subscription to {TOPICS.holder()}" in event.why
        assert REMEDY in event.remedy
    coming.now_s += DENIED_S
    with pytest.raises(ConfigError, match=f"the subscription to {TOPICS.holder()}"):
        coming.hears()


@pytest.mark.slow
def test_who_is_thrown_off_for_saying_it_is_told_and_ends(
    older: Callable[..., Older], caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ ends the connection; each time the coordinator had just begun to serve."""
    coming = older("rabbitmq", hears=True)
    code, (level, text) = coming.doctor()
    assert (code, level) == (1, "fail")
    assert f"after a word in {TOPICS.holder()}" in text
    coming.link.start()
    ends = 0
    while ends < 3:
        ends += isinstance(coming.hears(), Disconnected)
    assert f"before {TOPICS.holder()} came back" in caplog.text
    coming.now_s += DENIED_S
    with pytest.raises(ConfigError, match="has not let it serve"):
        coming.hears_on()


def test_that_mosquitto_drops_it_in_silence_is_told(
    older: Callable[..., Older], caplog: pytest.LogCaptureFixture
) -> None:
    """It grants and acknowledges everything: the fleet is served, and the log says that."""
    coming = older("mosquitto")
    code, (level, text) = coming.doctor()
    assert (code, level) == (0, "warn")
    assert f"a word in {TOPICS.holder()} did not come back" in text
    assert REMEDY in text
    coming.link.start()
    while not coming.entrance.serves:
        assert not isinstance(coming.hears(), Disconnected)
    coming.entrance.passes(HEARD_S)
    assert coming.entrance.serves
    assert f"{TOPICS.holder()} did not come back in {HEARD_S:.0f} s" in caplog.text
    assert REMEDY in caplog.text


@pytest.mark.parametrize("kind", ["embedded", "mosquitto", "nats"])
def test_with_files_of_now_nothing_is_said(
    tmp_path: Path, kind: str, new_secured: Callable[..., Secured], caplog: pytest.LogCaptureFixture
) -> None:
    coming = Older(new_secured(kind, people=("operator:alice",), hosts=("one",)), tmp_path)
    try:
        code, (level, _) = coming.doctor()
        assert (code, level) == (0, "ok")
        coming.link.start()
        while coming.entrance.next_deadline() is not None or not coming.entrance.serves:
            assert not isinstance(coming.hears(), Disconnected)
        assert not caplog.text
    finally:
        coming.link.stop()
