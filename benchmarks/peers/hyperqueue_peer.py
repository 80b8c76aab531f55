"""HyperQueue: the Python API's local cluster, one worker; a job, or a job of many tasks."""

from __future__ import annotations

from harness import measure, task
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main() -> None:
    """Measure."""
    wanted = task()
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=wanted.slots))
        client = cluster.client()

        def many(commands: list[list[str]]) -> None:
            job = Job()
            for command in commands:
                job.program(command, stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])

        measure(wanted, lambda command: many([command]), many)


if __name__ == "__main__":
    main()
