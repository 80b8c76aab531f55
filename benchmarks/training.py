"""How fast the trainers learn, and in how much memory, beside the plain way of doing it.

    python -m benchmarks.training [DATA] [--models mlp,cnn] [--mode oracle] [--repeats 5]
        [--windows 16384] [--epochs 3] [--threads 1]

DATA is a folder that `prepare` wrote; without it telemetry is simulated. Each figure is the median
of several runs, each run a process of its own, ours and the plain one in turn:

- ours: the trainers' loop, windows gathered out of the memory-mapped series when their batch is;
- plain: windows stored as an array, `TensorDataset`, `DataLoader(shuffle=True)`, and the same
  network, loss and optimiser in the loop that the tutorials show. For gbt `XGBClassifier.fit`.

Memory is the peak of a process less what it had after its imports. A ratio above one is in our
favour.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from agent.trainer.common.arguments import parse_job
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import RUN_MODULE, RUN_SSL_MODULE, TRAINERS
from agent.trainer.run import bind_threads
from agent.trainer.training.loading import Loaded, load
from benchmarks.common import line, peak_mib, prepared, table, words

ROUNDS: Final = 100  # of trees


@dataclass(frozen=True)
class Task:
    """A model to be trained: on `windows` (n,) of what was loaded, for so many epochs."""

    loaded: Loaded
    windows: Ints
    epochs: int


def task_of(arguments: argparse.Namespace) -> Task:
    """Load the data, and choose the windows."""
    model, threads = arguments.model, arguments.threads
    module = RUN_SSL_MODULE if model == "transformer_ssl" else RUN_MODULE
    argv = [f"--model={model}", f"--mode={arguments.mode}", f"--data={arguments.data}"]
    argv += ["--out-dir=unused", f"--threads={threads}"]
    if model != "gbt":
        argv += [f"--epochs={arguments.epochs}", "--patience=1000"]
    loaded = load(parse_job(argv, module))
    windows = np.flatnonzero(loaded.index.label >= 0)
    chosen = np.random.default_rng(0).permutation(windows)[: arguments.windows]
    return Task(loaded, np.sort(chosen), arguments.epochs)


def ours(task: Task) -> Callable[[], None]:
    """Return our training, its data opened."""
    if task.loaded.job.model == "gbt":
        return _our_trees(task)
    from agent.trainer.common.checkpoint import Keeper
    from agent.trainer.common.progress import Progress
    from agent.trainer.data.dataset import load_features, open_series
    from agent.trainer.training.batches import ArrayBatches, WindowBatches
    from agent.trainer.training.fit import fit
    from agent.trainer.training.pretrain import masked_loss
    from agent.trainer.training.supervised import cross_entropy

    job: Any = task.loaded.job
    schema, index = task.loaded.schema, task.loaded.index
    device = start()
    batches: Any
    if job.model == "mlp":
        features = load_features(job.summary, schema, job.mode)
        batches = ArrayBatches(features, device)
    else:
        batches = WindowBatches(open_series(job.tensors, schema, job.mode), index, device)
    network = network_of(task, batches.statistics(task.windows)).to(device)
    if job.model == "transformer_ssl":
        loss = masked_loss(batches, job.hyper.mask_fraction)
    else:
        loss = cross_entropy(batches, index.label, np.ones(len(schema.classes)))
    silent = Progress(io.StringIO())

    def run() -> None:
        few = task.windows[:1]
        fit(network, loss, task.windows, few, hyper=job.hyper, seed=0, keeper=Keeper(silent))

    return run


def _our_trees(task: Task) -> Callable[[], None]:
    from agent.trainer.common.progress import Progress
    from agent.trainer.data.dataset import load_features
    from agent.trainer.models.gbt import bins, train_gbt

    job, index = task.loaded.job, task.loaded.index
    hyper: Any = job.hyper.model_copy(update={"epochs": ROUNDS, "patience": ROUNDS})
    features = load_features(job.summary, task.loaded.schema, job.mode)[task.windows]
    label, weight = index.label[task.windows], np.ones(len(task.windows))
    classes = len(task.loaded.schema.classes)
    silent = Progress(io.StringIO())

    def run() -> None:
        learnt = bins(features, label, weight, job.threads)
        few = bins(features[:64], label[:64], weight[:64], job.threads, learnt)
        train_gbt(learnt, few, classes, hyper, threads=job.threads, seed=0, progress=silent)

    return run


def plain(task: Task) -> Callable[[], None]:
    """Return the plain training, its windows stored."""
    if task.loaded.job.model == "gbt":
        return _plain_trees(task)
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    job, index = task.loaded.job, task.loaded.index
    hyper: Any = job.hyper
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stored = torch.from_numpy(_stored(task))
    data = TensorDataset(stored, torch.from_numpy(index.label[task.windows]))
    loader = DataLoader(data, batch_size=hyper.batch_size, shuffle=True)
    flat = stored.reshape(-1, stored.shape[-1])
    network = network_of(task, (flat.mean(0).numpy(), flat.std(0).numpy())).to(device)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=hyper.lr, weight_decay=hyper.weight_decay
    )
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, task.epochs * len(loader))
    generator = torch.Generator().manual_seed(0)
    supervised = job.model != "transformer_ssl"
    if supervised:
        criterion = nn.CrossEntropyLoss()
    else:
        from agent.trainer.training.pretrain import masked_error

    def run() -> None:
        network.train()
        for _ in range(task.epochs):
            for windows, label in loader:
                inputs = windows.to(device)
                optimiser.zero_grad()
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    if supervised:
                        value = criterion(network(inputs), label.to(device))
                    else:
                        value = masked_error(network, inputs, hyper.mask_fraction, generator).mean()
                value.backward()
                nn.utils.clip_grad_norm_(network.parameters(), hyper.clip_norm)
                optimiser.step()
                steps.step()

    return run


def _plain_trees(task: Task) -> Callable[[], None]:
    from xgboost import XGBClassifier

    job = task.loaded.job
    hyper: Any = job.hyper
    features, label = _stored(task), task.loaded.index.label[task.windows]
    model = XGBClassifier(
        n_estimators=ROUNDS, learning_rate=hyper.lr, max_depth=hyper.max_depth,
        min_child_weight=hyper.min_child_weight, subsample=hyper.subsample,
        colsample_bytree=hyper.colsample, tree_method="hist", n_jobs=job.threads,
    )  # fmt: skip
    few = (features[:64], label[:64])
    return lambda: void(
        model.fit(features, label, eval_set=[(features, label), few], verbose=False)
    )


def _stored(task: Task) -> Floats:
    """Return the windows (n, steps, channels), or their features (n, features), as an array."""
    from agent.trainer.data.dataset import load_features, open_series

    job, schema, index = task.loaded.job, task.loaded.schema, task.loaded.index
    if job.model in {"gbt", "mlp"}:
        return load_features(job.summary, schema, job.mode)[task.windows]
    series = open_series(job.tensors, schema, job.mode)
    starts = index.offset[task.windows]
    return np.stack([
        np.concatenate([part[at : at + index.length] for part in series.parts], axis=1)
        for at in starts
    ])  # fmt: skip


def network_of(task: Task, statistics: tuple[Floats, Floats]) -> Any:
    """Return the task's network, untrained, with statistics (inputs,) to standardise by."""
    from agent.trainer.training.networks import build, size_of

    job, schema = task.loaded.job, task.loaded.schema
    hyper: Any = job.hyper
    inputs, classes = len(statistics[0]), len(schema.classes)
    network = build(job.model, size_of(job.model, hyper, inputs, classes, schema.window))
    network.standardise.fit(*statistics)
    return network


