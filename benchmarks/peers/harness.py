"""What every peer's program shares: the measuring. Runs on the peer's interpreter, with no package.

A peer hands over two functions: `one(command)` runs a job and returns when the asker was told that
it is done, `many(commands)` the same for all at once.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PAUSE_S = 0.05
FIRST_OF_MANY = 10_000


@dataclass
class Task:
    """What is to be measured."""

    folder: Path
    single: int
    jobs: int
    slots: int
    program: list[str]
    processes: bool

    def command(self, number: int) -> list[str]:
        """Return the command of one job."""
        times, out = self.folder / "times", self.folder / "out" / str(number)
        return [*self.program, str(times), f"--seed={number}", f"--out-dir={out}"]


def task() -> Task:
    """Read the command line."""
    processes = sys.argv[1] == "--processes"
    folder, single, jobs, slots, *program = sys.argv[1 + processes :]
    (Path(folder) / "out").mkdir()
    return Task(Path(folder), int(single), int(jobs), int(slots), program, processes)


def measure(
    task: Task, one: Callable[[list[str]], object], many: Callable[[list[list[str]]], object]
) -> None:
    """Measure both ways and print the figures."""
    asked, heard = {}, {}
    one(task.command(0))  # what is started at the first job only is not counted
    for number in range(1, task.single + 1):
        time.sleep(PAUSE_S)
        asked[number] = time.monotonic()
        one(task.command(number))
        heard[number] = time.monotonic()
    times = _times(task.folder / "times")
    commands = [task.command(FIRST_OF_MANY + number) for number in range(task.jobs)]
    begun_s = time.monotonic()
    many(commands)
    times_of_many = [of for n, of in _times(task.folder / "times").items() if n >= FIRST_OF_MANY]
    # To the end of the last program: some clients ask only now and then whether all is done.
    took_s = max((ended_s for _, ended_s in times_of_many), default=0.0) - begun_s
    figures = {
        "starts_ms": [1e3 * (times[n][0] - asked[n]) for n in asked],
        "ends_ms": [1e3 * (heard[n] - times[n][1]) for n in asked],
        "rates": [len(times_of_many) / took_s] if times_of_many else [],
    }
    print(json.dumps(figures))


def in_process(command: list[str]) -> None:
    """Run the Python program of a job's command in this process."""
    script = next(number for number, word in enumerate(command) if word.endswith(".py"))
    sys.argv = command[script:]
    runpy.run_path(command[script])


def _times(path: Path) -> dict[int, tuple[float, float]]:
    found = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        seed, began, ended = line.split()
        found[int(seed)] = (int(began) / 1e9, int(ended) / 1e9)
    return found
