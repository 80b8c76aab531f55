"""A trainer's command line and environment."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.process.command import Place, trainer_command, trainer_environment
from broker.errors import BadMessage
from broker.protocol.messages import Assign, Input
from broker.system.trainer_settings import OwnTrainer
from tests.harness.datasets import Made


def assign(**more: Any) -> Assign:
    fields = {"name": "n", "model": "gbt", "mode": "oracle", "instance": "i"} | more
    return Assign(id="a", job_id="1b" * 32, attempt=1, **fields)


@pytest.mark.system
def test_the_command_is_ours_and_the_values_are_checked(tmp_path: Path) -> None:
    """J8: a message chooses a trainer and hyperparameters, nothing else."""
    place = Place(tmp_path, tmp_path, tmp_path)
    command = trainer_command(assign(hyper={"lr": 0.1, "epochs": 3}), {}, place, 2, resume=True)
    assert command[1:3] == ["-m", "agent.trainer.run"]
    assert command[-2:] == ["--epochs=3", "--lr=0.1"]
    for bad in (
        {"model": "os.system"}, {"hyper": {"--out-dir": "/etc"}}, {"hyper": {"lr": "1; rm"}},
        {"hyper": {"epochs": 10**9}}, {"train_hosts": ("--data",)},
    ):  # fmt: skip
        with pytest.raises(BadMessage):
            trainer_command(assign(**bad), {}, place, 2, resume=False)
    known = subprocess.run(
        [*command, "--help"], capture_output=True, timeout=60, check=False, cwd=tmp_path
    )
    assert known.returncode == 0, known.stderr


def test_a_trainer_sees_its_own_gpu_and_nothing_of_the_fleet() -> None:
    inherited = {"PATH": "/bin", "FLEET_BROKER": "x", "FLEET_OPERATOR_KEY": "s3cret"}
    caches = Path("/var/cache")
    environment = trainer_environment(inherited, 3, 2, caches)
    assert "s3cret" not in environment.values()
    assert not [name for name in environment if name.startswith("FLEET_")]
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "3 is another GPU"
    assert trainer_environment(inherited, None, 2, caches)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["PYTHONUTF8"] == "1", "its output is read so, on Windows, too"
    assert environment["MPLCONFIGDIR"] == str(caches / "matplotlib")
    mine = trainer_environment(inherited | {"MPLCONFIGDIR": "/mine"}, None, 2, caches)
    assert mine["MPLCONFIGDIR"] == "/mine"


def test_a_trainer_is_given_the_only_dataset_that_it_knows(tmp_path: Path) -> None:
    place, made = Place(tmp_path, Path("/work"), Path("/kept")), Made({"a": b"x"})
    prepared = made.dataset.model_copy(update={"name": "prepared"})
    with pytest.raises(BadMessage, match=prepared.digest[:12]) as refusal:
        trainer_command(assign(data=(prepared,)), {}, place, 2, resume=False)
    assert str(tmp_path) not in str(refusal.value), "the agent's own store is nobody's to fill"
    (tmp_path / "feature_schema_v1.json").touch()
    command = trainer_command(assign(data=(prepared,)), {}, place, 2, resume=False)
    assert f"--data={tmp_path}" in command
    given = Input(name="weights", artifact_id="5a" * 32, size_bytes=1)
    mine = OwnTrainer(command=("mine",), schema={})
    for own, brought in (
        ({}, {"data": (made.dataset,)}), ({}, {"data": (prepared, made.dataset)}),
        ({}, {"inputs": (given,)}), ({"gbt": mine}, {"data": (prepared,)}),
    ):  # fmt: skip
        with pytest.raises(BadMessage, match="dataset or input"):
            trainer_command(assign(**brought), own, place, 2, resume=False)
