"""Dask distributed: a LocalCluster of processes with one thread each, a task runs the program.

With `--processes` one worker, whose executor has a new process for each job: the job is a Python
function, here the Python child of `benchmarks.child`.
"""

from __future__ import annotations

import multiprocessing
import subprocess
from concurrent.futures import ProcessPoolExecutor

from dask.distributed import Client, LocalCluster
from harness import in_process, measure, task


def main() -> None:
    """Measure."""
    wanted = task()
    workers = {"n_workers": wanted.slots, "threads_per_worker": 1}
    if wanted.processes:
        spawning = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(wanted.slots, spawning, max_tasks_per_child=1)
        workers = {"n_workers": 1, "threads_per_worker": wanted.slots}
        workers |= {"processes": False, "executor": executor}
    run = in_process if wanted.processes else subprocess.call
    with LocalCluster(**workers, dashboard_address=None) as cluster, Client(cluster) as client:

        def start(command: list[str]) -> object:
            return client.submit(run, command, pure=False)

        measure(
            wanted,
            lambda command: start(command).result(),
            lambda commands: client.gather([start(command) for command in commands]),
        )


if __name__ == "__main__":
    main()
