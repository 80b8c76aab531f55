"""A trainer of one's own: the example of docs/reference/trainers.md and etc/trainers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from broker.protocol.messages import AskTrainers
from coordinator.cli.results import fetch
from coordinator.client.contact import NotDone
from tests.harness.fleet import ROOT, Fleet, wait_until

BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> dict[str, str]:
    """The files of the section, by name; they are in `tmp_path`, too."""
    text = (ROOT / "docs" / "reference" / "trainers.md").read_text("utf-8")
    section = text[text.index("## Your own trainer") :]
    files = {block.split()[1].rstrip(","): block for block in BLOCK.findall(section)}
    for path in re.findall(r"\]\((\S+/etc/trainers/\S+)\)", section):
        files[Path(path).name] = (ROOT / "docs" / "reference" / path).read_text("utf-8")
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    assert set(files) == {
        "fleet.toml",
        "logreg.py",
        "logreg.schema.json",
        "training_manifest.toml",
    }
    return files


def trainers(example: dict[str, str], tmp_path: Path) -> str:
    """The section of the configuration, with the paths of this machine."""
    section = example["fleet.toml"].replace('"python3"', json.dumps(sys.executable))
    return section.replace("/opt/trainers/", f"{tmp_path}/")


def until_known(fleet: Fleet, model: str = "logreg") -> None:
    """Wait until the coordinator has heard of the trainer."""
    wait_until(lambda: model in fleet.ask(AskTrainers)["trainers"], "the trainer")


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
    with pytest.raises(NotDone) as unknown:
        fleet.reload()
    assert unknown.value.why["code"] == "manifest_errors"
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
    assert "train_hosts: no data of nobody" in row["error"]
    lab.stop()
    coordinator.stop()
    coordinator.start()
    assert fleet.reload()["changes"]["unchanged"] == 1, "its ledger knows the trainer"


BARE = """
import json, sys
from pathlib import Path

words = dict(word.split("=", 1) for word in sys.argv[1:])
(Path(words["--out-dir"]) / "model").write_text(" ".join(words))
print(json.dumps({"event": "result", "metrics": {"val_loss": 0.25, "auroc": 0.9}}))
"""
BARE_SCHEMA = "schema = {type = 'object', properties = {lr = {type = 'number'}}}"
BARE_PLAN = """schema_version = 1
[defaults]
split_recipe = "time"
[[jobs]]
model = "bare"
hyper.lr = 0.1
[[jobs]]
model = "gbt"
mode = "oracle"
"""


def bare_trainer(tmp_path: Path) -> str:
    """The section of a trainer that reads no telemetry; its script is there."""
    (tmp_path / "bare.py").write_text(BARE, "utf-8")
    command = json.dumps([sys.executable, str(tmp_path / "bare.py")])
    return f"[trainers.bare]\ncommand = {command}\n{BARE_SCHEMA}\n"


@pytest.mark.smoke
def test_a_trainer_without_telemetry_needs_neither_mode_nor_data(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.data = tmp_path / "nothing"
    fleet.data.mkdir()
    fleet.plan()
    fleet.coordinator()
    fleet.agent("lab", more=bare_trainer(tmp_path))
    until_known(fleet, "bare")
    fleet.manifest.write_text(BARE_PLAN.replace("lr = 0.1", "lr = 0.1\nmode = 'oracle'"), "utf-8")
    with pytest.raises(NotDone) as refused:
        fleet.reload()
    assert "bare reads no prepared data; leave this out" in str(refused.value.data)
    fleet.manifest.write_text(BARE_PLAN, "utf-8")
    fleet.reload()
    row = fleet.until("bare", "completed")
    assert (row["mode"], list(row["metrics"])) == ("", ["val_loss", "auroc"]), "in its order"
    got = fetch(fleet.client, "bare", tmp_path / "got")
    given = "--model --out-dir --reports-dir --seed --threads --lr"
    assert [path.read_text() for path in got.files] == [given]
    (host,) = fleet.why("gbt-oracle")["hosts"]
    assert [one["code"] for one in host["reasons"]] == ["no-data"]


@pytest.mark.smoke
def test_an_edited_script_is_a_new_job_and_runs_once(fleet: Fleet, tmp_path: Path) -> None:
    fleet.plan()
    fleet.coordinator()
    fleet.agent("lab", more=bare_trainer(tmp_path))
    until_known(fleet, "bare")
    fleet.manifest.write_text(BARE_PLAN.partition('[[jobs]]\nmodel = "gbt"')[0], "utf-8")
    fleet.reload()
    before = fleet.until("bare", "completed")
    fleet.reload()
    script = tmp_path / "bare.py"
    script.write_text(script.read_text("utf-8").replace("0.25", "0.125"), "utf-8")
    known = fleet.ask(AskTrainers)["trainers"]["bare"]["version"]
    wait_until(lambda: fleet.ask(AskTrainers)["trainers"]["bare"]["version"] != known, "the edit")
    fleet.requeue(before["job_id"])
    (host,) = fleet.why(before["job_id"])["hosts"]
    assert [one["code"] for one in host["reasons"]] == ["other-version"]
    assert fleet.reload()["changes"]["replaced"] == 1
    done = fleet.until("bare", lambda row: row["metrics"] == {"val_loss": 0.125, "auroc": 0.9})
    assert done["job_id"] != before["job_id"]
    assert fleet.reload()["changes"]["unchanged"] == 1
