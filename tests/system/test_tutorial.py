"""The tutorials about programs, as they stand: two hosts, of which one lets programs in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.fleet import ROOT, Fleet
from tests.harness.verbs import Done, process

pytestmark = pytest.mark.system
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


class Reader:
    """Somebody who does what the tutorials say, in a folder of their own."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self.folder = fleet, fleet.tmp / "reader"
        self.folder.mkdir()

    def saves(self, tutorial: str, *names: str) -> None:
        """Save the first scripts and TOML files of a tutorial under these names."""
        text = (ROOT / "docs" / "tutorial" / tutorial).read_text("utf-8")
        found = [body for kind, body in BLOCK.findall(text) if kind in {"python", "toml"}]
        for name, body in zip(names, found, strict=False):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(body, "utf-8")

    def runs(self, name: str) -> None:
        subprocess.run(
            [sys.executable, name], check=True, cwd=self.folder, capture_output=True, timeout=120
        )

    def says(self, *words: str | Path) -> Done:
        told = (*map(str, words), "--timeout=60", "--json")
        return process(*told, environment=self._fleet.environment)


def test_the_tutorials_do_what_they_say(fleet: Fleet) -> None:
    """Data and programs are pushed; jobs of a plan run in their order, where they are let in."""
    reader = Reader(fleet)
    fleet.plan()
    fleet.coordinator()
    fleet.agent("pi", more="[programs]\nunsigned = true\n")
    fleet.agent("lap")

    shapes, finetune = reader.folder / "shapes", reader.folder / "finetune"
    reader.saves("own-program.md", "make_images.py", "shapes/train.py", "shapes/program.toml")
    reader.runs("make_images.py")
    assert reader.says("data", "push", "images", reader.folder / "images").json()["files"] == 3000
    run = ("run", shapes, "--data", "images=images")
    row = reader.says(*run, "--lr", "0.005", "--wait").json()
    assert (row["host"], row["metrics"]["accuracy"] > 0.8) == ("pi", True)
    assert "--lr" in reader.says(*run, "--lr", "5").stderr
    job_id = reader.says(*run, "--lr", "0.002", "--on", "lap").json()["job_id"]
    why = reader.says("why", job_id).stdout
    assert "no-programs" in why

    # One name alone is no folder, though the command runs where there is one of that name.
    assert reader.says("run", shapes, "--data", "images=docs").returncode
    assert reader.says("run", "docs").returncode
    assert [row["name"] for row in reader.says("data", "list").json()] == ["images"]
    assert [row["name"] for row in reader.says("programs", "list").json()] == ["shapes"]

    names = ("make_rare_images.py", "finetune/finetune.py", "finetune/program.toml")
    reader.saves("fine-tuning.md", *names, "transfer.toml")
    reader.runs("make_rare_images.py")
    reader.says("data", "push", "rare-images", reader.folder / "rare-images").json()
    reader.says("push", finetune).json()
    fleet.manifest.write_text((reader.folder / "transfer.toml").read_text("utf-8"), "utf-8")
    fleet.reload()
    tuned, plain = (fleet.until(name, "completed") for name in ("tuned", "from-scratch"))
    assert {tuned["host"], plain["host"]} == {"pi"}
    assert tuned["metrics"]["accuracy"] > plain["metrics"]["accuracy"], "it knew something before"
