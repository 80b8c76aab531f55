"""Dask distributed: one worker, whose executor has a new process for each job.

The job is a Python function, here the Python child of `benchmarks.child`; a worker takes any
executor of `concurrent.futures` in the place of its threads.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from dask.distributed import Client, LocalCluster
from harness import in_process, measure, task


def main() -> None:
    """Measure."""
    wanted = task()
    spawning = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(wanted.slots, spawning, max_tasks_per_child=1) as each_its_own,
        LocalCluster(
            n_workers=1, threads_per_worker=wanted.slots, processes=False, dashboard_address=None,
            executor=each_its_own,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip

        def start(command: list[str]) -> object:
            return client.submit(in_process, command, pure=False)

        measure(
            wanted,
            lambda command: start(command).result(),
            lambda commands: client.gather([start(command) for command in commands]),
        )


if __name__ == "__main__":
    main()
