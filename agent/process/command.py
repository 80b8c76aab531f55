"""The command line and environment of a trainer.

Nothing in them is taken from the wire unchecked: the program comes from the trainers that are
installed here or named in this host's configuration, hyperparameters from their schema.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.errors import BadMessage
from broker.programs.datasets import PREPARED
from broker.protocol.hyperschema import check_hyper
from broker.protocol.messages import Assign
from broker.system.import_blocks import NO_PLUGINS
from broker.system.trainer_settings import OwnTrainer

PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
_PRIVATE: Final = "FLEET_"  # settings and credentials of the fleet are no business of a trainer
# Where libraries keep what they work out; unless told, in the home of whoever runs them. Not in the
# job's work folder, where each job would pay for it: matplotlib looks at every font of the system.
_CACHES: Final = {
    "CUDA_CACHE_PATH": "cuda",
    "MPLCONFIGDIR": "matplotlib",
    "PYTORCH_KERNEL_CACHE_PATH": "torch",
    "TRAINER_SEEN_FOLDER": "seen",  # agent/trainer/data/seen_files.py
    "TRITON_CACHE_DIR": "triton",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trainer finds prepared data, works, and keeps its checkpoint.

    `data` is the host's folder, or that of the dataset that its job calls `PREPARED`.
    """

    data: Path | None
    work: Path
    checkpoint: Path


def trainer_command(
    assign: Assign, own: Mapping[str, OwnTrainer], place: Place, threads: int, *, resume: bool
) -> list[str]:
    """Return the argument vector; `own` are the trainers of this host's configuration.

    Raises `BadMessage` when there is no such trainer, or a hyperparameter is not acceptable.
    """
    taken = () if assign.model in own else (PREPARED,)
    if assign.inputs or any(one.name not in taken for one in assign.data):
        raise BadMessage(f"{assign.model} takes no dataset or input of these names")
    program, flags = _program(assign, own.get(assign.model))
    resumable = is_resumable(assign, own)
    command = [
        *program,
        f"--model={assign.model}",
        f"--out-dir={place.work / 'out'}",
        f"--reports-dir={place.work / 'out'}",
        f"--seed={assign.seed}",
        f"--threads={threads}",
        *(_of_telemetry(assign, place.data) if reads_telemetry(assign, own) else ()),
        *([f"--checkpoint-dir={place.checkpoint}"] if resumable else []),
        *(["--resume"] if resume and resumable else []),
        *flags,
    ]
    if any("\0" in word for word in command):  # some systems would take the rest for another word
        raise BadMessage(f"parameters of {assign.model}: one has a NUL in it")
    return command


def modules_of(assign: Assign, own: Mapping[str, OwnTrainer]) -> Sequence[str]:
    """Return the modules whose import is most of what a short job of this trainer costs."""
    from agent.trainer.common.config import TRAINERS  # a host without jobs needs none

    trainer = own.get(assign.model)
    return trainer.preload if trainer is not None else TRAINERS[assign.model].modules


def is_resumable(assign: Assign, own: Mapping[str, OwnTrainer]) -> bool:
    """Whether the trainer of an assignment understands checkpoints, as all that are built in do."""
    if assign.program is not None:
        return assign.program.resumable
    trainer = own.get(assign.model)
    return trainer is None or trainer.resumable


def reads_telemetry(assign: Assign, own: Mapping[str, OwnTrainer]) -> bool:
    """Whether an assignment's trainer reads prepared telemetry, as all that are built in do."""
    trainer = own.get(assign.model)
    return assign.program is None and (trainer is None or trainer.telemetry)


def _of_telemetry(assign: Assign, data: Path | None) -> Iterator[str]:
    """Yield what a trainer is told that reads prepared data."""
    from agent.trainer.common.config import joined_hosts  # a host without jobs needs none
    from agent.trainer.data.schema import SCHEMA_FILE

    if data is None:
        raise BadMessage("this agent has no data folder")
    if assign.data and not (data / SCHEMA_FILE).is_file():
        raise BadMessage(
            f"its data.{PREPARED}, the dataset {assign.data[0].digest[:12]}, is no prepared data; "
            "make some by `python -m agent.trainer.prepare`, then `fleet data push` it"
        )
    if not assign.mode:
        raise BadMessage(f"{assign.model} reads prepared data here, and the job has no mode")
    if any(host.startswith("-") for host in assign.train_hosts):
        raise BadMessage("train_hosts: a name starts with '-'")
    yield f"--mode={assign.mode}"
    yield f"--data={data}"
    yield f"--split-recipe={assign.split_recipe}"
    folds = {"--folds": assign.folds, "--fold": assign.fold}
    yield from (f"{flag}={number}" for flag, number in folds.items() if number)
    yield f"--train-hosts={joined_hosts(assign.train_hosts)}"
    yield f"--n-resamples={assign.n_resamples}"


def _program(assign: Assign, trainer: OwnTrainer | None) -> tuple[Sequence[str], list[str]]:
    """Return the program and its hyperparameters: one argument each, so that none is an option."""
    from agent.trainer.common import config  # a host without jobs needs none

    if trainer is not None:
        command, schema = trainer.command, trainer.hyper_schema
    elif assign.model in config.TRAINERS:
        command = (sys.executable, "-m", config.TRAINERS[assign.model].module)
        schema = config.schema_of(assign.model)
    else:
        raise BadMessage(f"this host has no trainer for {assign.model!r}")
    for key, message in check_hyper(assign.hyper, schema, assign.model):
        raise BadMessage(f"parameters of {assign.model}: {key}: {message}")
    return command, [
        f"{config.flag_of(key)}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in sorted(assign.hyper.items())
    ]


def trainer_environment(
    inherited: Mapping[str, str], gpu: int | None, threads: int, caches: Path
) -> dict[str, str]:
    """Return the environment: the slot's CUDA device alone, its threads, nothing of the fleet's.

    `caches` is the folder for what libraries keep; who runs the agent may have named others.
    """
    environment = {name: str(caches / folder) for name, folder in _CACHES.items()} | {
        name: value
        for name, value in inherited.items()
        if not name.startswith(_PRIVATE) and (name, value) != NO_PLUGINS
    }
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), environment.get("PYTHONPATH", "")]))
    return environment | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the driver's numbers
        "CUDA_VISIBLE_DEVICES": "" if gpu is None else str(gpu),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # torch's deterministic mode asks for it
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",  # on Windows, too; its output is read so
    }
