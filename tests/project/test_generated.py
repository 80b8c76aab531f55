"""Files that are made from the code are current, and say what the code says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from broker.protocol.topic_table import Kind

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.system
@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("broker.protocol.asyncapi", "docs/reference/asyncapi.yaml"),
        ("agent.trainer.common.config", "coordinator/manifest/trainers.json"),
        ("coordinator.cli.reference", "docs/reference/cli.md"),
        ("agent.trainer.evaluation.report_schema", "docs/reference/report.schema.json"),
    ],
)
def test_a_generated_file_is_current(module: str, file: str) -> None:
    """`make generate` would change nothing."""
    made = subprocess.run(
        [sys.executable, "-m", module], capture_output=True, check=True, timeout=60, cwd=ROOT
    )
    current = (ROOT / file).read_bytes()
    assert made.stdout == current, f"{file} is out of date: run `make generate`"


@pytest.mark.system
@pytest.mark.parametrize("broker", ["mosquitto", "rabbitmq", "nats"])
def test_the_brokers_files_are_current(broker: str, tmp_path: Path) -> None:
    """etc/ has what the command writes for a fleet that names nobody yet."""
    command = ["broker", "config", broker, "--root", "fleet", "--at", f"/etc/{broker}"]
    subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *command, "-o", str(tmp_path / "out")],
        capture_output=True, check=True, timeout=60, cwd=ROOT,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    current = {path.name: path.read_bytes() for path in (ROOT / "etc" / broker).iterdir()}
    assert made == current, f"etc/{broker} is out of date: run `make generate`"


def test_every_kind_of_topic_is_a_channel() -> None:
    """Nobody adds a topic without describing it."""
    document = yaml.safe_load((ROOT / "docs/reference/asyncapi.yaml").read_text("utf-8"))
    assert set(document["channels"]) == {kind.value.replace("/", ".") for kind in Kind}


def test_every_reference_of_the_document_leads_somewhere() -> None:
    """A reader's tool can resolve the whole file."""
    document = yaml.safe_load((ROOT / "docs/reference/asyncapi.yaml").read_text("utf-8"))

    def follow(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(reference := node.get("$ref"), str):
                target: object = document
                for part in reference.removeprefix("#/").split("/"):
                    assert isinstance(target, dict), reference
                    target = target[part]
            for value in node.values():
                follow(value)
        elif isinstance(node, list):
            for value in node:
                follow(value)

    follow(document)


def test_every_topic_is_in_the_protocol() -> None:
    """docs/reference/protocol.md lists each address of the document."""
    document = yaml.safe_load((ROOT / "docs/reference/asyncapi.yaml").read_text("utf-8"))
    protocol = (ROOT / "docs/reference/protocol.md").read_text("utf-8")
    for channel in document["channels"].values():
        address = channel["address"]
        for name, shown in {
            "{host}": "<host>",
            "{node}": "<node>",
            "{user}": "<user>",
            "{client}": "<client>",
            "{job_id}": "<job_id>",
            "{artifact_id}": "<sha256>",
            "{index}": "<index>",
        }.items():
            address = address.replace(name, shown)
        assert f"`{address}`" in protocol or f"…/{address.rsplit('/', 1)[1]}`" in protocol
