"""P9: a second coordinator of a topic root yields to the one that serves it, or follows it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.messages import STATUS, Holder, decode, encode
from broker.protocol.topics import Topics
from tests.harness.brokers import BrokerProcess
from tests.harness.fleet import DEADLINE_S, Fleet, wait_until
from tests.harness.verbs import verb

# Ends when somebody writes into the pipe.
TRAINER = """
import json, pathlib, sys
options = dict(one[2:].split("=", 1) for one in sys.argv[2:])
print(json.dumps({"event": "phase", "phase": "train"}), flush=True)
with open(sys.argv[1]) as pipe:
    said = pipe.read()
out = pathlib.Path(options["out-dir"])
out.mkdir(parents=True, exist_ok=True)
(out / "model.json").write_text(said)
print(json.dumps({"event": "result", "metrics": {"auroc": 0.5}, "files": ["model.json"]}))
"""
MakeFleet = Callable[[Path, str, Path], Fleet]


class Two:
    """A fleet with a job that runs, and what a second coordinator of its root is made of."""

    def __init__(self, make_fleet: MakeFleet, url: str, data: Path, tmp: Path) -> None:
        for name in ("first", "second"):
            (tmp / name).mkdir()
        self.first = make_fleet(tmp / "first", url, data)
        self.second = make_fleet(tmp / "second", url, data)
        self.second.environment["FLEET_TOPIC_ROOT"] = self.first.root
        self.topics = Topics(self.first.root)
        self.pipe = tmp / "pipe"
        os.mkfifo(self.pipe)
        program = tmp / "waits.py"
        program.write_text(TRAINER, "utf-8")
        command = json.dumps([sys.executable, str(program), str(self.pipe)])
        schema = "{ type = 'object', properties = {} }"
        self.own = f"[trainers.waits]\ntelemetry = true\ncommand = {command}\nschema = {schema}\n"

    def runs(self) -> None:
        """The first coordinator gives its job to a host."""
        self.first.plan('name = "one"\nmodel = "waits"\nmode = "oracle"')
        self.serves = self.first.coordinator(more=self.own)
        self.agent = self.first.agent("pi", more=self.own)
        self.first.until("one", "running")

    def ends(self) -> dict[str, Any]:
        """The job comes to its end; its row."""
        self.pipe.write_text("done", "utf-8")
        return self.first.until("one", "completed")


@pytest.fixture
def two(make_fleet: MakeFleet, any_broker: BrokerProcess, data: Path, tmp_path: Path) -> Two:
    return Two(make_fleet, any_broker.url, data, tmp_path)


def test_a_second_coordinator_yields_and_harms_nothing(
    two: Two, any_broker: BrokerProcess, client: Any
) -> None:
    """It has a copy of the state folder; the first may be killed and come back without a wait."""
    two.runs()
    shutil.copytree(two.first.tmp / "coordinator", two.second.tmp / "coordinator")
    requests, status = two.topics.request("pi"), two.topics.coordinator_status()
    witness = client(any_broker.port, "witness")
    witness.subscribe(two.topics.holder())
    holder = witness.next()
    witness.subscribe(status)
    serving = witness.next()
    witness.subscribe(requests)  # last: a lease may come at any time
    yields = two.second.coordinator(wait=False, more=two.own)
    assert yields.process.wait(DEADLINE_S) == 2
    said = yields.said()
    assert f"error: topic root '{two.first.root}': a coordinator with a copy of this ledger" in said
    assert "[broker] topic_root" in said

    heard = []
    while not (heard and heard[-1][0] == status and b'"online"' in heard[-1][1]):
        heard.append(witness.next())
    assert {payload for topic, payload in heard if topic == two.topics.holder()} == {holder[1]}
    assert decode(STATUS, heard[-1][1]).instance == decode(STATUS, serving[1]).instance
    told = [json.loads(payload)["type"] for topic, payload in heard if topic == requests]
    assert set(told) <= {"lease"}, "nothing but the renewal of what runs"
    two.serves.kill()
    again = two.first.coordinator(more=two.own)
    assert two.ends()["attempt"] == 1
    assert two.first.events("one") == ["added", "assigned", "started", "completed"]
    assert two.first.status()["jobs"]["completed"] == 1
    again.stop()
    follows = two.second.coordinator(more=two.own)
    assert "come back" not in again.said() + follows.said().removeprefix(said)


def test_who_only_waits_says_no_goodbye(
    two: Two, any_broker: BrokerProcess, client: Any
) -> None:  # fmt: skip
    """It was thrown off, and finds another as the holder: it would be that one's goodbye."""
    waits = two.first.coordinator()
    holder = Holder(ledger="another", installation="it", machine="there", instance="i")
    other = client(any_broker.port, "other")
    other.subscribe(two.topics.holder())
    other.next()  # its own, which would replace the other's
    other.publish(two.topics.holder(), encode(holder), retain=True)
    client(any_broker.port, two.topics.client_id("coordinator"))
    wait_until(lambda: "20 s to come back" in waits.said(), "the reason why it waits")
    assert waits.end(signal.SIGTERM) == 0
    witness = client(any_broker.port, "witness")
    witness.subscribe(two.topics.coordinator_status())
    assert decode(STATUS, witness.next()[1]).reason == "lost"


@pytest.mark.slow
def test_another_ledger_takes_over_from_one_that_does_not_come_back(two: Two) -> None:
    two.runs()
    two.serves.kill()
    follows = two.second.coordinator(wait=False)
    wait_until(lambda: "20 s to come back" in follows.said(), "the reason why it waits")
    asks = verb("status", "--timeout", "3", environment=two.first.environment)
    assert (asks.returncode, asks.stdout) == (3, "")
    wait_until(lambda: "taking over" in follows.said(), "the end of the wait")
    assert sum(two.first.status()["jobs"].values()) == 0
