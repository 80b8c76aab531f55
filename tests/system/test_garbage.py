"""Garbage on every topic: counted, logged once, and nothing else happens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.client.link import Link, LinkSettings
from broker.protocol.events import LinkEvent, Outgoing
from broker.protocol.topic_table import TABLE
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses

HEX = "ab" * 32
CLIENT = "operator:someone/cli"
GARBAGE = [
    b"\xff\xfe\x00garbage",
    b"{",
    b"[" * 5000,
    b"null",
    b'{"v":1}',
    b'{"v":"x","type":"assign"}',
    b'{"type":"finished","id":"a","session":"-","instance":"-","job_id":"' + HEX.encode()
    + b'","attempt":1,"artifact_id":"' + HEX.encode() + b'","size_bytes":1,"metrics":{"a":NaN}}',
    b"x" * 300_000,
]  # fmt: skip


def _topics(fleet: Any) -> list[str]:
    """Every topic of the tree, and some outside it."""
    user, client = CLIENT.split("/")
    found = [
        row.pattern.format(host="pi", node="pi", user=user, client=client, job_id=HEX,
                           artifact_id=HEX, index=0)
        for row in TABLE.values()
    ]  # fmt: skip
    strange = ["operator/status", "UPPER/status", "-x/heartbeat", "pi/job/../log", "a b/capability"]
    return [f"{fleet.root}/{name}" for name in (*found, *strange)]


class _Stranger:
    """Somebody who publishes whatever comes to mind."""

    def __init__(self, fleet: Any) -> None:
        import threading

        self._connected = threading.Event()
        self._link = Link(
            LinkSettings(parse_addresses(fleet.broker_url), f"stranger-{fleet.root}", []),
            self._on_event,
        )
        self._link.start()
        assert self._connected.wait(60)

    def _on_event(self, *_: LinkEvent) -> None:
        self._connected.set()

    def publish(self, topic: str, payload: bytes) -> None:
        """Say it, once."""
        assert self._link.publish(Outgoing(topic, payload, 1))

    def stop(self) -> None:
        """Leave, when all has been said."""
        self._link.stop()


@pytest.fixture
def stranger(fleet: Any) -> Any:
    """A client that publishes garbage."""
    made = _Stranger(fleet)
    yield made
    made.stop()


def test_garbage_on_every_topic_is_counted_and_changes_nothing(
    fleet: Any, short: str, stranger: Any, wait_for: Any
) -> None:
    """Coordinator and agent (T1, M2) go on, and the job that comes afterwards is trained."""
    gated = 'name = "gated"\nmodel = "gru"\nmode = "oracle"\nrequire_cuda = true'
    fleet.plan(gated)
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    before = fleet.until("gated", "pending")
    for topic in _topics(fleet):
        for payload in GARBAGE:
            stranger.publish(topic, payload)
    expected = {
        "status", "capability", "heartbeat", "job/response", "job/progress", "coordinator/status",
        "operator/request", "operator/grant", "broker/refused", "broker/load", "unknown",
    }  # fmt: skip
    wait_for(lambda: expected <= set(fleet.status()["dropped"]), "the counts")
    # Heartbeats replace each other while they wait; reports do not.
    assert fleet.status()["dropped"]["heartbeat"] >= 1
    assert fleet.status()["dropped"]["job/response"] >= 7

    fleet.plan(gated, short)
    fleet.reload()
    fleet.until("gbt-oracle", "completed")
    assert fleet.show("gated")["state"] == before["state"]
    for program in (coordinator, agent):
        assert program.process.poll() is None
        assert "Traceback" not in program.said()
    assert coordinator.said().count("dropped a message on heartbeat") == 1
    worker = fleet.client.list_workers()[0]
    assert worker["heartbeat"]["dropped"] > 0, "the agent counts its own"


def test_forged_messages_of_another_host_change_nothing(
    fleet: Any, long: str, stranger: Any, wait_for: Any
) -> None:
    """Reports for a job that their host was never given (J1) are void."""
    fleet.plan(long)
    fleet.coordinator()
    fleet.agent()
    row = fleet.until("gbt-oracle", "running")
    topics = Topics(fleet.root)
    about = {
        "v": 1, "id": "x", "session": "s", "instance": "i",
        "job_id": row["job_id"], "attempt": row["attempt"],
    }  # fmt: skip
    for report in (
        {"type": "failed", "error": "forged"},
        {"type": "released", "reason": "forged"},
        {"type": "finished", "artifact_id": HEX, "size_bytes": 5, "metrics": {}},
        {"type": "refused", "request_id": "r", "reasons": ["forged"]},
    ):
        stranger.publish(topics.response("mallory"), json.dumps(about | report).encode())
    assert fleet.status()["active"] == 1
    shown = fleet.show("gbt-oracle")
    assert (shown["state"], shown["host"], shown["error"]) == ("running", "pi", None)
    assert "forged" not in json.dumps(shown["events"])
