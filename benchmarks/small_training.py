"""One small training as a function, and the peers that run many of them in warm workers.

    python -m benchmarks.small_training PEER DATA FOLDER < TRAININGS

Prints the seconds that all take. A worker has run each model once before.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SLOTS = 2
Run = Callable[[Sequence[Any]], Any]


class Training(NamedTuple):
    """What one training is given, beside its data."""

    model: str
    seed: int
    lr: float
    epochs: int = 10
    n_resamples: int = 1000


def command_of(one: Training, data: Path, out: Path) -> list[str]:
    """Return the command line of a training."""
    return [
        f"--model={one.model}", "--mode=realistic", f"--data={data}", f"--out-dir={out}",
        f"--seed={one.seed}", f"--lr={one.lr}", f"--epochs={one.epochs}",
        f"--n-resamples={one.n_resamples}", "--threads=1",
    ]  # fmt: skip


def train(words: list[str]) -> None:
    """Run a training in this process."""
    from agent.trainer.common.arguments import parse_job
    from agent.trainer.common.config import RUN_MODULE
    from agent.trainer.common.progress import Progress
    from agent.trainer.run import bind_threads, run

    job = parse_job(words, RUN_MODULE)
    bind_threads(job.threads)
    run(job, Progress(io.StringIO()))


def with_pool(measure: Callable[[Run], None]) -> None:
    """Two processes of the standard library."""
    with multiprocessing.get_context("spawn").Pool(SLOTS) as pool:
        measure(lambda some: pool.map(train, some, chunksize=1))


def with_joblib(measure: Callable[[Run], None]) -> None:
    """Two processes of loky."""
    from joblib import Parallel, delayed

    with Parallel(SLOTS, pre_dispatch="all", batch_size=1) as pool:
        measure(lambda some: pool(delayed(train)(words) for words in some))


def with_dask(measure: Callable[[Run], None]) -> None:
    """Two worker processes with a thread each."""
    from dask.distributed import Client, LocalCluster

    workers = {"n_workers": SLOTS, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**workers) as cluster, Client(cluster) as client:
        measure(lambda some: client.gather(client.map(train, some, pure=False)))


def with_ray(measure: Callable[[Run], None]) -> None:
    """Tasks that need a core each, on two cores."""
    import ray

    ray.init(num_cpus=SLOTS, include_dashboard=False)
    task = ray.remote(train)
    measure(lambda some: ray.get([task.remote(words) for words in some]))
    ray.shutdown()


def with_hyperqueue(measure: Callable[[Run], None]) -> None:
    """A process for each training: it has no warm workers."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=SLOTS))
        client = cluster.client()

        def run(some: Sequence[list[str]]) -> None:
            job = Job()
            for words in some:
                command = [sys.executable, "-m", "agent.trainer.run", *words]
                job.program(command, stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])

        measure(run)


PEERS = {"Ray": with_ray, "Dask": with_dask, "HyperQueue": with_hyperqueue}


def main() -> None:
    """Run a peer, and print its seconds."""
    peer, data, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    some = [Training(*one) for one in json.load(sys.stdin)]

    def measure(run: Run) -> None:
        before = [command_of(one, data, folder / f"before-{n}") for n, one in enumerate(some[:8])]
        run(before)
        every = [command_of(one, data, folder / str(number)) for number, one in enumerate(some)]
        begun_s = time.perf_counter()
        run(every)
        print(time.perf_counter() - begun_s)

    {"pool": with_pool, "joblib": with_joblib, **PEERS}[peer](measure)


if __name__ == "__main__":
    main()
