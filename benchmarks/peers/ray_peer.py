"""Ray: one node, a task runs the program.

With `--processes` a worker process for each job, which is what its docs have tasks on a GPU do
(`max_calls=1`): the job is a Python function, here the Python child of `benchmarks.child`.
"""

from __future__ import annotations

import subprocess

import ray
from harness import in_process, measure, task


def main() -> None:
    """Measure."""
    wanted = task()
    ray.init(num_cpus=wanted.slots, include_dashboard=False, logging_level="error")
    run = ray.remote(max_calls=1)(in_process) if wanted.processes else ray.remote(subprocess.call)
    measure(
        wanted,
        lambda command: ray.get(run.remote(command)),
        lambda commands: ray.get([run.remote(command) for command in commands]),
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