def start() -> Any:
    """Seed torch as the trainers do."""
    import torch

    from agent.trainer.training.fit import start_torch

    return start_torch(torch.get_num_threads(), 0)


def void(_: object) -> None:
    """Drop what a training returns."""


def child(arguments: argparse.Namespace) -> None:
    """Train once, and print how long it took and how much memory."""
    bind_threads(arguments.threads)
    if arguments.model == "gbt":
        import xgboost  # noqa: F401 - what is imported is no part of the peak
    else:
        import torch
        import torch.utils.data

        torch.set_num_threads(arguments.threads)
    task = task_of(arguments)
    before_mib = peak_mib(os.getpid())
    run = (ours if arguments.child == "ours" else plain)(task)
    begun_s = time.perf_counter()
    run()
    took_s = time.perf_counter() - begun_s
    rounds = ROUNDS if arguments.model == "gbt" else arguments.epochs
    found_mib = peak_mib(os.getpid()) - before_mib
    print(json.dumps({"per_s": rounds * len(task.windows) / took_s, "mib": found_mib}))


def measured(arguments: argparse.Namespace, model: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield (way, figures) of runs in turn."""
    for _ in range(arguments.repeats):
        for way in ("ours", "plain"):
            command = [
                sys.executable, "-m", "benchmarks.training", str(arguments.data),
                f"--child={way}", f"--model={model}",
                f"--mode={arguments.mode}", f"--windows={arguments.windows}",
                f"--epochs={arguments.epochs}", f"--threads={arguments.threads}",
            ]  # fmt: skip
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            yield way, json.loads(done.stdout)


def row(arguments: argparse.Namespace, model: str) -> str:
    """Measure a model, and return its line of the table."""
    runs = list(measured(arguments, model))

    def median(way: str, key: str) -> float:
        return statistics.median(found[key] for which, found in runs if which == way)

    speed = [median(way, "per_s") for way in ("ours", "plain")]
    memory = [median(way, "mib") for way in ("ours", "plain")]
    cells = [
        model, *(f"{one:,.0f}" for one in speed), f"{speed[0] / speed[1]:.2f}",
        *(f"{one:.0f}" for one in memory), f"{memory[1] / max(1.0, memory[0]):.2f}",
    ]  # fmt: skip
    return line(cells)


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder that prepare wrote")
    parser.add_argument("--models", type=words, default=list(TRAINERS))
    parser.add_argument("--mode", default="oracle")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--windows", type=int, default=16_384)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", choices=("ours", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.data = arguments.data or prepared(Path(folder), 8, 3, 8_000)
        heads = ("model", "windows/s", "plain", "ratio", "MiB", "plain", "ratio")
        print(table(heads, ()), flush=True)
        for model in arguments.models:
            print(row(arguments, model), flush=True)


if __name__ == "__main__":
    main()
