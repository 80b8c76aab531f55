"""A coordinator on a broker whose files were written before it had a topic more: P9.

What each broker does to who may not is in brokers.md. The coordinator says what is wrong and
what to do; where it cannot serve, it ends; and `fleet doctor` finds it before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.client.access import COORDINATOR, open_access
from broker.client.link import Link, LinkSettings
from broker.errors import ConfigError
from broker.pki import identity as ids
from broker.protocol import acl
from broker.protocol.acl import Rights
from broker.protocol.events import Disconnected, LinkEvent
from broker.protocol.messages import Holder
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.service.succession import DENIED_S, HEARD_S, Entrance
from tests.harness import secured_brokers
from tests.harness.ear import Ear
from tests.harness.fleet import ROOT
from tests.harness.secured import Secured

DEADLINE_S = 60.0
TOPICS = Topics()
REMEDY = "may need its files written anew: `fleet broker config mosquitto`, `nats` or `rabbitmq`"


class Coming:
    """A coordinator on its way in, as it comes to a broker over TLS; its clock is the test's."""

    def __init__(self, broker: Secured, tmp: Path) -> None:
        self.home, self.now_s = tmp, 0.0
        authority, issued = broker.authority, broker.authority.named("coordinator")
        ca, crt, key = (authority.folder / "ca.crt", issued.crt, issued.key)
        folder = tmp / "fleet" / "identities" / ids.folder_name("coordinator")
        ids.write_identity(folder, ca.read_bytes(), crt.read_bytes(), key.read_bytes())
        self.url = f"mqtts://127.0.0.1:{broker.ports.hosts}"
        access = open_access(
            BrokerSettings(url=self.url, identity=folder), COORDINATOR, time.time()
        )  # fmt: skip
        settings = LinkSettings(
            access.addresses, TOPICS.client_id(Role.COORDINATOR), TOPICS.before_coordinator(),
            backoff_base_s=0.05, backoff_cap_s=0.2, tls=access.tls,
        )  # fmt: skip
        self.ear = Ear(settings)
        self.link = self.ear.link
        own = Holder(ledger="mine", installation="it", machine="here", instance="i1")
        self.entrance = Entrance(self.link, TOPICS, own, TOPICS.for_coordinator())

    def hears(self) -> LinkEvent:
        """Take the next event."""
        event = self.ear.event()
        self.entrance.admits(event, self.now_s)
        return event

    def hears_on(self) -> None:
        """Take what comes, until that ends it."""
        while True:
            self.hears()

    def doctor(self) -> tuple[int, tuple[str, str]]:
        """The exit code of `fleet doctor`; the level of what it says of rights, and that."""
        environment = {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}
        environment |= {"XDG_CONFIG_HOME": str(self.home), "FLEET_BROKER": self.url}
        done = subprocess.run(
            [
                sys.executable, "-m", "coordinator.cli", "doctor", "--role=coordinator", "--json",
                f"--state={self.home / 'state'}",
            ],
            capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=environment,
        )  # fmt: skip
        (found,) = [one for one in json.loads(done.stdout)["checks"] if one["check"] == "rights"]
        return done.returncode, (found["level"], f"{found['text']}; {found['remedy']}")


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Coming]]:
    """`older(kind)`: comes to a broker whose files know nothing of the holder's topic.

    With `hears`, it may hear that, and say it no more than before.
    """
    started: list[Secured] = []
    links: list[Link] = []

    def make(kind: str, *, hears: bool = False) -> Coming:
        now = acl.TABLE[Role.COORDINATOR]
        before = Rights(*(_without_holder(one) for one in (now.publish, now.subscribe)))
        before = Rights(before.publish, now.subscribe) if hears else before
        monkeypatch.setitem(acl.TABLE, Role.COORDINATOR, before)
        broker = secured_brokers.MAKERS[kind](tmp_path, people=("operator:alice",), hosts=("one",))
        broker.start()
        started.append(broker)
        monkeypatch.undo()
        coming = Coming(broker, tmp_path)
        links.append(coming.link)
        return coming

    yield make
    for link in links:
        link.stop()
    for broker in started:
        broker.end()


def _without_holder(filters: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in filters if not one.endswith("/holder"))


@pytest.mark.parametrize("kind", ["nats", pytest.param("rabbitmq", marks=pytest.mark.slow)])
def test_who_may_not_hear_it_is_told_and_ends(older: Callable[..., Coming], kind: str) -> None:
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
        assert REMEDY in event.why
    coming.now_s += DENIED_S
    with pytest.raises(ConfigError, match=f"the subscription to {TOPICS.holder()}"):
        coming.hears()


@pytest.mark.slow
def test_who_is_thrown_off_for_saying_it_is_told_and_ends(
    older: Callable[..., Coming], caplog: pytest.LogCaptureFixture
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
    older: Callable[..., Coming], caplog: pytest.LogCaptureFixture
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
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The holder comes back, and the doctor is content."""
    broker = secured_brokers.MAKERS[kind](tmp_path, people=("operator:alice",), hosts=("one",))
    broker.start()
    coming = Coming(broker, tmp_path)
    try:
        code, (level, _) = coming.doctor()
        assert (code, level) == (0, "ok")
        coming.link.start()
        while coming.entrance.next_deadline() is not None or not coming.entrance.serves:
            assert not isinstance(coming.hears(), Disconnected)
        assert not caplog.text
    finally:
        coming.link.stop()
        broker.end()
