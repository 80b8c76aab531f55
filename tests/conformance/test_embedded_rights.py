"""A connected client may do what broker/protocol/acl.py grants, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.embedded import Reason
from tests.harness.inthread import until

Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_embedded`


def test_each_filter_of_a_subscribe_is_judged_by_itself(network: Any) -> None:
    """A bad one does not spoil the good one."""
    agent = network.client("gaming-pc")
    agent.paho.subscribe([("#", 0), ("fleet/gaming-pc/job/request", 1)])
    until(lambda: agent.codes == [0x80, 1], "no SUBACK")
    network.client("coordinator").publish("fleet/gaming-pc/job/request", b"work")
    assert agent.next() == ("fleet/gaming-pc/job/request", b"work")


def test_nothing_is_retained_for_who_may_not_publish_it(network: Any) -> None:
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
