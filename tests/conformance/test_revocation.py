"""What becomes of the connection that a revoked host has; docs/reference/brokers.md tells it."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.deploy import RENDERERS, Site, write
from broker.protocol.topics import Topics
from tests.harness.secured import WITNESS, Actor, Secured
from tests.harness.waiting import wait_until

TOPICS = Topics()
END = TOPICS.coordinator_status()


def test_mosquitto_makes_a_denied_host_deaf_and_mute_on_reload(
    tmp_path: Path, new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    """Its connection goes on, and nothing gets through it: no message, none to it, no will."""
    made = new_secured("mosquitto", people=(WITNESS,), revoked=("two",))
    watcher, coordinator = connect_to(made, WITNESS), connect_to(made, "coordinator")
    watcher.subscribe("fleet/#", 1)
    one = connect_to(made, "one", will=(TOPICS.status("one"), b"dead"))
    one.subscribe(TOPICS.request("one"), 1)
    coordinator.publish(TOPICS.request("one"), b"do")
    assert one.next() == (TOPICS.request("one"), b"do")
    assert made.site is not None
    write(tmp_path, {"acl": RENDERERS["mosquitto"](_denying(made, "one"))["acl"]})
    made.reload()
    numbers = itertools.count()

    def is_mute() -> bool:
        said = b"%d" % next(numbers)
        one.publish(TOPICS.heartbeat("one"), said)
        coordinator.publish(END, said)
        return (TOPICS.heartbeat("one"), said) not in watcher.heard_until((END, said))

    wait_until(is_mute, "it is heard still")
    coordinator.publish(TOPICS.request("one"), b"secret")
    one.break_off()
    connect_to(made, "two-again").publish(TOPICS.heartbeat("two-again"), b"beat")
    coordinator.publish(END, b"end")
    assert (TOPICS.status("one"), b"dead") not in watcher.heard_until((END, b"end"))
    assert one.got.empty()


def _denying(made: Secured, *names: str) -> Site:
    assert made.site is not None
    return dataclasses.replace(made.site, denied=names)


@pytest.mark.slow
def test_rabbitmq_ends_the_connection_of_a_user_that_is_deleted(
    new_secured: Callable[..., Secured], connect_to: Callable[..., Actor]
) -> None:
    made = new_secured("rabbitmq", people=(WITNESS,), hosts=("one", "two"))
    watcher, one, two = (connect_to(made, name) for name in (WITNESS, "one", "two"))
    watcher.subscribe("fleet/#", 1)
    _rabbitmqctl(made, "delete_user", "one")
    assert one.gone.wait(60)
    assert not Actor("one", made).try_connect()
    two.publish(TOPICS.heartbeat("two"), b"beat")
    assert watcher.heard_until((TOPICS.heartbeat("two"), b"beat")) == []
    assert not two.gone.is_set()


def _rabbitmqctl(made: Secured, *arguments: str) -> None:
    node = made.environment["RABBITMQ_NODENAME"]
    subprocess.run(
        ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-n", node, *arguments],
        env={**os.environ, **made.environment}, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
