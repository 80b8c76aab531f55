"""Small trainings, two at a time: the fleet beside the same trainings elsewhere.

    python -m benchmarks.small [--sets 10] [--seeds 10] [--repeats 5] [--peers FOLDER]

Each side trains gbt and mlp with `--sets` learning rates and `--seeds` seeds on simulated
telemetry, with one thread each. The limit is two processes that have imported everything. Peers get
the same function in two workers that have run it before; they come from an environment
(benchmarks/README.md) that also has what the trainers import. "A process each" starts
`python -m agent.trainer.run` anew. The fleet goes from the reload of the manifest until the last
model is home; it has run each model before, as the others have.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.common import machine, median, prepared, table
from benchmarks.jobs import Watcher
from benchmarks.small_training import PEERS, Training, command_of
from tests.harness.brokers import embedded
from tests.harness.fleet import Fleet

ROOT = Path(__file__).parents[1]
SLOTS = 2


def trainings(models: list[str], sets: int, seeds: int) -> list[Training]:
    """Return every training of a run, models by turns."""
    rates = [round(0.01 * (number + 1), 3) for number in range(sets)]
    every = itertools.product(range(seeds), rates, models)
    return [Training(model, seed, lr) for seed, lr, model in every]


def a_process_each(data: Path, folder: Path, some: list[Training]) -> float:
    """Return the seconds that the commands take, two at a time."""

    def one(number: int) -> None:
        words = command_of(some[number], data, folder / str(number))
        subprocess.run(
            [sys.executable, "-m", "agent.trainer.run", *words],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    begun_s = time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as threads:
        list(threads.map(one, range(len(some))))
    return time.perf_counter() - begun_s


def elsewhere(python: Path, peer: str) -> Callable[[Path, Path, list[Training]], float]:
    """Return what measures a peer in its own interpreter."""

    def measure(data: Path, folder: Path, some: list[Training]) -> float:
        done = subprocess.run(
            [str(python), "-m", "benchmarks.small_training", peer, str(data), str(folder)],
            input=json.dumps(some).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
        )  # fmt: skip
        return float(done.stdout.splitlines()[-1])

    return measure


def the_fleet(data: Path, folder: Path, some: list[Training]) -> float:
    """Return the seconds from the reload until the last model is home."""
    broker = embedded()
    broker.start()
    fleet = Fleet(folder, broker.url, data)
    with contextlib.ExitStack() as undo:
        undo.callback(broker.end)
        undo.callback(fleet.close)
        fleet.plan()
        fleet.coordinator()
        fleet.agent("one", slots=SLOTS, threads=1, heartbeat_s=30.0)
        watcher = Watcher(fleet)
        undo.callback(watcher.close)
        before = [Training(one.model, 1_000 + n, one.lr) for n, one in enumerate(some[:8])]
        fleet.plan(*map(_entry, range(8), before))
        fleet.reload()
        watcher.wait(8)
        fleet.plan(*map(_entry, range(8 + len(some)), [*before, *some]))
        begun_s = time.perf_counter()
        fleet.reload()
        watcher.wait(8 + len(some), 3600.0)
        return time.perf_counter() - begun_s


def _entry(number: int, one: Training) -> str:
    return (
        f'name = "t-{number}"\nmodel = "{one.model}"\nmode = "realistic"\nseed = {one.seed}\n'
        f"n_resamples = {one.n_resamples}\nhyper.lr = {one.lr}\nhyper.epochs = {one.epochs}"
    )


def sides(peers: Path | None) -> dict[str, Callable[[Path, Path, list[Training]], float]]:
    """Return what measures each side."""
    here = Path(sys.executable)
    found = {
        "two warm processes": elsewhere(here, "pool"),
        "a process each": a_process_each,
        "joblib": elsewhere(here, "joblib"),
        "the fleet": the_fleet,
    }
    for name in PEERS if peers else ():
        found[name] = elsewhere(peers / "bin" / "python", name)
    return found


def main() -> None:
    """Measure all sides by turns, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["gbt", "mlp"])
    parser.add_argument("--peers", type=Path, help="environment that has Ray, Dask, HyperQueue")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    some = trainings(arguments.models, arguments.sets, arguments.seeds)
    measured: dict[str, list[float]] = {name: [] for name in sides(arguments.peers)}
    print(machine("xgboost", "torch"), f"{len(some)} trainings", sep="\n")
    with tempfile.TemporaryDirectory() as name:
        data = prepared(Path(name), 8, 3, 3_000)
        for run in range(arguments.repeats):
            for number, (side, measure) in enumerate(sides(arguments.peers).items()):
                folder = Path(name) / f"{run}-{number}"
                folder.mkdir()
                try:
                    measured[side].append(measure(data, folder, some))
                except subprocess.CalledProcessError as error:
                    print(f"{side}: a round is left out: exit code {error.returncode}")
    limit_s = statistics.median(measured["two warm processes"])
    print(table(("", "s", "trainings a minute", "of the limit's time"), [
        (side, median(s), f"{60 * len(some) / statistics.median(s):.0f}",
         f"{statistics.median(s) / limit_s:.2f}")
        for side, s in measured.items() if s
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
