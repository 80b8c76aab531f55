"""A trainer of one's own: the worked example of docs/reference/trainers.md, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.protocol.messages import AskTrainers
from coordinator.cli.get import fetch
from coordinator.client.contact import NotDone
from tests.harness.fleet import ROOT, Fleet, Program, wait_until

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> dict[str, str]:
    """The blocks of the section, by the name of the file in each; the files are in `tmp_path`."""
    text = (ROOT / "docs" / "reference" / "trainers.md").read_text("utf-8")
    section = text[text.index("## Your own trainer") :]
    blocks = {}
    for language, block in BLOCK.findall(section):
        name = json.loads(block)["title"] if language == "json" else block.split()[1].rstrip(",")
        blocks[name] = block
        (tmp_path / name).write_text(block, "utf-8")
    assert set(blocks) == {
        "fleet.toml",
        "logreg.py",
        "logreg.schema.json",
        "training_manifest.toml",
    }
    return blocks


def trainers(example: dict[str, str], tmp_path: Path) -> str:
    """The section of the configuration, with the paths of this machine."""
    section = example["fleet.toml"].replace('"python3"', json.dumps(sys.executable))
    return section.replace("/opt/trainers/", f"{tmp_path}/")


def until_known(fleet: Fleet) -> None:
    """Wait until the coordinator has heard of the trainer."""
    wait_until(lambda: "logreg" in fleet.ask(AskTrainers)["trainers"], "the trainer")


def test_the_example_runs_by_hand(example: dict[str, str], data: Path, tmp_path: Path) -> None:
    """It needs no fleet; the same seed gives the same bytes."""
    made = []
    for name in ("a", "b"):
        out = tmp_path / name
        done = subprocess.run(
            [sys.executable, "logreg.py", "--mode=oracle", f"--data={data}", f"--out-dir={out}"],
            capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        made.append((out / "model.json").read_bytes())
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["metrics"]["auroc"] > 0.6
    assert made[0] == made[1]


@pytest.mark.smoke
def test_the_example_runs_in_the_fleet(
    fleet: Fleet, example: dict[str, str], tmp_path: Path
) -> None:
    """Announced, checked at reload, matched to its host, trained, stored; known after a restart.

    What the trainer cannot do (exit code 2) is not asked again: the job fails with its words.
    """
    fleet.plan()
    coordinator = fleet.coordinator()
    fleet.agent("plain")
    fleet.manifest.write_text(example["training_manifest.toml"], "utf-8")
    with pytest.raises(NotDone, match="manifest has errors") as unknown:
        fleet.reload()
    assert "unknown model 'logreg'" in str(unknown.value.data)

    lab = fleet.agent("lab", more=trainers(example, tmp_path))
    until_known(fleet)
    wrong = example["training_manifest.toml"].replace("alpha", "alfa")
    fleet.manifest.write_text(wrong, "utf-8")
    with pytest.raises(NotDone) as typo:
        fleet.reload()
    assert "did you mean 'alpha'?" in str(typo.value.data)
    fleet.manifest.write_text(example["training_manifest.toml"], "utf-8")
    fleet.reload()
    row = fleet.until("logreg-oracle", "completed")
    assert row["host"] == "lab"
    assert row["metrics"]["auroc"] > 0.6

    manifest = example["training_manifest.toml"] + 'train_hosts = ["nobody"]\n'
    fleet.manifest.write_text(manifest, "utf-8")
    fleet.reload()
    row = fleet.until("logreg-oracle", "failed")
    assert row["attempt"] == 1
    assert "one part has a single class" in row["error"]
    lab.stop()
    coordinator.stop()
    coordinator.start()
    assert fleet.reload()["changes"]["unchanged"] == 1, "its ledger knows the trainer"


AWKWARD = """
import json, sys
from collections.abc import Callable
from pathlib import Path

out = Path(next(word.removeprefix("--out-dir=") for word in sys.argv if "--out-dir=" in word))
for name in {names}:
    (out / name).write_text(name)
print(json.dumps({{"event": "result", "metrics": {{}}}}))
"""


@pytest.fixture
def lab(fleet: Fleet, example: dict[str, str], tmp_path: Path) -> Callable[[list[str]], Program]:
    """`lab(names)`: a host whose trainer writes files of these names; the job is in the plan."""

    def start(names: list[str]) -> Program:
        (tmp_path / "logreg.py").write_text(AWKWARD.format(names=names), "utf-8")
        fleet.plan()
        fleet.coordinator()
        agent = fleet.agent("lab", more=trainers(example, tmp_path))
        until_known(fleet)
        fleet.manifest.write_text(example["training_manifest.toml"], "utf-8")
        fleet.reload()
        return agent

    return start


@pytest.mark.skipif(os.name != "posix", reason="its system cannot store them")
def test_whatever_its_files_are_called_the_result_can_be_fetched(
    fleet: Fleet, lab: Callable[[list[str]], Program], tmp_path: Path
) -> None:
    names = ["epoch=3:loss=0.1.ckpt", "Model.bin", "model.bin", "aux", "a."]
    lab(names)
    fleet.until("logreg-oracle", "completed")
    got = fetch(fleet.client, "logreg-oracle", tmp_path / "got")
    assert {path.name: path.read_text() for path in got.files} == {name: name for name in names}


@pytest.mark.skipif(os.name != "posix", reason="its system cannot store them")
def test_what_no_bundle_may_hold_fails_the_job_and_is_kept(
    fleet: Fleet, lab: Callable[[list[str]], Program]
) -> None:
    """At once, since another attempt is no better; the owner finds it where the reason says."""
    agent = lab(["model", "a\nb"])
    row = fleet.until("logreg-oracle", "failed")
    assert row["attempt"] == 1
    kept = Path(row["error"].rpartition("is kept on this host for 7 days: ")[2])
    agent.stop()
    agent.start()
    assert (kept / "out" / "model").read_text() == "model"
    assert kept.parent == fleet.tmp / "lab" / "refused"
