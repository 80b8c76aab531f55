"""jobd: its broker on loopback without a token, one worker with as many jobs at once as slots.

A job is a `fast_path` one, without a systemd scope around it. It is asked for a job's state every
few milliseconds, which is how its own client waits, but for the pause.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Task, measure, task
from jobd.client import BrokerUnreachable, JobdClient

ASK_EVERY_S = 0.005
PATIENCE_S = 60.0
MOST_S = 60.0  # for all at once: what is done by then is counted
FINAL = {"completed", "failed", "cancelled", "preempted"}


@contextlib.contextmanager
def running(wanted: Task, url: str, port: int) -> Iterator[None]:
    """Run broker and worker."""
    folder = wanted.folder
    for name in ("config", "state", "logs"):
        (folder / name).mkdir()
    environment = {
        **os.environ, "JOBD_ALLOW_NO_AUTH": "1", "JOBD_PORT": str(port), "JOBD_URL": url,
        "JOBD_CONFIG_DIR": str(folder / "config"), "JOBD_STATE_DIR": str(folder / "state"),
        "JOBD_LOGS_DIR": str(folder / "logs"), "JOBD_DB_URL": f"sqlite:///{folder}/jobd.db",
        "JOBD_WORKER_HOST": "local", "JOBD_WORKER_MAX_CONCURRENT_JOBS": str(wanted.slots),
        "XDG_DATA_HOME": str(folder / "state"),
    }  # fmt: skip
    programs = [
        subprocess.Popen(
            [Path(sys.executable).with_name(name)], env=environment, cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for name in ("jobd", "jobd-worker")
    ]  # fmt: skip
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def main() -> None:
    """Measure."""
    wanted = task()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with running(wanted, url, port), JobdClient(url) as client:
        deadline_s = time.monotonic() + PATIENCE_S
        while not _is_ready(client):
            if time.monotonic() > deadline_s:
                raise TimeoutError("the worker did not come")
            time.sleep(0.2)

        def submit(command: list[str]) -> int:
            payload = {
                "cmd": command,
                "cwd": str(wanted.folder),
                "project": "bench",
                "fast_path": True,
            }
            found: int = client.submit(payload)["id"]
            return found

        def wait(job_id: int, deadline_s: float) -> None:
            while client.status(job_id)["state"] not in FINAL and time.monotonic() < deadline_s:
                time.sleep(ASK_EVERY_S)

        def many(commands: list[list[str]]) -> None:
            deadline_s = time.monotonic() + MOST_S
            for job_id in [submit(command) for command in commands]:
                wait(job_id, deadline_s)

        measure(wanted, lambda one: wait(submit(one), time.monotonic() + MOST_S), many)


def _is_ready(client: JobdClient) -> bool:
    with contextlib.suppress(BrokerUnreachable):
        return bool(client.workers())
    return False


if __name__ == "__main__":
    main()
