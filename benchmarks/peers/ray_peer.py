"""Ray: one node, a task runs the program."""

from __future__ import annotations

import subprocess

import ray
from harness import measure, task


def main() -> None:
    """Measure."""
    wanted = task()
    ray.init(num_cpus=wanted.slots, include_dashboard=False, logging_level="error")
    run = ray.remote(subprocess.call)
    measure(
        wanted,
        lambda command: ray.get(run.remote(command)),
        lambda commands: ray.get([run.remote(command) for command in commands]),
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
