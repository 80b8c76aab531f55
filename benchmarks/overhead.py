"""What the fleet adds to a job: the same training by hand and as a job, in turn.

    python -m benchmarks.overhead [DATA] [--rounds 500,4000,12000] [--repeats 5]

DATA is a folder that `prepare` wrote; without it telemetry is simulated. By hand is the command
`python -m agent.trainer.run`, from its start to its end. As a job it goes from the request to
reload the manifest until an operator's client hears that the model is home: assigned, trained, sent
over the embedded broker, checked, stored. All of the fleet's programs are on this machine.

Three lengths of job tell what is added to each job from what grows with it: a line is laid through
the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import line, numbers, prepared, table
from tests.harness.brokers import embedded
from tests.harness.fleet import Fleet


def hyper_of(rounds: int, number: int) -> dict[str, float]:
    """Return hyperparameters; every run has its own, or it would be the same job."""
    return {"epochs": rounds, "patience": 10_000, "lr": round(0.001 + number * 1e-6, 6)}


def by_hand(data: Path, folder: Path, hyper: dict[str, float]) -> float:
    """Return the seconds that the command takes."""
    flags = [f"--{name}={value}" for name, value in hyper.items()]
    command = [
        sys.executable, "-m", "agent.trainer.run", "--model=gbt", "--mode=realistic",
        f"--data={data}", f"--out-dir={folder / 'by-hand'}", "--threads=1",
        *flags,
    ]  # fmt: skip
    begun_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun_s


def as_a_job(fleet: Fleet, name: str, hyper: dict[str, float]) -> float:
    """Return the seconds from the manifest's reload until the job is completed."""
    lines = "\n".join(f"hyper.{key} = {value}" for key, value in hyper.items())
    fleet.plan(f'name = "{name}"\nmodel = "gbt"\nmode = "realistic"\n{lines}')
    begun_s = time.perf_counter()
    fleet.reload()
    fleet.until(name, "completed")
    return time.perf_counter() - begun_s


def measure(arguments: argparse.Namespace, folder: Path) -> list[tuple[float, float]]:
    """Print a line for each length of job; return medians (by hand, as a job)."""
    found = []
    broker = embedded()
    broker.start()
    fleet = Fleet(folder, broker.url, arguments.data)
    try:
        fleet.plan()
        fleet.coordinator()
        fleet.agent(heartbeat_s=10.0, stop_grace_s=10.0)
        for rounds in arguments.rounds:
            runs = [
                (by_hand(arguments.data, folder, hyper), as_a_job(fleet, name, hyper))
                for name, hyper in (
                    (f"r{rounds}-{number}", hyper_of(rounds, number))
                    for number in range(arguments.repeats)
                )
            ]
            hand_s, job_s = (statistics.median(one) for one in zip(*runs, strict=True))
            spread_s = max(job - hand for hand, job in runs) - min(job - hand for hand, job in runs)
            seconds = (f"{one:.2f}" for one in (hand_s, job_s, job_s - hand_s, spread_s))
            print(line([rounds, *seconds, f"{job_s / hand_s - 1:.1%}"]), flush=True)
            found.append((hand_s, job_s))
    finally:
        fleet.close()
        broker.end()
    return found


def main() -> None:
    """Print the table, and what the line through it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder that prepare wrote")
    parser.add_argument("--rounds", type=numbers, default=[500, 4_000, 12_000])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments.data = arguments.data or prepared(folder, 8, 3, 3_000)
        head = ("rounds", "by hand s", "as a job s", "more s", "spread s", "more")
        print(table(head, ()), flush=True)
        hand_s, job_s = np.array(measure(arguments, folder)).T
        slope, fixed_s = np.polyfit(hand_s, job_s - hand_s, 1)
        print(f"\n{fixed_s:.2f} s for each job, and {slope:.2%} of its time")


if __name__ == "__main__":
    main()
