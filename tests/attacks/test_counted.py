"""Whoever attacks a fleet over TLS gets nowhere, and `fleet status` tells how often."""

from __future__ import annotations

import json
from typing import Any

from broker.protocol import messages as m
from broker.protocol.topics import Topics
from tests.harness import rawmqtt
from tests.harness.fleet import wait_until

T = Topics()
HEX = "ab" * 32
JOB = "cd" * 32


PING = rawmqtt.packet(0xC0, b"")


def _counts(attacked: Any, kind: str) -> int:
    at_door: dict[str, int] = attacked.status()["broker"]["refused"] or {}
    return at_door.get(kind, 0)


def test_a_host_speaks_and_listens_as_itself_alone(attacked: Any) -> None:
    mine = attacked.tls(attacked.house.identity("mallory"))
    others = [
        T.status("pi"), T.response("pi"), T.request("pi"), T.coordinator_status(), T.job(JOB),
        T.broker_refused(), T.operator_request("operator:alice/x"), "$SYS/broker",
    ]  # fmt: skip
    filters = ["#", "+/#", "fleet/#", "fleet/+/status", "fleet/pi/job/request", "$SYS/#"]
    answer = attacked.knock(
        mine,
        rawmqtt.connect("m"),
        *(rawmqtt.publish(topic, b"{}") for topic in others),
        *(rawmqtt.subscribe(one) for one in filters),
        PING,
    )
    assert answer.count(b"\x90\x03\x00\x01\x80") == len(filters)
    wait_until(lambda: _counts(attacked, "publish") == len(others), "what it published")
    wait_until(lambda: _counts(attacked, "subscribe") == len(filters), "what it subscribed to")
    attacked.knock(mine, rawmqtt.connect("m"), rawmqtt.subscribe("x/a", "x/b", "x/c"), PING)
    once = len(filters) + 1
    wait_until(lambda: _counts(attacked, "subscribe") == once, "one mistaken root, once")
    will = rawmqtt.connect("m", will=(T.status("pi"), b"dead"))
    assert rawmqtt.CONNACK + b"\5" in attacked.knock(mine, will)
    wait_until(lambda: _counts(attacked, "will") == 1, "its will")
    assert json.loads(attacked.cli("workers", "--json")) == []


def test_a_mistaken_root_is_counted_once_and_told_first(attacked: Any) -> None:
    """Before what other brokers may need: this one gives rights by its own root alone."""
    before = _counts(attacked, "subscribe")
    ran = attacked.run("--root", "other", "status")
    assert ran.returncode == 3
    said = " ".join(ran.stderr.split())
    assert 0 < said.index("see that --root names it") < said.index("mosquitto")
    wait_until(lambda: _counts(attacked, "subscribe") == before + 1, "it is counted, once")


def test_forged_words_of_a_host_are_counted_by_the_coordinator(attacked: Any) -> None:
    """It may speak, and says what it was never asked: of jobs, artifacts, and in no JSON."""
    mine = attacked.tls(attacked.house.identity("mallory"))
    about = {"id": "x", "session": "s", "instance": "i", "job_id": JOB, "attempt": 1}
    report = m.Finished(**about, artifact_id=HEX, size_bytes=5, receipt="00" * 16)
    said = [
        (T.response("mallory"), m.encode(report)),
        (T.chunk("mallory", HEX, 0), b"x" * 5),
        (T.heartbeat("mallory"), b"[" * 100_000),
        (T.capability("mallory"), b'{"v": NaN}'),
        (T.progress("mallory", JOB), b'{"attempt": 1, "metrics": {"a": Infinity}}'),
        (T.response("mallory"), b"\xff\xfe"),
    ]  # fmt: skip
    attacked.knock(mine, rawmqtt.connect("m"), *(rawmqtt.publish(*one) for one in said), PING)
    expected = {"heartbeat": 1, "capability": 1, "job/progress": 1, "job/response": 1}
    wait_until(lambda: attacked.status()["dropped"] == expected, "what makes no sense")
    wait_until(lambda: attacked.status()["refused"] == {"report": 1}, "the forged result")
    assert not list((attacked.tmp / "coordinator" / "models").rglob("*.zst"))
    assert not list((attacked.tmp / "coordinator" / "incoming").iterdir())


def test_status_tells_people(attacked: Any) -> None:
    attacked.knock(None, b"GET / HTTP/1.1\r\n\r\n")
    wait_until(lambda: _counts(attacked, "tls") > 0, "one that is none of ours")
    text = attacked.cli("status")
    shown = " ".join(text.split())
    assert "By broker" in text
    assert "without a certificate of the fleet" in shown
    assert max(map(len, text.splitlines())) <= 80
    log = (attacked.tmp / "broker.embedded.log").read_text()
    assert "refused (tls)" in log
