"""From a command to a program's first instruction: `fleet run DIR` beside `uv run`.

    python -m benchmarks.programs [--repeats 20] [--packages numpy,pillow]

Every side starts the same script again and again with another value of its one parameter; the
folder stays as it is. So the fleet packs it, finds that nothing has to be sent, adds a job, and the
host finds the parcel and the environment that an earlier run has left. The time goes from the start
of the command to the script's first line. All of the fleet's programs are on this machine, with the
embedded broker; programs run in bubblewrap where it works. The sides are measured by turns.

`--packages` are what the script's project depends on; locking them needs the network.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.programs.environments import find_uv
from benchmarks.common import machine, median, table, words
from tests.harness.brokers import embedded
from tests.harness.fleet import Fleet

GOAL_S = 0.5
PROGRAM = """
name = "first-line"
command = ["python", "first_line.py"]
environment = "{environment}"
[parameters]
number = {{ type = "integer" }}
"""
SCRIPT = """
import time
begun_s = time.monotonic()  # of the machine, not of the process
import json, pathlib, sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
out = pathlib.Path(given["--out-dir"])
(out / "metrics.json").write_text(json.dumps({"begun_s": begun_s}))
"""
PROJECT = """
[project]
name = "first-line"
version = "1"
requires-python = ">={python}"
dependencies = {packages}
"""
Side = Callable[[int], float]


def made(folder: Path, environment: str, packages: list[str]) -> Path:
    """Return a folder with the program; locked, where its environment is of uv."""
    folder.mkdir()
    (folder / "program.toml").write_text(PROGRAM.format(environment=environment))
    (folder / "first_line.py").write_text(SCRIPT)
    if environment == "uv":
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        project = PROJECT.format(python=python, packages=json.dumps(packages))
        (folder / "pyproject.toml").write_text(project)
        called("uv", "lock", "--quiet", "--directory", str(folder), "--python", sys.executable)
    return folder


def called(name: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Return what a program prints; uv may be beside this interpreter."""
    program = str(find_uv()) if name == "uv" else name
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def with_uv(folder: Path, out: Path) -> Side:
    """Return what runs the script by `uv run`."""

    def run(number: int) -> float:
        begun_s = time.monotonic()
        called(
            "uv", "run", "--quiet", "--directory", str(folder), "--python", sys.executable,
            "python", "first_line.py", f"--number={number}", f"--out-dir={out}",
        )  # fmt: skip
        metrics = json.loads((out / "metrics.json").read_text())
        return float(metrics["begun_s"] - begun_s)

    return run


def with_fleet(fleet: Fleet, folder: Path) -> Side:
    """Return what runs the script by `fleet run`."""

    def run(number: int) -> float:
        begun_s = time.monotonic()
        told = called(
            sys.executable, "-m", "coordinator.cli", "run", str(folder), "--number", str(number),
            "--wait", "--json", environment=fleet.environment,
        )  # fmt: skip
        return float(json.loads(told)["metrics"]["begun_s"] - begun_s)

    return run


def main() -> None:
    """Measure the sides by turns, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--packages", type=words, default=[], help="of the project, by commas")
    arguments = parser.parse_args()
    os.environ.pop("VIRTUAL_ENV", None)  # uv would speak of it
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as undo:
        folder = Path(name)
        broker = embedded()
        broker.start()
        undo.callback(broker.end)
        fleet = Fleet(folder, broker.url, folder)
        undo.callback(fleet.close)
        fleet.plan()
        fleet.coordinator()
        fleet.agent("here", heartbeat_s=30.0, more="[programs]\nunsigned = true\n")
        (folder / "out").mkdir()
        locked = made(folder / "locked", "uv", arguments.packages)
        bare = made(folder / "bare", "none", [])
        sides = {
            "`uv run`": with_uv(locked, folder / "out"),
            '`fleet run`, environment = "uv"': with_fleet(fleet, locked),
            '`fleet run`, environment = "none"': with_fleet(fleet, bare),
        }
        for run in sides.values():
            run(0)
        found: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(1, arguments.repeats + 1):
            for side, run in sides.items():
                found[side].append(run(number))
    print(machine("uv"), f"{arguments.repeats} runs", sep=", ")
    least_s = statistics.median(found["`uv run`"])
    print(table(("", "first line after, s", f"more, s (goal {GOAL_S:g})"), [
        (side, median(seconds), f"{statistics.median(seconds) - least_s:.2f}")
        for side, seconds in found.items()
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
