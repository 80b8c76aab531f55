"""What an operator is told when nobody answers, against real brokers."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.link_events import Outgoing
from broker.protocol.messages import AskCancel, AskStatus, Status, encode
from broker.protocol.topics import Topics
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.client.contact import USUAL_S, Unreachable
from tests.harness.brokers import BrokerProcess, embedded
from tests.harness.secure import House


def _told(topics: Topics, state: Any, reason: Any) -> Outgoing:
    status = Status(state=state, reason=reason, session="s", instance="i", boot_id="b")
    return Outgoing(topics.coordinator_status(), encode(status), 1, retain=True)


MAYBE = "\nwhat was asked may still be done within a minute"


def test_a_broker_without_a_coordinator_is_told(where: BrokerSettings) -> None:
    began_s = time.monotonic()
    with OperatorClient(where, 1.0) as client, pytest.raises(Unreachable) as gone:
        client.ask(AskStatus(id=new_id()))
    first = str(gone.value).splitlines()[0]
    assert "answers, but no coordinator did" in first
    assert f"under the topic root {where.topic_root!r}: is that the fleet's?" in first
    assert "`fleet coordinator`" in str(gone.value)
    assert "its log says what keeps it" in str(gone.value)  # it may be there, with a full disk
    assert "it may be coming back to this broker still" in str(gone.value)
    assert "may still be done" not in str(gone.value)  # it was but a question
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(
    ("before", "after", "becomes"),
    [
        ("offline", None, "\nnothing was done"),
        ("offline", "offline", "\nnothing was done"),  # as another coordinator may say it again
        ("offline", "online", MAYBE),
        ("online", "offline", MAYBE),
        (None, "offline", MAYBE),
        (None, None, MAYBE),
    ],
)
def test_a_command_is_void_where_the_coordinator_was_offline_all_the_while(
    where: BrokerSettings, topics: Topics, embedded_broker: BrokerProcess,
    client: Callable[..., Any], peer: Any, before: Any, after: Any, becomes: str,
) -> None:  # fmt: skip
    def told(state: str) -> Outgoing:
        return _told(topics, state, "birth" if state == "online" else "goodbye")

    if before is not None:
        teller = client(embedded_broker.port, f"teller-{topics.root}")
        teller.publish(topics.coordinator_status(), told(before).payload, retain=True)
    peer(lambda *_: [] if after is None else [told(after)])
    ask = AskCancel(id=new_id(), job="x", expires_at=time.time() + 1.0)
    with OperatorClient(where, 1.0) as asks, pytest.raises(Unreachable) as gone:
        asks.ask(ask)
    assert str(gone.value).endswith(becomes)


@pytest.mark.parametrize(
    ("state", "reason", "says"),
    [
        ("online", "birth", r"coordinator has been silent for .*, though it is online.*--timeout"),
        ("offline", "lost", r"offline \(its connection was lost.*may be coming .* else start"),
        ("offline", "goodbye", r"it is offline \(it was stopped\).*goes on; start it again"),
    ],
)
def test_a_silent_coordinator_is_told_by_its_status(
    where: BrokerSettings, topics: Topics, peer: Any, state: Any, reason: Any, says: str
) -> None:
    """One that runs and hangs is not one that is missing, and needs another step."""
    peer(lambda *_: [_told(topics, state, reason)])
    # Its retained status is there with the connection: who is known to be gone is not waited for.
    patience_s = USUAL_S if reason == "goodbye" else 1.0
    with OperatorClient(where, patience_s) as client:
        for _ in range(2):
            with pytest.raises(Unreachable, match=f"(?s){says}"):
                client.ask(AskStatus(id=new_id()))


def test_no_broker_is_told_at_once() -> None:
    """Whoever has no fleet running need not wait for the deadline."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"mqtt://user:secret@127.0.0.1:{free.getsockname()[1]}"
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"(?s)not reachable .*refused.*--broker") as gone:
        OperatorClient(BrokerSettings(url=url), 60.0).__enter__()
    assert time.monotonic() - began_s < 30
    assert "secret" not in str(gone.value)
    assert "fleet up" not in str(gone.value)  # whoever names a broker has a fleet


@pytest.mark.system
@pytest.mark.parametrize(
    ("topic_root", "ca_of", "why"),
    [
        ("other", "one", "refused the subscription"),
        ("fleet", "two", "certificate does not hold"),
    ],
)
def test_a_broker_that_refuses_is_not_called_unreachable(
    tmp_path: Path, topic_root: str, ca_of: str, why: str
) -> None:
    """It is of another root, or of another fleet: to start one more would not help."""
    houses = {name: House.make(tmp_path / name) for name in ("one", "two")}
    folder = tmp_path / "one" / "broker"
    command = [sys.executable, "-m", "broker.embedded", "--identity", str(folder), "--listen"]
    broker = BrokerProcess(lambda port: [*command, f"127.0.0.1:{port}"], announces=True)
    broker.start()
    try:
        who = houses[ca_of].identity("operator:ann")
        url = f"mqtts://127.0.0.1:{broker.port}"
        other = BrokerSettings(url=url, topic_root=topic_root, identity=who)
        with pytest.raises(Unreachable, match=why) as gone:
            OperatorClient(other, 10.0).__enter__()
    finally:
        broker.end()
    assert "the broker answers, but" in str(gone.value)
    assert "--root" in str(gone.value)
    first = str(gone.value).splitlines()[0]
    named = "the topic root 'other': is that the fleet's? else name its own, by --root"
    assert (named in first) is (topic_root == "other")
    assert "fleet up" not in str(gone.value)


@pytest.mark.system
def test_a_broker_that_goes_away_is_not_said_to_answer() -> None:
    """Whoever watches a fleet is told of the one that is missing now."""
    broker = embedded()
    broker.start()
    try:
        with OperatorClient(BrokerSettings(url=broker.url), 1.0) as client:
            with pytest.raises(Unreachable, match="but no coordinator did"):
                client.ask(AskStatus(id=new_id()))
            broker.end()
            with pytest.raises(Unreachable, match="the broker is not reachable"):
                client.ask(AskStatus(id=new_id()))
    finally:
        broker.end(signal.SIGKILL)


def test_of_a_cluster_one_that_answers_is_enough(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    peer(lambda ask, client: [says(client, ask.id, 1)])
    some = where.model_copy(update={"url": f"mqtt://127.0.0.1:1,{where.url}"})
    with OperatorClient(some, 10.0) as client:
        assert client.ask(AskStatus(id="1")) == 1
    none = where.model_copy(update={"url": "mqtt://127.0.0.1:1,mqtt://127.0.0.1:2"})
    with pytest.raises(Unreachable, match=r"127.0.0.1:2: .*refused"), OperatorClient(none, 10.0):
        pass


def test_a_broker_that_says_nothing_is_told_at_the_deadline() -> None:
    """A port that takes the connection, and one that swallows it."""
    with socket.socket() as silent, contextlib.ExitStack() as pending:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        for _ in range(2):  # the second time, the queue of connections is full
            began_s = time.monotonic()
            with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: no answer in 0.5 s"):
                OperatorClient(BrokerSettings(url=f"mqtt://127.0.0.1:{port}"), 0.5).__enter__()
            assert time.monotonic() - began_s < 30
            for _ in range(3):
                waiting = pending.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.1", port))
