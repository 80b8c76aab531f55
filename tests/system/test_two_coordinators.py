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
from tests.harness.fleet import DEADLINE_S, Fleet, Program, wait_until
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
        self.own = f"[trainers.waits]\ncommand = {command}\nschema = {schema}\n"

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


def is_online(payload: bytes) -> bool:
    """Tell whether a status says so."""
    return decode(STATUS, payload).state == "online"


@pytest.fixture
def two(make_fleet: MakeFleet, any_broker: BrokerProcess, data: Path, tmp_path: Path) -> Two:
    """Nothing runs yet."""
    return Two(make_fleet, any_broker.url, data, tmp_path)


def test_a_second_coordinator_yields_and_harms_nothing(
    two: Two, any_broker: BrokerProcess, client: Any
) -> None:
    """It ends with what to do; the job runs on, and nobody is told to stop."""
    two.runs()
    requests, status = two.topics.request("pi"), two.topics.coordinator_status()
    witness = client(any_broker.port, "witness")
    for topic in (requests, two.topics.holder(), status):
        witness.subscribe(topic)
    holder, serving = (witness.next() for _ in range(2))
    yields = two.second.coordinator(wait=False)
    assert yields.process.wait(DEADLINE_S) == 2
    said = yields.said()
    assert f"error: topic root '{two.first.root}': a coordinator with another ledger" in said
    assert "[broker] topic_root" in said

    heard = []
    while not (heard and heard[-1][0] == status and is_online(heard[-1][1])):
        heard.append(witness.next())
    assert {payload for topic, payload in heard if topic == two.topics.holder()} == {holder[1]}
    assert decode(STATUS, heard[-1][1]).instance == decode(STATUS, serving[1]).instance
    told = [json.loads(payload)["type"] for topic, payload in heard if topic == requests]
    assert set(told) <= {"lease"}, "nothing but the renewal of what runs"
    assert two.ends()["attempt"] == 1
    assert two.first.events("one") == ["added", "assigned", "started", "completed"]
    assert two.first.status()["jobs"]["completed"] == 1


@pytest.mark.parametrize("what", ["ledger", "folder"])
def test_a_copy_of_the_ledger_yields_too(two: Two, what: str) -> None:
    """On a machine of the same name, with the ledger and its key alone, or the whole folder."""
    two.runs()
    ours, theirs = two.first.tmp / "coordinator", two.second.tmp / "coordinator"
    names = {"training_jobs.db*", "receipt.key"} if what == "ledger" else {"*"}
    theirs.mkdir()
    for path in {path for name in names for path in ours.glob(name) if path.is_file()}:
        shutil.copy2(path, theirs)
    yields = two.second.coordinator(wait=False, more=two.own)
    assert yields.process.wait(DEADLINE_S) == 2
    assert "a coordinator with a copy of this ledger" in yields.said()
    assert two.ends()["attempt"] == 1
    assert two.first.events("one") == ["added", "assigned", "started", "completed"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_same_ledger_comes_back_without_a_wait(two: Two, how: int) -> None:
    """After a crash, and after a clean end; so does another ledger after a clean end."""
    two.runs()
    two.serves.end(how)
    again = two.first.coordinator(more=two.own)
    assert two.ends()["attempt"] == 1
    assert "come back" not in again.said()
    again.stop()
    assert "come back" not in two.second.coordinator().said()


@pytest.fixture
def cut_off(two: Two, any_broker: BrokerProcess, client: Any) -> Program:
    """One that has served, was thrown off, and waits, since it finds another as the holder."""
    one = two.first.coordinator()
    holder = Holder(ledger="another", installation="it", machine="there", instance="i")
    other = client(any_broker.port, "other")
    other.subscribe(two.topics.holder())
    other.next()  # its own, which would replace the other's
    other.publish(two.topics.holder(), encode(holder), retain=True)
    client(any_broker.port, two.topics.client_id("coordinator"))
    wait_until(lambda: "20 s to come back" in one.said(), "the reason why it waits")
    return one


def test_who_was_followed_yields(
    cut_off: Program, two: Two, any_broker: BrokerProcess, client: Any
) -> None:
    """It was away for so long that another one has taken over, which comes back."""
    client(any_broker.port, two.topics.client_id("coordinator"))
    assert cut_off.process.wait(DEADLINE_S) == 2
    assert "(on there, instance i) serves this fleet" in cut_off.said()


def test_who_only_waits_says_no_goodbye(
    cut_off: Program, two: Two, any_broker: BrokerProcess, client: Any
) -> None:
    """It would be that of whoever serves."""
    assert cut_off.end(signal.SIGTERM) == 0
    witness = client(any_broker.port, "witness")
    witness.subscribe(two.topics.coordinator_status())
    assert decode(STATUS, witness.next()[1]).reason == "lost"


@pytest.mark.slow
def test_another_ledger_takes_over_from_one_that_does_not_come_back(two: Two) -> None:
    """After a while, in which `fleet status` does not say that anybody serves."""
    two.runs()
    two.serves.kill()
    follows = two.second.coordinator(wait=False)
    wait_until(lambda: "20 s to come back" in follows.said(), "the reason why it waits")
    asks = verb("status", "--timeout", "3", environment=two.first.environment)
    assert (asks.returncode, asks.stdout) == (3, "")
    wait_until(lambda: "taking over" in follows.said(), "the end of the wait")
    assert sum(two.first.status()["jobs"].values()) == 0
