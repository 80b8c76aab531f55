"""A connected client may do what broker/protocol/acl.py grants, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.embedded import Reason
from broker.protocol.acl import Principal, rights_of
from broker.protocol.topics import Topics
from tests.harness.inthread import until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_stock`
TOPICS = Topics("fleet")
NAMES = ("gaming-pc", "coordinator", "operator:alice", "observer:bob", "homeassistant")
HEX = "0f" * 32


def _topics() -> list[str]:
    """Every kind of topic, as every role's own and as somebody else's."""
    made = [TOPICS.coordinator_status(), TOPICS.summary(), TOPICS.job(HEX), TOPICS.broker_refused()]
    for host in ("gaming-pc", "pi-4"):
        made += [
            TOPICS.status(host), TOPICS.capability(host), TOPICS.heartbeat(host),
            TOPICS.request(host), TOPICS.response(host), TOPICS.log(host, HEX),
            TOPICS.progress(host, HEX), TOPICS.offer(host, HEX), TOPICS.chunk(host, HEX, 0),
            TOPICS.grant(host, HEX), TOPICS.checkpoint_chunk(host, HEX, 0),
            TOPICS.checkpoint_grant(host, HEX),
        ]  # fmt: skip
    for user in ("operator:alice", "operator:carol", "observer:bob", "homeassistant"):
        asking = f"{user}/cli-1"
        made += [
            TOPICS.operator_request(asking), TOPICS.operator_response(asking),
            TOPICS.download_chunk(asking, 0), TOPICS.download_grant(asking),
        ]  # fmt: skip
    return [
        *made, "fleet/homeassistant/x/set", "fleet/homeassistant/x/state", "homeassistant/status",
        "homeassistant/sensor/x/config", "other", "fleet", "other/gaming-pc/status", "/",
    ]  # fmt: skip


def _filters() -> list[str]:
    """Every topic as a filter, and filters that would take in more."""
    wide = [
        "#", "+/#", "fleet/#", "fleet/+/#", "+/gaming-pc/status", "fleet/+/status",
        "fleet/gaming-pc/#", "fleet/gaming-pc/job/#", "fleet/gaming-pc/artifact/+/grant",
        "fleet/gaming-pc/+/request", "fleet/+/artifact/+/chunk/+", "fleet/operator/+/+/request",
        "fleet/operator/operator:alice/#", "homeassistant/#", "$SYS/#", "$SYS/broker/uptime",
        "$share/g/fleet/gaming-pc/job/request", "+", "/#",
    ]  # fmt: skip
    return [*wide, *_topics()]


@pytest.mark.parametrize("name", NAMES)
def test_everybody_publishes_what_they_may_and_nothing_else(network: Any, name: str) -> None:
    """Each kind of topic; what does not arrive is acknowledged, and counted."""
    hearer = network.client("homeassistant", "hearer")
    for wide in ("fleet/#", "homeassistant/#"):
        assert hearer.subscribe(wide) == 1
    rights = rights_of(Principal.parse(name), TOPICS)
    speaker = network.client(name)
    topics = _topics()
    for topic in topics:
        speaker.publish(topic, name.encode())
    end = TOPICS.status("end")
    network.client("end").publish(end, b"")
    heard = set()
    while (message := hearer.next()) != (end, b""):
        if message[1] == name.encode():  # the broker itself tells what it has refused
            heard.add(message[0])
    allowed = {topic for topic in topics if rights.may_publish(topic)}
    assert heard == allowed
    assert network.refused == {Reason.PUBLISH: len(topics) - len(allowed)}


@pytest.mark.parametrize("name", NAMES)
def test_everybody_subscribes_to_what_they_may_and_nothing_else(network: Any, name: str) -> None:
    """Each kind of filter; 0x80 for every other."""
    one = network.client(name)
    rights = rights_of(Principal.parse(name), TOPICS)
    granted = {filter_ for filter_ in _filters() if one.subscribe(filter_) != 0x80}
    assert granted == {filter_ for filter_ in _filters() if rights.may_subscribe(filter_)}
    assert not {"#", "+/#", "$SYS/#", "other"} & granted


def test_each_filter_of_a_subscribe_is_judged_by_itself(network: Any) -> None:
    """A bad one does not spoil the good one."""
    agent = network.client("gaming-pc")
    agent.paho.subscribe([("#", 0), ("fleet/gaming-pc/job/request", 1)])
    until(lambda: agent.codes == [0x80, 1], "no SUBACK")
    network.client("coordinator").publish("fleet/gaming-pc/job/request", b"work")
    assert agent.next() == ("fleet/gaming-pc/job/request", b"work")


def test_retained_messages_are_for_those_who_may_have_them(network: Any) -> None:
    """An agent is told the coordinator's status, and no other host's, whatever it asks for."""
    network.client("pi-4").publish("fleet/pi-4/status", b"online", retain=True)
    coordinator = network.client("coordinator")
    coordinator.publish("fleet/coordinator/status", b"here", retain=True)
    agent = network.client("gaming-pc")
    for filter_ in ("#", "fleet/+/status", "fleet/pi-4/status", "fleet/coordinator/status"):
        agent.subscribe(filter_)
    assert agent.next() == ("fleet/coordinator/status", b"here")
    agent.subscribe("fleet/gaming-pc/job/request")
    coordinator.publish("fleet/gaming-pc/job/request", b"end")
    assert agent.next() == ("fleet/gaming-pc/job/request", b"end")


def test_nothing_is_retained_for_who_may_not_publish_it(network: Any) -> None:
    """Nor can anybody clear what another has retained."""
    network.client("pi-4").publish("fleet/pi-4/status", b"online", retain=True)
    agent = network.client("gaming-pc")
    agent.publish("fleet/pi-4/status", b"", retain=True)
    agent.publish("fleet/pi-4/capability", b"lie", retain=True)
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/pi-4/#")
    assert watcher.next() == ("fleet/pi-4/status", b"online")
    network.client("pi-4", "again").publish("fleet/pi-4/heartbeat", b"{}")
    assert watcher.next() == ("fleet/pi-4/heartbeat", b"{}")


def test_rights_are_under_the_fleets_own_root(new_network: Make) -> None:
    """Two fleets of one CA, on brokers of their own roots."""
    network = new_network(topic_root="site/fleet")
    agent = network.client("gaming-pc")
    assert agent.subscribe("site/fleet/gaming-pc/job/request") == 1
    assert agent.subscribe("fleet/gaming-pc/job/request") == 0x80


def test_a_message_at_qos_2_is_judged_when_it_is_released(network: Any) -> None:
    """What may go out arrives once; what may not is completed all the same."""
    watcher = network.client("operator:alice")
    watcher.subscribe("fleet/#", 2)
    agent = network.client("gaming-pc")
    agent.publish("fleet/pi-4/status", b"lie", 2)
    agent.publish("fleet/gaming-pc/status", b"online", 2)
    assert watcher.next() == ("fleet/gaming-pc/status", b"online")
    assert network.refused == {Reason.PUBLISH: 1}
