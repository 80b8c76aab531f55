"""A connected client may do what broker/protocol/acl.py grants, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness.waiting import wait_until

Make = Callable[..., Any]  # the fixtures `client`, `new_network` and `new_embedded`


def test_each_filter_of_a_subscribe_is_judged_by_itself(network: Any) -> None:
    agent = network.client("gaming-pc")
    agent.paho.subscribe([("#", 0), ("fleet/gaming-pc/job/request", 1)])
    wait_until(lambda: agent.codes == [0x80, 1], "no SUBACK")
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
    network = new_network(topic_root="site/fleet")
    agent = network.client("gaming-pc")
    assert agent.subscribe("site/fleet/gaming-pc/job/request") == 1
    assert agent.subscribe("fleet/gaming-pc/job/request") == 0x80
