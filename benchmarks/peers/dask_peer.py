"""Dask distributed: a LocalCluster of processes with one thread each, a task runs the program."""

from __future__ import annotations

import subprocess

from dask.distributed import Client, LocalCluster
from harness import measure, task


def main() -> None:
    """Measure."""
    wanted = task()
    with (
        LocalCluster(
            n_workers=wanted.slots, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):

        def start(command: list[str]) -> object:
            return client.submit(subprocess.call, command, pure=False)

        measure(
            wanted,
            lambda command: start(command).result(),
            lambda commands: client.gather([start(command) for command in commands]),
        )


if __name__ == "__main__":
    main()
