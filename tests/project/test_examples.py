"""The examples people copy are whole, and say everything that can be said."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from agent.programs.settings import ProgramSettings
from agent.service.settings import AgentSettings
from broker.system.settings import BrokerSettings
from broker.system.trainer_settings import OwnTrainer
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.service.settings import CoordinatorSettings, HomeAssistantSettings

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    BrokerSettings, CoordinatorSettings, HomeAssistantSettings, AgentSettings, ProgramSettings
)  # fmt: skip


def test_the_example_manifest_is_of_models_that_hold() -> None:
    """Six models in two modes, with their priorities and what they need."""
    plan = load_manifest(ROOT / "etc/training_manifest.toml.example", builtin_trainers())
    found = {
        (job.model, job.mode): (job.priority, job.needs.require_cuda, job.needs.prefer_cuda)
        for job in plan.jobs
    }
    expected = {
        "gbt": (100, False, False),
        "mlp": (90, False, False),
        "cnn": (80, False, True),
        "gru": (70, True, False),
        "lstm": (60, True, False),
        "transformer": (50, True, False),
    }
    assert found == {
        (model, mode): needs
        for model, needs in expected.items()
        for mode in ("realistic", "oracle")
    }


def test_the_commented_parts_of_the_example_manifest_are_right_as_well(tmp_path: Path) -> None:
    """Whoever removes the '#' of an example gets a manifest that loads."""
    text = (ROOT / "etc/training_manifest.toml.example").read_text("utf-8")
    bare = re.sub(r"(?m)^# (?=\[hosts\.|[a-z_.]+ = )", "", text)
    path = tmp_path / "plan.toml"
    path.write_text(bare, "utf-8")
    plan = load_manifest(path, builtin_trainers())
    assert set(plan.hosts) == {"attic-pi", "gaming-pc", "old-laptop"}
    gru = next(job for job in plan.jobs if job.name == "gru-realistic")
    assert gru.needs.min_vram_gib == 2
    assert gru.hyper["epochs"] == 60


def test_the_example_settings_are_exactly_the_settings() -> None:
    """No setting without documentation, no documentation without a setting, each of its type."""
    text = (ROOT / "etc/fleet.toml.example").read_text("utf-8")
    bare = tomllib.loads(re.sub(r"(?m)^#(?=[a-z_]+ = |\[)", "", text))
    for model in SETTINGS:
        assert set(bare[model.section]) == set(model.model_fields)
        model.model_validate(bare[model.section])
    assert set(bare) == {model.section for model in SETTINGS} | {"trainers"}
    own = bare["trainers"]["logreg"]
    assert set(own) == {field.alias or name for name, field in OwnTrainer.model_fields.items()}
    OwnTrainer.model_validate(own | {"schema": {}})


def test_the_example_settings_are_the_defaults() -> None:
    """What is shown behind the '#' is what holds without it, where there is one default."""
    text = (ROOT / "etc/fleet.toml.example").read_text("utf-8")
    bare = tomllib.loads(re.sub(r"(?m)^#(?=[a-z_]+ = |\[)", "", text))
    for model in SETTINGS:
        for name, field in model.model_fields.items():
            if isinstance(field.default, str | int | float | bool) and field.default != "":
                assert bare[model.section][name] == field.default, f"{model.section}.{name}"


@pytest.mark.system
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_demo_says_what_it_is_at_and_what_comes_next() -> None:
    """Each step that takes long is told before it begins; a section that it names is there."""
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],  # noqa: S607
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=60,
    ).stdout.replace("\\\n", " ").splitlines()  # fmt: skip
    said = [line for line in said if not line.startswith(("mkdir", "rm "))]
    long = (" -m venv ", " pip install ", " agent.trainer.simulate ", "/fleet up ")
    steps = [
        at for at, line in enumerate(said) if any(one in line for one in long) and not _echo(line)
    ]
    assert len(steps) == 5
    assert all(_echo(said[at - 1]) and said[at - 1].endswith('..."') for at in steps)
    hint = " ".join(said[steps[-1] + 1 :])
    (section,) = re.findall(r'README.md, "(.+?)"', hint)
    assert f"\n## {section}\n" in (ROOT / "README.md").read_text("utf-8")
    assert "fleet up --manifest" in hint


def _echo(line: str) -> bool:
    return line.startswith("echo") or " -m broker.wrapping " in line
