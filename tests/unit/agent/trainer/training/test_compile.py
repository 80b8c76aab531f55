"""`--compile true`: the same training by torch.compile's code, or a word why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from agent.trainer.common import config
from tests.harness import forked
from tests.unit.agent.trainer.training.test_resume import AT_STEP

pytestmark = pytest.mark.system

FLAGS = ("--mode=oracle", "--threads=1", "--n-resamples=20", "--epochs=2", "--dropout=0")
SMALL = {
    "mlp": ("--hidden=16", "--batch-size=32"),
    "cnn": ("--hidden=8", "--batch-size=32"),
    "transformer_ssl": ("--heads=2", "--head-width=4", "--layers=1", "--batch-size=16"),
}
# The real program, whose torch finds no compiler.
WITHOUT_COMPILER = """
import sys
from torch._inductor import config
from agent.trainer import run
config.cpp.cxx = (None, "/nowhere/g++")
sys.exit(run.main(sys.argv[1:]))
"""
needs_compiler = pytest.mark.skipif(
    not shutil.which("g++") or os.name != "posix", reason="there is no C++ compiler"
)


def train(
    model: str,
    data: Path,
    out: Path,
    *flags: str,
    at_step: int | None = None,
) -> tuple[int, list[dict[str, Any]]]:
    """Run the real program; its exit code and its events."""
    module = config.TRAINERS[model].module
    program = (
        ["-m", module] if at_step is None else ["-c", AT_STEP, module, str(at_step), "SIGTERM"]
    )
    done = subprocess.run(
        [sys.executable, *program, f"--model={model}", f"--data={data}", f"--out-dir={out}",
         *FLAGS, *SMALL[model], *flags],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, check=False, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def training_of(out: Path, model: str) -> Any:
    """Return what the report says of the training."""
    return json.loads((out / f"{model}_oracle_train.json").read_text("utf-8"))["training"]


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("model", SMALL)
def test_compiled_it_learns_the_same(model: str, simulated: Path, tmp_path: Path) -> None:
    assert train(model, simulated, tmp_path / "plain")[0] == config.EXIT_DONE
    for name in ("one", "two"):
        code, events = train(model, simulated, tmp_path / name, "--compile=true")
        assert code == config.EXIT_DONE, events
    plain, compiled = (training_of(tmp_path / name, model) for name in ("plain", "one"))
    assert (plain["compiled"], compiled["compiled"]) == (False, True)
    for before, after in zip(plain["curve"], compiled["curve"], strict=True):
        assert after == pytest.approx(before, rel=1e-3)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("plain", "one")]
    assert weights[0].keys() == weights[1].keys()
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.slow
@needs_compiler
def test_a_compiled_training_is_resumed_to_the_same_bytes(simulated: Path, tmp_path: Path) -> None:
    flags = ("--compile=true", f"--checkpoint-dir={tmp_path / 'kept'}", "--dropout=0.3")
    assert train("cnn", simulated, tmp_path / "whole", *flags)[0] == config.EXIT_DONE
    code, _ = train("cnn", simulated, tmp_path / "out", *flags, at_step=5)
    assert code == config.EXIT_INTERRUPTED
    code, events = train("cnn", simulated, tmp_path / "out", *flags, "--resume")
    assert code == config.EXIT_DONE, events
    assert training_of(tmp_path / "out", "cnn")["elsewhere"] == []
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_where_nothing_compiles_the_training_goes_on_without(
    simulated: Path, tmp_path: Path
) -> None:
    uncompiled = {}
    for name, flags in (("plain", ()), ("out", ("--compile=true",))):
        out = tmp_path / name
        command = [
            "-c", WITHOUT_COMPILER, "--model=mlp", f"--data={simulated}", f"--out-dir={out}",
            *FLAGS, *SMALL["mlp"], *flags,
        ]  # fmt: skip
        done = forked.run(command)
        assert done.returncode == config.EXIT_DONE, done.stderr
        told = [json.loads(line).get("message", "") for line in done.stdout.splitlines()]
        uncompiled[name] = any("not compiled" in message for message in told)
        assert not training_of(out, "mlp")["compiled"]
    assert uncompiled == {"plain": False, "out": True}
    weights = "model.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (tmp_path / "plain" / weights).read_bytes()
