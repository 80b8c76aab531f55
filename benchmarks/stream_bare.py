"""The bare limit: one paho client publishes, another takes, and nobody looks at what it is.

    python -m benchmarks.stream_bare send|receive PORT MESSAGES BYTES

The sender is held back by its own socket alone. What the broker drops is not counted.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
from typing import Any, Final, cast

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

UNSENT: Final = 16
DEADLINE_S: Final = 120.0
SILENCE_S: Final = 3.0
END: Final = "bare/end"


def _client(name: str) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"bare-{name}")
    client.on_socket_open = lambda _c, _d, sock: cast("socket.socket", sock).setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )
    return client


def receive(port: int) -> None:
    """Count what comes, from the first message to the last; print the figures."""
    client = _client("receiver")
    ready, over = threading.Event(), threading.Event()
    got_bytes, began_s, last_s = 0, 0.0, time.monotonic()

    def on_message(_client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        nonlocal got_bytes, began_s, last_s
        last_s = time.monotonic()
        began_s = began_s or last_s
        got_bytes += len(message.payload)
        if message.topic == END:
            over.set()

    client.on_message = on_message
    client.on_connect = lambda *_: client.subscribe("bare/#", 0)
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    if not ready.wait(DEADLINE_S):
        raise TimeoutError("no SUBACK")
    print(json.dumps({"event": "ready"}), flush=True)
    while not over.wait(SILENCE_S) and not (began_s and time.monotonic() - last_s > SILENCE_S):
        pass  # a broker that dropped the end is silent
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "bytes": got_bytes,
        "seconds": last_s - began_s,
        "cpu_s": used.ru_utime + used.ru_stime,
    }
    print(json.dumps(found), flush=True)


def send(port: int, messages: int, size_bytes: int) -> None:
    """Publish as fast as the socket takes it."""
    client = _client("sender")
    connected, room = threading.Event(), threading.Semaphore(UNSENT)
    client.on_connect = lambda *_: connected.set()
    client.on_publish = lambda *_: room.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    if not connected.wait(DEADLINE_S):
        raise TimeoutError("no CONNACK")
    payload = os.urandom(size_bytes)
    for index in range(messages):
        if not room.acquire(timeout=DEADLINE_S):
            raise TimeoutError("the broker takes nothing")
        client.publish(f"bare/{'0' * 64}/chunk/{index}", payload, 0)
    client.publish(END, b"", 0)
    for _ in range(UNSENT):
        room.acquire(timeout=DEADLINE_S)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime}), flush=True)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    role, *numbers = sys.argv[1:]
    if role == "receive":
        receive(int(numbers[0]))
    else:
        send(*(int(number) for number in numbers))
