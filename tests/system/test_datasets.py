"""Datasets, from a folder to the coordinator's store: real programs on the real embedded broker."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from pathlib import Path
from typing import Any

from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from tests.harness.fleet import Fleet, wait_until
from tests.harness.verbs import Done, command, process

FILES = 6
FILE_BYTES = 4 * 1024**2


class Data:
    """A folder, and the verbs `fleet data` on a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.folder = fleet, fleet.tmp / "tree"
        self.state = fleet.tmp / "coordinator"
        drawn = random.Random(7)
        for number in range(FILES):
            self.write(f"part{number}/numbers", drawn.randbytes(FILE_BYTES))

    def write(self, name: str, data: bytes) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)

    def verb(self, *words: str) -> Done:
        return process(*words, "--timeout=60", environment=self.fleet.environment)

    def push(self) -> dict[str, Any]:
        said: dict[str, Any] = self.verb("data", "push", "tree", str(self.folder), "--json").json()
        return said

    def begin(self) -> subprocess.Popen[bytes]:
        words = command("data", "push", "tree", str(self.folder))
        return subprocess.Popen(words, env=self.fleet.environment, stdout=subprocess.PIPE)

    def coming_bytes(self) -> int:
        """How much of a pack the coordinator has surely on its disk."""
        for listed in (self.state / "incoming").glob("*.json"):
            found = json.loads(listed.read_bytes())
            return sum(end - start for start, end in found["have"]) * int(found["chunk_bytes"])
        return 0

    def listed(self) -> list[str]:
        rows = self.verb("data", "list", "--json").json()
        return [f"{row['name']}@{row['digest']}" for row in rows]


def sent_bytes(heard: OperatorClient) -> int:
    """How much was pushed since the last look."""
    return sum(
        len(payload) for topic, payload in heard.messages(1.0) if topic.kind is Kind.PUSH_CHUNK
    )


def test_a_push_that_is_killed_goes_on_and_a_later_version_costs_its_changes(
    fleet: Fleet,
) -> None:
    """A restart of the coordinator forgets neither what has come nor what is known."""
    data = Data(fleet)
    coordinator = fleet.coordinator(window_bytes=64 * 1024)
    settings = BrokerSettings(url=fleet.broker_url, topic_root=fleet.root)
    watch = [f"{fleet.root}/operator/+/+/push/+"]
    pushing = data.begin()
    wait_until(lambda: data.coming_bytes() > FILE_BYTES, "a part of the pack", 60.0)
    pushing.kill()
    pushing.communicate(timeout=60.0)
    coordinator.kill()
    there_bytes = data.coming_bytes()
    assert FILE_BYTES < there_bytes < FILES * FILE_BYTES, "it was killed in the middle"
    coordinator.start()
    with OperatorClient(settings, 60.0, watch=watch, patient=True) as heard:
        first = data.push()
        assert sent_bytes(heard) < 1.1 * (FILES * FILE_BYTES - there_bytes)
        data.write("part0/numbers", b"other numbers")
        later = data.push()
        assert sent_bytes(heard) < 64 * 1024
        assert (first["size_bytes"], first["files"]) == (FILES * FILE_BYTES, FILES)
        assert data.push()["digest"] == later["digest"]
        assert sent_bytes(heard) == 0
    coordinator.kill()
    coordinator.start()
    assert data.listed() == [f"tree@{one['digest']}" for one in (first, later)]
    for bundle in (data.state / "models").glob("tree_datasets/*/*"):
        assert hashlib.sha256(bundle.read_bytes()).hexdigest() == bundle.parent.name


def test_a_dataset_is_pushed_with_its_job_and_removed_after_it(fleet: Fleet) -> None:
    """No host is there: the job waits."""
    data = Data(fleet)
    fleet.coordinator()
    model = ("run", "--model", "gbt", "--mode", "oracle", "--name", "mine")
    assert data.verb(*model, "--data", f"prepared={data.folder}").returncode == 0
    (title,) = data.listed()
    shell = {"_FLEET_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    tab = {"COMP_WORDS": "fleet run --data=prepared=pre", **shell}
    wait_until(
        lambda: process(environment=fleet.environment | tab).text()
        == f"plain,prepared={title[: len('prepared@') + 12]}\n",
        "what Tab offers, which has a deadline",
    )  # fmt: skip
    assert title.startswith("prepared@")
    assert fleet.ask(m.AskShow, job="mine")["data"] == {"prepared": title}
    again = data.verb(*model, "--data", f"prepared={title[:20]}", "--json").json()
    assert again["added"] is False, "the same data is the same job"
    assert data.verb("data", "rm", "prepared").returncode == 1
    assert data.verb("cancel", "mine", "--yes").returncode == 0
    assert data.verb("data", "rm", "prepared").returncode == 0
    assert data.listed() == []


def test_a_host_without_prepared_data_trains_on_what_the_fleet_carries(fleet: Fleet) -> None:
    """Then the fleet knows that it holds the dataset."""
    prepared, fleet.data = fleet.data, fleet.tmp / "nothing"
    fleet.data.mkdir()
    data = Data(fleet)
    fleet.coordinator()
    fleet.agent()
    model = ("run", "--model", "gbt", "--mode", "oracle", "--n-resamples", "20", "-H", "epochs=3")
    reads = ("--data", f"prepared={prepared}", "--name", "mine")
    assert data.verb(*model, *reads).returncode == 0
    assert fleet.until("mine", "completed")["host"] == "pi"
    wait_until(
        lambda: data.verb("data", "list", "--json").json()[0]["hosts"] == ["pi"],
        "the host's word that it holds the dataset",
    )


def test_fsck_tells_of_a_dataset_that_has_lost_a_blob_and_a_push_replaces_it(
    fleet: Fleet,
) -> None:
    data = Data(fleet)
    coordinator = fleet.coordinator()
    pushed = data.push()
    coordinator.stop()
    largest = max((data.state / "models").glob("*/*/*"), key=lambda one: one.stat().st_size)
    largest.unlink()
    checked = process("fsck", "--state", str(data.state), "--json")
    assert [one["kind"] for one in json.loads(checked.stdout)["findings"]] == ["missing"]
    coordinator.start()
    assert data.push()["digest"] == pushed["digest"]
    assert Path(largest).exists()
