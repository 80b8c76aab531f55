"""A folder of data to the coordinator and to a host, beside `scp -r` and `rsync -a` over ssh.

    python -m benchmarks.datasets [--rounds 5] [--large-mib 1024] [--small 20000]
        [--kinds large,small] [--alone] [--fill-gib 0]

Two folders of random bytes: 8 large files, and many of 1 to 16 KiB. `push` goes from the start of
`fleet data push` to its end. `to the host` goes from the start of `fleet run DIR --data` to the
first line of the program that reads them, on a host that has none of them. Both check every sha256
and fsync, which the others do not. The bare limit is paho to paho through the same broker, with
messages of 256 KiB at QoS 0. All programs are on this machine; the ways alternate in each round.
`--alone` leaves scp and rsync out. `--fill-gib` first writes that much beside the data: a virtual
machine that gives free memory back to its host has memory for the disk's cache then, as a machine
of its own has. Memory in the table is the most that a process had beyond what it had at first.

What is written is deleted at the very end: ext4 without a journal is slow to make files for five
minutes after others were deleted. All that is written is on the disk before the next way begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import stream_scp
from benchmarks.common import MIB, machine, median, table, words
from benchmarks.stream import bare
from benchmarks.stream_brokers import running
from benchmarks.stream_fleet import Memory
from tests.harness.fleet import Fleet

LARGE: Final = 8
BARE_BYTES: Final = 256 * 1024
PROGRAM: Final = """
name = "first-line"
command = ["python", "first_line.py"]
[data]
all = "any files"
"""
SCRIPT: Final = """
import time
begun_s = time.monotonic()  # of the machine, not of the process
import json, pathlib, sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
out = pathlib.Path(given["--out-dir"])
(out / "metrics.json").write_text(json.dumps({"begun_s": begun_s}))
"""


def large(folder: Path, size_mib: int) -> Path:
    """Return a new folder with `LARGE` files of `size_mib` in all."""
    folder.mkdir()
    for number in range(LARGE):
        with (folder / f"{number}.bin").open("wb") as file:
            for _ in range(size_mib // LARGE):
                file.write(os.urandom(MIB))
    return folder


def small(folder: Path, count: int) -> Path:
    """Return a new folder with that many small files, in a hundred folders."""
    rng = random.Random(1)
    for number in range(count):
        into = folder / f"{number % 100:02}"
        into.mkdir(parents=True, exist_ok=True)
        (into / f"{number}.bin").write_bytes(rng.randbytes(rng.randint(1024, 16 * 1024)))
    return folder


class Measured:
    """A fleet in a folder of its own, for one round of one data set."""

    def __init__(self, fleet: Fleet, program: Path) -> None:
        """Measure in this fleet; it has nothing yet. `grown_mib` is the memory, by role."""
        self._fleet, self._program = fleet, program
        self.grown_mib: dict[str, float] = {}

    def push(self, folder: Path) -> float:
        """Return the seconds of `fleet data push`."""
        begun_s = time.monotonic()
        self._called("data", "push", "all", str(folder))
        return time.monotonic() - begun_s

    def run(self) -> float:
        """Return the seconds until a program on a host that has no data reads its first line."""
        begun_s = time.monotonic()
        told = self._called("run", str(self._program), "--data", "all=all", "--wait", "--json")
        return float(json.loads(told)["metrics"]["begun_s"] - begun_s)

    def _called(self, *asked: str) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "coordinator.cli", *asked], env=self._fleet.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        pids = {one.module.split(".")[0]: [one.process.pid] for one in self._fleet.programs}
        memory = Memory({"client": [process.pid], **pids})
        said, complaint = process.communicate()
        for role, grown_mib in memory.grown_mib().items():
            self.grown_mib[role] = max(grown_mib, self.grown_mib.get(role, 0.0))
        if process.returncode:
            raise SystemExit(f"fleet {' '.join(asked)}\n{said}{complaint}")
        return said


@contextlib.contextmanager
def fleet_in(folder: Path, url: str, program: Path) -> Iterator[Measured]:
    """Have a coordinator and an agent that lets every program in."""
    folder.mkdir()
    fleet = Fleet(folder, url, folder)
    try:
        fleet.plan()
        fleet.coordinator()
        fleet.agent("here", heartbeat_s=30.0, more="[programs]\nunsigned = true\n")
        yield Measured(fleet, program)
    finally:
        fleet.close()


def round_of(
    folder: Path, data: Path, program: Path, kind: str, openssh: stream_scp.Programs | None
) -> Iterator[tuple[str, float]]:
    """Yield each way and its seconds, once; and the memory, in MiB."""
    size_mib = round(_size_bytes(data) / MIB)
    with running(kind, folder) as broker:
        yield "bare broker", size_mib * MIB / 1e6 / bare(broker.port, size_mib, BARE_BYTES)
        with fleet_in(folder / "fleet", broker.url, program) as measured:
            yield "push", measured.push(data)
            yield "to the host", measured.run()
            for role, grown_mib in measured.grown_mib.items():
                yield f"memory of the {role}, MiB", grown_mib
    if openssh:
        tools = {"scp -r": [openssh.scp, "-q", "-r"]}
        if rsync := shutil.which("rsync"):
            tools["rsync -a"] = [rsync, "-a"]
        for number, (name, tool) in enumerate(tools.items()):
            into = folder / str(number)
            into.mkdir()
            yield name, stream_scp.copied(openssh, tool, data, into)


def _size_bytes(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def main() -> None:
    """Measure both folders, and print a table of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large-mib", type=int, default=1024)
    parser.add_argument("--small", type=int, default=20_000)
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--kinds", type=words, default=["large", "small"])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--fill-gib", type=int, default=0)
    arguments = parser.parse_args()
    openssh = None if arguments.alone else stream_scp.find()
    print(machine("paho-mqtt"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program"
        program.mkdir()
        (program / "program.toml").write_text(PROGRAM)
        (program / "first_line.py").write_text(SCRIPT)
        makers = {
            "large": partial(large, size_mib=arguments.large_mib),
            "small": partial(small, count=arguments.small),
        }
        with (folder / "fill").open("wb") as fill:
            for _ in range(arguments.fill_gib * 1024):
                fill.write(bytes(MIB))
        for data in [makers[kind](folder / kind) for kind in arguments.kinds]:
            found: dict[str, list[float]] = {}
            for number in range(arguments.rounds):
                into = folder / f"{data.name}-{number}"
                into.mkdir()
                for way, figure in round_of(into, data, program, arguments.broker, openssh):
                    found.setdefault(way, []).append(figure)
                    os.sync()
            print(f"\n{data.name}: {_size_bytes(data) / 1e6:.0f} MB\n")
            print(table(["", "s"], [[way, median(one)] for way, one in found.items()]))


if __name__ == "__main__":
    main()
