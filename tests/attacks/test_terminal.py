"""What hosts say, as people see it."""

from __future__ import annotations

import json
from typing import Any

from broker.protocol import messages as m
from broker.protocol.topics import Topics
from tests.harness import rawmqtt
from tests.harness.fleet import wait_until

T = Topics()
PING = rawmqtt.packet(0xC0, b"")
# Clears the screen; a title; C1; text that runs the other way; a line of its own.
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31mred\u202egnp.exe\u2066\r\u2028end"
HARMFUL = set("\x1b\x07\x9b\u202e\u2066\u2028\r")


def test_words_of_a_host_do_nothing_to_a_terminal(attacked: Any) -> None:
    mine = attacked.tls(attacked.house.identity("mallory"))
    about = {"session": "s", "instance": "i"}
    gpu = m.Gpu(index=0, name=EVIL, uuid=EVIL[:80])
    capability = m.Capability(
        **about, description=EVIL, os=EVIL, arch=EVIL, python=EVIL, cpu=EVIL, physical_cores=1,
        ram_total_bytes=1, ram_available_bytes=1, gpus=(gpu,), gpu_problem=EVIL, data_id="d",
        certificate_expires_at=EVIL[:40],
    )  # fmt: skip
    evil = m.Why(code="in_use", by=EVIL, gpu_users=(EVIL,), text=EVIL)
    beat = m.Heartbeat(**about, seq=1, ram_available_bytes=1, gpus=(gpu,), refuses=(evil,))
    status = m.Status(state="online", boot_id="b", **about)
    said = {
        T.status("mallory"): status, T.capability("mallory"): capability,
        T.heartbeat("mallory"): beat,
    }  # fmt: skip
    attacked.knock(
        mine, rawmqtt.connect("m"),
        *(rawmqtt.publish(topic, m.encode(one)) for topic, one in said.items()), PING,
    )  # fmt: skip
    wait_until(lambda: "mallory" in attacked.cli("workers"), "the host is known")
    wait_until(lambda: "owned" in attacked.cli("workers"), "what it said is shown")
    for verb in (("workers",), ("status",), ("events",), ("workers", "--json")):
        assert not HARMFUL & set(attacked.cli(*verb)), verb
    (row,) = json.loads(attacked.cli("workers", "--json"))
    assert row["capability"]["description"] == EVIL, "JSON keeps what a host has said"
