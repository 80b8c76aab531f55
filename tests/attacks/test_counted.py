"""Whoever attacks a fleet over TLS gets nowhere, and `fleet status` tells how often."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from typing import Any

import pytest

from broker.pki import certificates as certs
from broker.pki import identity as ids
from broker.pki.ca import Authority
from broker.pki.identity import DAY_S
from broker.protocol import messages as m
from broker.protocol.topics import Topics
from tests.harness import rawmqtt
from tests.harness.fleet import ROOT, wait_until

T = Topics()
HEX = "ab" * 32
JOB = "cd" * 32


PING = rawmqtt.packet(0xC0, b"")


def _counts(attacked: Any, kind: str) -> int:
    at_door: dict[str, int] = attacked.status()["broker"]["refused"] or {}
    return at_door.get(kind, 0)


def _certificate(attacked: Any, how: str) -> ssl.SSLContext | None:
    house = attacked.house
    match how:
        case "expired":
            return attacked.tls(house.identity("late", at_s=time.time() - 2 * DAY_S, days=1))
        case "revoked":
            folder = house.identity("gone")
            house.authority.revoke("gone", time.time())
            house.publish()
            return attacked.tls(folder)
        case "self-signed":
            other = Authority.create(attacked.tmp / "other-ca", time.time())
            key = certs.new_key()
            made = other.issue(key.public_key(), "pi", time.time())
            ids.write_identity(attacked.tmp / "forged", other.pem, made, certs.key_pem(key))
            return attacked.tls(attacked.tmp / "forged")
        case "none":
            broker = house.folder / "broker" / "ca.crt"
            return ssl.create_default_context(cafile=str(broker))
    return None


@pytest.mark.parametrize("how", ["expired", "revoked", "self-signed", "none", "plain"])
def test_a_certificate_that_does_not_hold_opens_nothing(attacked: Any, how: str) -> None:
    kind = "revoked" if how == "revoked" else "tls"
    before = _counts(attacked, kind)
    context = _certificate(attacked, how)

    def is_refused() -> bool:
        answer = attacked.knock(context, rawmqtt.connect("pi"), PING)
        assert rawmqtt.CONNACK + b"\0" not in answer or how == "revoked"
        return rawmqtt.CONNACK + b"\0" not in answer

    wait_until(is_refused, "it is refused: a list is read within a second")
    wait_until(lambda: _counts(attacked, kind) > before, f"{kind} is counted")


def test_a_host_speaks_and_listens_as_itself_alone(attacked: Any) -> None:
    """Another's topics, the coordinator's, the broker's own, wildcards: each a count, no more."""
    mine = attacked.tls(attacked.house.identity("mallory"))
    status = m.Status(state="offline", reason="goodbye", session="s", instance="i", boot_id="b")
    others = [
        T.status("pi"), T.response("pi"), T.request("pi"), T.coordinator_status(), T.job(JOB),
        T.broker_refused(), T.operator_request("operator:alice/x"), "$SYS/broker",
    ]  # fmt: skip
    filters = ["#", "+/#", "fleet/#", "fleet/+/status", "fleet/pi/job/request", "$SYS/#"]
    answer = attacked.knock(
        mine,
        rawmqtt.connect("m"),
        *(rawmqtt.publish(topic, m.encode(status)) for topic in others),
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
    where = ("--broker", attacked.url, "--identity", str(attacked.alice), "--root", "other")
    ran = subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *where, "status"],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
        env={"COLUMNS": "80", "PATH": "/usr/bin:/bin", "HOME": str(attacked.tmp)},
    )  # fmt: skip
    assert ran.returncode == 3
    said = " ".join(ran.stderr.split())
    assert 0 < said.index("see that --root names it") < said.index("mosquitto")
    wait_until(lambda: _counts(attacked, "subscribe") == before + 1, "it is counted, once")


def test_packets_too_large_or_senseless_end_their_connection(attacked: Any) -> None:
    mine = attacked.tls(attacked.house.identity("mallory"))
    assert attacked.knock(mine, b"\x10\xff\xff\xff\x7f") == b""
    wait_until(lambda: _counts(attacked, "oversize") == 1, "the large one")
    assert attacked.knock(mine, b"\x10\x00") == b""
    kinds = ("malformed", "connect")
    wait_until(lambda: any(_counts(attacked, kind) for kind in kinds), "the senseless one")


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
