"""Which hyperparameters carry over to other hosts: on simulated servers and half of the real hosts.

    python -m benchmarks.search --servers DIR --motion DIR --simulated DIR [--models gbt,cnn]
        [--out FOLDER] [--jobs 2]

Each folder is one that prepare wrote. Of the hosts with labels, in the order of their names, every
second one is searched on, from the first on; the others are left for the figures that are
published. A candidate's figure is the mean over the data sets of its mean AUROC over folds of hosts
and modes. Runs that are in the output folder already are not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from agent.trainer.common.config import MODES, TRAINERS, flag_of, joined_hosts
from agent.trainer.data.schema import SCHEMA_FILE
from benchmarks.common import table, words

# Data set: into how many folds its hosts are dealt.
FOLDS: Final = {"servers": 4, "motion": 2, "simulated": 2}

# What was the default before, where that is another one now.
BEFORE: Final[Mapping[str, Mapping[str, float]]] = {
    "gbt": {"colsample": 0.5},
    "mlp": {"lr": 0.005, "batch_size": 1536, "hidden": 64},
    "cnn": {"hidden": 48, "augment": 0},
    "gru": {"dropout": 0.5, "augment": 0},
    "lstm": {"augment": 0},
    "transformer": {"heads": 4, "head_width": 16},
    "transformer_ssl": {"epochs": 30},
}
# What each candidate changes of it.
CANDIDATES: Final[Mapping[str, Sequence[Mapping[str, float]]]] = {
    "gbt": (
        {},
        {"max_depth": 3},
        {"max_depth": 3, "colsample": 0.2},
        {"colsample": 0.2},
        {"colsample": 0.1},
        {"colsample": 0.2, "subsample": 0.4},
        {"colsample": 0.2, "lr": 0.03},
        {"lr": 0.02, "patience": 100},
        {"min_child_weight": 20.0, "reg_lambda": 10.0},
        {"max_depth": 3, "min_child_weight": 20.0, "reg_lambda": 10.0},
        {"subsample": 0.4},
        {"class_weight": 0.0},
    ),
    "mlp": (
        {},
        {"lr": 0.001},
        {"hidden": 16},
        {"hidden": 256},
        {"weight_decay": 1.0},
        {"weight_decay": 10.0},
        {"dropout": 0.2},
        {"lr": 0.001, "batch_size": 256},
        {"lr": 0.001, "batch_size": 256, "hidden": 256},
        {"lr": 0.002, "batch_size": 256, "hidden": 256},
        {"class_weight": 0.0},
        {"lr": 0.001, "batch_size": 256, "hidden": 256, "augment": 1},
    ),
    "cnn": ({}, {"lr": 2.5e-4}, {"dropout": 0.2}, {"hidden": 16}, {"hidden": 16, "augment": 1}),
    "gru": (
        {},
        {"dropout": 0.2},
        {"hidden": 16},
        {"hidden": 16, "dropout": 0.2},
        {"dropout": 0.2, "augment": 1},
    ),
    "lstm": (
        {},
        {"dropout": 0.2},
        {"hidden": 16},
        {"hidden": 16, "dropout": 0.2},
        {"augment": 1},
    ),
    "transformer": (
        {},
        {"lr": 2.5e-4},
        {"dropout": 0.2},
        {"heads": 2, "head_width": 8},
        {"heads": 2, "head_width": 8, "dropout": 0.2},
        {"heads": 2, "head_width": 8, "augment": 1},
    ),
    "transformer_ssl": (
        {},
        {"heads": 2, "head_width": 8},
        {"layers": 1},
        {"mask_fraction": 0.2},
        {"mask_fraction": 0.6},
        {"epochs": 10},
        {"epochs": 10, "mask_fraction": 0.6},
        {"epochs": 10, "heads": 2, "head_width": 8},
    ),
}


@dataclass(frozen=True)
class Run:
    """One fold of one candidate."""

    model: str
    candidate: Mapping[str, float]
    data_set: str
    data: Path
    hosts: str
    mode: str
    fold: int

    def auroc(self, out: Path) -> float:
        """Return its AUROC; trained in a folder of its own under `out`, if it is not there."""
        hyper = TRAINERS[self.model](**self.candidate).model_dump()
        told = [self.model, hyper, str(self.data), self.hosts, self.mode, self.fold]
        folder = out / hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        path = folder / f"{self.model}_{self.mode}_train.json"
        if not path.exists():
            options = [f"{flag_of(name)}={value}" for name, value in self.candidate.items()]
            done = subprocess.run(
                [
                    sys.executable, "-m", TRAINERS[self.model].module, f"--model={self.model}",
                    f"--mode={self.mode}", f"--data={self.data}", f"--out-dir={folder}",
                    "--split-recipe=folds", f"--folds={FOLDS[self.data_set]}",
                    f"--fold={self.fold}", f"--train-hosts={self.hosts}", "--threads=1",
                    "--n-resamples=10", *options,
                ],
                check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"{told}: {''.join(done.stdout.splitlines()[-1:])}")
        auroc: float = json.loads(path.read_text("utf-8"))["metrics"]["auroc"]
        return auroc


def searched(hosts: Iterable[str]) -> list[str]:
    """Return the hosts that hyperparameters are chosen on."""
    return sorted(hosts)[::2]


def left_out(hosts: Iterable[str]) -> list[str]:
    """Return the others."""
    return sorted(hosts)[1::2]


def runs_of(model: str, candidate: Mapping[str, float], data: Mapping[str, Path]) -> Iterator[Run]:
    """Yield the runs of a candidate."""
    for data_set, folder in data.items():
        hosts = json.loads((folder / SCHEMA_FILE).read_text("utf-8"))["hosts"]
        hosts = joined_hosts(searched(hosts))
        for mode in MODES:
            for fold in range(1, FOLDS[data_set] + 1):
                yield Run(model, candidate, data_set, folder, hosts, mode, fold)


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is not there, and print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in FOLDS:
        parser.add_argument(f"--{name}", type=Path, required=True, help="folder of prepare")
    parser.add_argument("--models", type=words, default=list(CANDIDATES))
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, a thread each")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "fleet-search")
    arguments = parser.parse_args(argv)
    data = {name: getattr(arguments, name) for name in FOLDS}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for model in arguments.models:
            rows = []
            for candidate in CANDIDATES[model]:
                runs = list(runs_of(model, {**BEFORE.get(model, {}), **candidate}, data))
                found = list(pool.map(lambda run: run.auroc(arguments.out), runs))
                means = [
                    fmean(one for run, one in zip(runs, found) if run.data_set == name)
                    for name in data
                ]
                said = ", ".join(f"{name} {value:g}" for name, value in candidate.items())
                rows.append((said or "before", *means, fmean(means)))
                print(model, said or "before", *(f"{one:.3f}" for one in rows[-1][1:]), flush=True)
            rows.sort(key=lambda row: -row[-1])
            cells = [(name, *(f"{one:.3f}" for one in figures)) for name, *figures in rows]
            print(table((model, *data, "mean"), cells), flush=True)


if __name__ == "__main__":
    main()
