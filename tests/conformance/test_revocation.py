"""What becomes of the connection that a revoked host has; docs/brokers.md tells it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from pathlib import Path

import pytest

from broker.deploy import RENDERERS, write
from broker.topics import Topics
from tests.harness import secured
from tests.harness.secured import Actor, Secured

TOPICS = Topics()
WITNESS = "observer:witness"
END = TOPICS.coordinator_status()


def test_mosquitto_makes_a_denied_host_deaf_and_mute_on_reload(tmp_path: Path) -> None:
    """Its connection goes on, and nothing gets through it: no message, none to it, no will."""
    made = secured.mosquitto(tmp_path, people=(WITNESS,), revoked=("two",))
    made.start()
    try:
        watcher, coordinator = made.connect(WITNESS), made.connect("coordinator")
        watcher.subscribe("fleet/#", 1)
        one = made.connect("one", will=(TOPICS.status("one"), b"dead"))
        one.subscribe(TOPICS.request("one"), 1)
        coordinator.publish(TOPICS.request("one"), b"do")
        assert one.got.get(timeout=20) == (TOPICS.request("one"), b"do")
        assert made.site is not None
        write(tmp_path, {"acl": RENDERERS["mosquitto"](_denying(made, "one"))["acl"]})
        made.reload()
        deadline_s = time.monotonic() + 20
        number = 0
        while True:
            number += 1
            one.publish(TOPICS.heartbeat("one"), b"%d" % number)
            coordinator.publish(END, b"%d" % number)
            heard = watcher.heard_until((END, b"%d" % number))
            if (TOPICS.heartbeat("one"), b"%d" % number) not in heard:
                break
            assert time.monotonic() < deadline_s, "it is heard still"
        coordinator.publish(TOPICS.request("one"), b"secret")
        one.break_off()
        made.connect("two-again").publish(TOPICS.heartbeat("two-again"), b"beat")
        coordinator.publish(END, b"end")
        assert (TOPICS.status("one"), b"dead") not in watcher.heard_until((END, b"end"))
        assert one.got.empty()
    finally:
        made.end()


def _denying(made: Secured, *names: str) -> secured.Site:
    assert made.site is not None
    return dataclasses.replace(made.site, denied=names)


@pytest.mark.slow
def test_rabbitmq_ends_a_connection_when_it_is_told_to(tmp_path: Path) -> None:
    """Without its user nobody comes back; the connection that is there is another command."""
    made = secured.rabbitmq(tmp_path, people=(WITNESS,), hosts=("one", "two"))
    made.start()
    try:
        watcher, one, two = (made.connect(name) for name in (WITNESS, "one", "two"))
        watcher.subscribe("fleet/#", 1)
        _rabbitmqctl(made, "delete_user", "one")
        late = Actor("one", made, client_id="fleet-late")
        assert not late.try_connect()
        found = "goes on" if _is_heard(watcher, one, b"1") else "ended"
        print("after delete_user, the connection that is there:", found)
        _rabbitmqctl(made, "close_all_user_connections", "one", "revoked")
        assert one.gone.wait(20)
        assert not Actor("one", made).try_connect()
        assert _is_heard(watcher, two, b"2")
    finally:
        made.end()


def _is_heard(watcher: Actor, host: Actor, word: bytes) -> bool:
    topic = TOPICS.heartbeat(host.name)
    host.paho.publish(topic, word, 0)
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s and not host.gone.is_set():
        if not watcher.got.empty() and watcher.got.get() == (topic, word):
            return True
        time.sleep(0.02)
    return False


def _rabbitmqctl(made: Secured, *arguments: str) -> None:
    node = made.environment["RABBITMQ_NODENAME"]
    subprocess.run(
        ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-n", node, *arguments],
        env={**os.environ, **made.environment}, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
