"""The least that the coordinator's part can take: read a request, commit two rows, answer.

    python -m benchmarks.bareclerk HOST PORT ROOT FILE

The same client library, the same database at the same durability, and none of what a coordinator
is for: no check of what came, no choice of a host, no history, no other thread. It answers on
ROOT/answer what comes on ROOT/ask; `benchmarks.coordination` puts its time beside the
coordinator's.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion


def main() -> None:
    """Serve until the end."""
    host, port, root, file = sys.argv[1:]
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE jobs (job_id TEXT PRIMARY KEY, state TEXT, spec TEXT)")
    database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, job_id TEXT, event TEXT)")

    def answer(client: mqtt.Client, _: Any, message: mqtt.MQTTMessage) -> None:
        asked = json.loads(message.payload)
        job_id = asked["job_id"]
        database.execute("BEGIN IMMEDIATE")
        row = (job_id, "claimed", json.dumps(asked["job"]))
        database.execute("INSERT INTO jobs VALUES (?, ?, ?)", row)
        event = (job_id, "assigned")
        database.execute("INSERT INTO events (job_id, event) VALUES (?, ?)", event)
        database.execute("COMMIT")
        client.publish(f"{root}/answer", json.dumps(asked), 1)

    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"{root}-clerk")
    client.on_message = answer
    client.on_subscribe = lambda *_: print("{}", flush=True)
    client.connect(host, int(port))
    client.subscribe(f"{root}/ask", 1)
    client.loop_forever()


if __name__ == "__main__":
    main()
