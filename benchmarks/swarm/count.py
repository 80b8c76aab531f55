"""The floor: a bare paho client that counts the heartbeats of a fleet and does no more."""

from __future__ import annotations

import argparse
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from broker.protocol.topics import CLIENT_PREFIX, Topics


def main() -> None:
    """Count until killed; say so when the subscription is taken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swarm.count", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", default="fleet")
    arguments = parser.parse_args()
    counted = 0

    def count(*_: object) -> None:
        nonlocal counted
        counted += 1

    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"{CLIENT_PREFIX}floor")
    client.on_message = count
    client.on_subscribe = lambda *_: print('{"event":"ready"}', flush=True)
    client.connect("127.0.0.1", arguments.port)
    client.loop_start()
    client.subscribe(Topics(arguments.root).heartbeat("+"), 0)
    threading.Event().wait()


main()
