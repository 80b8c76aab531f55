"""`--compile true`: the same training by torch.compile's code, or a word why not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from agent.trainer.common import config
from tests.harness import forked
from tests.harness.trainers import files_of, report_in
from tests.unit.agent.trainer.training.test_resume import interrupted, train

pytestmark = pytest.mark.system

FEW = ("--epochs=2", "--dropout=0")
SMALL = {
    "mlp": ("--batch-size=32",),
    "cnn": ("--batch-size=32",),
    "transformer_ssl": ("--layers=1",),
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


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("model", SMALL)
def test_compiled_it_learns_the_same(model: str, simulated: Path, tmp_path: Path) -> None:
    flags = (*FEW, *SMALL[model])
    assert train(model, simulated, tmp_path / "plain", *flags)[0] == config.EXIT_DONE
    for name in ("one", "two"):
        code, events = train(model, simulated, tmp_path / name, *flags, "--compile=true")
        assert code == config.EXIT_DONE, events
    plain, compiled = (report_in(tmp_path / name)["training"] for name in ("plain", "one"))
    assert (plain["compiled"], compiled["compiled"]) == (False, True)
    for before, after in zip(plain["curve"], compiled["curve"], strict=True):
        assert after == pytest.approx(before, rel=1e-3)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("plain", "one")]
    assert weights[0].keys() == weights[1].keys()
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.slow
@needs_compiler
def test_a_compiled_training_is_resumed_to_the_same_bytes(simulated: Path, tmp_path: Path) -> None:
    flags = ("--compile=true", "--epochs=2", "--dropout=0.3", *SMALL["cnn"])
    assert train("cnn", simulated, tmp_path / "whole", *flags)[0] == config.EXIT_DONE
    whole = files_of(tmp_path / "whole")
    assert interrupted("cnn", simulated, tmp_path, {"at_step": 5}, flags=flags) == whole
    assert report_in(tmp_path / "out")["training"]["elsewhere"] == []


def test_where_nothing_compiles_the_training_goes_on_without(
    simulated: Path, tmp_path: Path
) -> None:
    uncompiled = {}
    for name, flags in (("plain", ()), ("out", ("--compile=true",))):
        out = tmp_path / name
        command = [
            "-c", WITHOUT_COMPILER, "--model=mlp", "--mode=oracle", f"--data={simulated}",
            f"--out-dir={out}", "--threads=1", "--hidden=16", *FEW, *SMALL["mlp"], *flags,
        ]  # fmt: skip
        done = forked.run(command)
        assert done.returncode == config.EXIT_DONE, done.stderr
        told = [json.loads(line).get("message", "") for line in done.stdout.splitlines()]
        uncompiled[name] = any("not compiled" in message for message in told)
        assert not report_in(out)["training"]["compiled"]
    assert uncompiled == {"plain": False, "out": True}
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in uncompiled]
    assert weights[0] == weights[1]
