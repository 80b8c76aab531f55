"""Garbage on every topic: counted, logged once, and nothing else happens."""

from __future__ import annotations

from typing import Any

from broker.protocol.topic_table import TABLE

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


def test_garbage_on_every_topic_is_counted_and_changes_nothing(
    fleet: Any, short: str, client: Any, wait_for: Any
) -> None:
    """Coordinator and agent (T1, M2) go on, and the job that comes afterwards is trained."""
    gated = 'name = "gated"\nmodel = "gru"\nmode = "oracle"\nrequire_cuda = true'
    fleet.plan(gated)
    coordinator = fleet.coordinator()
    agent = fleet.agent()
    before = fleet.until("gated", "pending")
    stranger = client(int(fleet.broker_url.rpartition(":")[2]), f"stranger-{fleet.root}")
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
