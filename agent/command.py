"""The command line and environment of a trainer.

Nothing in them is taken from the wire unchecked: the module comes from the trainers that are
installed here, hyperparameters from their schema.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.trainer.config import TRAINERS, hyper_arguments
from broker.errors import BadMessage
from broker.messages import Assign

PACKAGE_ROOT: Final = Path(__file__).resolve().parent.parent
_PRIVATE: Final = "FLEET_"  # settings and credentials of the fleet are no business of a trainer


def trainer_command(
    assign: Assign, data: Path, work: Path, checkpoint: Path, threads: int, *, resume: bool
) -> list[str]:
    """Return the argument vector. Raises `BadMessage` when a hyperparameter is not acceptable.

    `checkpoint` is the folder that the trainer keeps its checkpoint in.
    """
    spec = TRAINERS.get(assign.model)
    if spec is None:
        raise BadMessage(f"this host has no trainer for {assign.model!r}")
    if any("," in host or host.startswith("-") for host in assign.train_hosts):
        raise BadMessage("train_hosts: a name has a comma in it, or starts with '-'")
    try:
        hyper = hyper_arguments(assign.model, assign.hyper)
    except ValueError as error:
        raise BadMessage(f"hyperparameters of {assign.model}: {error}") from error
    return [
        sys.executable,
        "-m",
        spec.module,
        f"--model={assign.model}",
        f"--mode={assign.mode}",
        f"--data={data}",
        f"--out-dir={work / 'out'}",
        f"--reports-dir={work / 'out'}",
        f"--split-recipe={assign.split_recipe}",
        f"--train-hosts={','.join(assign.train_hosts)}",
        f"--seed={assign.seed}",
        f"--n-resamples={assign.n_resamples}",
        f"--threads={threads}",
        f"--checkpoint-dir={checkpoint}",
        *(["--resume"] if resume else []),
        *hyper,
    ]


def trainer_environment(
    inherited: Mapping[str, str], gpu: int | None, threads: int
) -> dict[str, str]:
    """Return the environment: the slot's CUDA device alone, its threads, nothing of the fleet's."""
    environment = {
        name: value for name, value in inherited.items() if not name.startswith(_PRIVATE)
    }
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), environment.get("PYTHONPATH", "")]))
    return environment | {
        "CUDA_VISIBLE_DEVICES": "" if gpu is None else str(gpu),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # torch's deterministic mode asks for it
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }
