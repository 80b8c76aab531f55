"""Others' clients of MQTT 5 at the embedded broker: paho, and mosquitto's programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.harness.inthread import InThread
from tests.harness.waiting import wait_until

DEADLINE_S = 20.0


@pytest.fixture
def ours(new_embedded: Callable[..., InThread]) -> InThread:
    """An embedded broker on loopback, with websockets."""
    return new_embedded(websocket=0)


@pytest.mark.parametrize("way", ["plain", "websocket", "tls", "websocket by tls"])
def test_paho_at_level_5(
    way: str, ours: InThread, new_network: Callable[..., Any], client: Callable[..., Any]
) -> None:
    websocket, tls, running = "websocket" in way, None, ours
    if "tls" in way:
        network = new_network(websocket=0)
        tls, running = network.tls("gaming-pc"), network.running
    broker = running.broker
    port = broker.websocket_port if websocket else broker.port
    one = client(port, "one", tls=tls, websocket="/mqtt" if websocket else "", level=5)
    topic = "fleet/gaming-pc/status"
    wanted = [(topic, mqtt.SubscribeOptions(qos=2)), ("$share/a/b", 1)]
    one.ask(lambda: one.paho.subscribe(wanted))
    assert one.why == "Granted QoS 2, Shared subscription not supported"
    told = Properties(PacketTypes.PUBLISH)
    told.UserProperty, told.MessageExpiryInterval = ("k", "v"), 60
    one.ask(lambda: one.paho.publish(topic, b"x" * 100_000, 2, properties=told))
    assert one.why == "Success"
    message = one.got.get(timeout=DEADLINE_S)
    assert len(message.payload) == 100_000
    assert message.properties.UserProperty == [("k", "v")]
    assert message.properties.MessageExpiryInterval == 60
    one.publish("$SYS/lie", b"x")
    assert one.why == "Not authorized"
    assert not one.gone.is_set()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize(("hears", "says"), [("5", "5"), ("5", "311"), ("311", "5")])
def test_mosquittos_programs(ours: InThread, hears: str, says: str) -> None:
    where = ["-h", "127.0.0.1", "-p", str(ours.port)]
    listen = [
        _program("mosquitto_sub"), *where, "-V", hears, "-q", "2", "-t", "a/#", "-C", "2",
        "-W", "15", "-F", "%t %p %r %P %R",
    ]  # fmt: skip
    say = [_program("mosquitto_pub"), *where, "-V", says, "-m", "hello", "-q", "2", "-r"]
    named = ["user-property k v", "response-topic to/me"]
    if says == "5":
        say += [word for one in named for word in ("-D", "publish", *one.split())]
    assert _run(*say, "-t", "a/1").returncode == 0
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as listening:
        wait_until(lambda: ours.broker.router.subscriptions.matching("a/2"), "nobody listens")
        assert _run(*say, "-t", "a/2").returncode == 0
        heard, _ = listening.communicate(timeout=DEADLINE_S)
    more = "k:v to/me" if (hears, says) == ("5", "5") else ""
    assert [line.strip() for line in heard.splitlines() if line.strip()] == [
        f"a/1 hello 1 {more}".strip(), f"a/2 hello 0 {more}".strip(),
    ]  # fmt: skip
