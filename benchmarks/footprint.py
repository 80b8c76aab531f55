"""What the fleet costs a machine that has nothing to do, and how long a person waits for an answer.

    python -m benchmarks.footprint [--idle 60] [--repeats 15] [--peer 'COMMAND'] [--install]

A broker, a coordinator with a plan of 20 jobs and an agent are started, as people start them. Then
each program's memory and processor time over an idle minute are read from /proc, and the commands
are run one after the other, round by round, beside what an interpreter takes that does nothing.
With mosquitto it is done twice, the second time over TLS with a certificate for each.
`--peer` is another command to run in the same rounds. `--install` makes a fresh environment and has
pip install the fleet without extras there (it needs a package index). Linux only.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import machine, table
from tests.harness.brokers import BrokerProcess, embedded, mosquitto
from tests.harness.fleet import Fleet
from tests.harness.secure import House, mosquitto_tls

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "broker", "coordinator")
JOBS = 20
SETTLE_S = 5.0
FLEET = [sys.executable, "-m", "coordinator.cli"]
LIBRARIES = "import click, paho.mqtt.client, pydantic, rich.console; pydantic.BaseModel"
IDLE = "import time; time.sleep(3600)"
BYSTANDERS = {
    "python": "",
    "python, with paho, psutil, pydantic": "import paho.mqtt.client, psutil, pydantic\n"
    "class One(pydantic.BaseModel): a: int\n",
}
FLOORS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import paho.mqtt.client'": [sys.executable, "-c", "import paho.mqtt.client"],
    "python, with click, paho, pydantic, rich": [sys.executable, "-c", LIBRARIES],
}
COMMANDS = {
    "fleet status": [*FLEET, "status"],
    "fleet list": [*FLEET, "list"],
    "fleet workers": [*FLEET, "workers"],
    "fleet why JOB": [*FLEET, "why", "job-3"],
    "fleet --help": [*FLEET, "--help"],
    "completion of a verb": FLEET,
    "completion of a job": FLEET,
}
TYPED = {"completion of a verb": ("fleet st", "1"), "completion of a job": ("fleet why job", "2")}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process has used so far: processor time, and how often it was woken."""

    cpu_s: float
    wakes: int

    @classmethod
    def of(cls, pid: int) -> Reading:
        """Read it of a process and of all its threads."""
        cpu_ns = wakes = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            found = re.search(r"^voluntary\S*\s+(\d+)", (task / "status").read_text(), re.MULTILINE)
            wakes += int(found[1]) if found else 0
        return cls(cpu_ns / 1e9, wakes)


def memory_mib(pid: int) -> tuple[float, float]:
    """Return RSS, and the share of it that is this process's own (PSS)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {
        name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)
    }
    return kib["Rss"] / 1024, kib["Pss"] / 1024


@contextlib.contextmanager
def fleet_on(
    broker: BrokerProcess, folder: Path, house: House | None
) -> Iterator[tuple[Fleet, dict[str, int]]]:
    """Run a fleet, with certificates of `house` if there is one; give its processes' ids, too."""
    broker.start()
    data = folder / "data"
    data.mkdir(parents=True)
    fleet = Fleet(folder, broker.url, data)
    job = 'name = "job-{0}"\nmodel = "gbt"\nmode = "oracle"\nseed = {0}'
    fleet.plan(*(job.format(number) for number in range(JOBS)))
    pids = {"broker": broker.process.pid} if broker.process else {}

    def be(name: str) -> None:
        if house is not None:
            fleet.environment["FLEET_IDENTITY"] = str(house.identity(name))

    try:
        be("coordinator")
        pids["coordinator"] = fleet.coordinator().process.pid
        be("pi")
        pids["agent"] = fleet.agent(heartbeat_s=30.0).process.pid  # as it is unless told otherwise
        be("operator:ann")
        yield fleet, pids
    finally:
        fleet.close()
        broker.end()


@contextlib.contextmanager
def bystanders() -> Iterator[dict[str, int]]:
    """Run interpreters that sleep; give their process ids by what they have loaded."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, imports in BYSTANDERS.items():
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", imports + IDLE]))
            stack.callback(process.kill)
            found[name] = process.pid
        yield found


def idle_rows(pids: Mapping[str, int], idle_s: float) -> list[list[str]]:
    """Return a row for each process after it was left alone for `idle_s`."""
    time.sleep(SETTLE_S)
    before = {name: Reading.of(pid) for name, pid in pids.items()}
    begun_s = time.monotonic()
    time.sleep(idle_s)
    rows = []
    for name, pid in pids.items():
        after, span_s = Reading.of(pid), time.monotonic() - begun_s
        rss, pss = memory_mib(pid)
        percent = 100 * (after.cpu_s - before[name].cpu_s) / span_s
        wakes = (after.wakes - before[name].wakes) / span_s
        rows.append([name, f"{rss:.1f}", f"{pss:.1f}", f"{percent:.3f}", f"{wakes:.1f}"])
    return rows


def take(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run a command; return its wall clock time and its processor time, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun_s = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    wall_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.decode()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * wall_s, 1e3 * cpu_s


def command_rows(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], repeats: int
) -> list[list[str]]:
    """Return a row for each command: medians of rounds in which each is run once."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(repeats + 1):
        for name, command in commands.items():
            extra = {}
            if name in TYPED:
                words, at = TYPED[name]
                extra = {"_FLEET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
            took = take(command, {**environment, **extra})
            if number:  # the first one fills the caches
                found[name].append(took)
    floor_ms = statistics.median(cpu for _, cpu in found["python -c pass"])
    rows = []
    for name, took in found.items():
        wall, cpu = zip(*took, strict=True)
        ratio = statistics.median(cpu) / floor_ms
        rows.append([name, in_ms(wall), in_ms(cpu), f"{ratio:.1f}"])
    return rows


def in_ms(values: Sequence[float]) -> str:
    """Return the median of `values` with their range, in whole milliseconds."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def install() -> None:
    """Print how long pip takes without extras, how much comes, and what is largest of it."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copy:
        for part in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
            here = ROOT / part
            (shutil.copytree if here.is_dir() else shutil.copy)(here, Path(copy, part))
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
        packages = next(Path(folder).glob("lib/python*/site-packages"))
        own = {path.name for path in packages.iterdir()}
        wall_ms, cpu_ms = take([*pip, "install", "--no-cache-dir", copy], os.environ)
        sizes = {
            path.name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
            for path in packages.iterdir()
            if path.is_dir() and path.name not in own
        }
    print(f"pip install: {wall_ms / 1e3:.0f} s, {cpu_ms / 1e3:.0f} s of processor time, "
          f"{sum(sizes.values()):.0f} MB in {len(sizes) // 2} packages\n")  # fmt: skip
    largest = sorted(sizes.items(), key=lambda one: -one[1])[:8]
    print(table(["package", "MB"], [[name, f"{size:.1f}"] for name, size in largest]))


def measure(
    broker: BrokerProcess, folder: Path, house: House | None, arguments: argparse.Namespace
) -> None:
    """Print both tables for a fleet on one broker."""
    commands = {**FLOORS, **COMMANDS}
    if arguments.peer:
        command = shlex.split(arguments.peer)
        commands[" ".join([Path(command[0]).name, *command[1:]])] = command
    with fleet_on(broker, folder, house) as (fleet, pids), bystanders() as others:
        rows = idle_rows({**pids, **others}, arguments.idle)
        print(
            table(["idle", "RSS MiB", "PSS MiB", "% of a core", "wakes/s"], rows), "\n", flush=True
        )
        environment = {**fleet.environment, "NO_COLOR": "1"}
        rows = command_rows(commands, environment, arguments.repeats)
    print(table(["command", "wall ms", "processor ms", "x pass"], rows), "\n", flush=True)


def main() -> None:
    """Measure with each broker that is here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to leave it alone")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--peer", help="a command to run beside ours")
    parser.add_argument("--install", action="store_true", help="measure pip install as well")
    parser.add_argument("--quick", action="store_true", help="10 s, five rounds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.idle, arguments.repeats = 10.0, 5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for package in PACKAGES:  # as pip does: else each start pays for it, with memory as well
        compileall.compile_dir(ROOT / package, quiet=1)
    print(machine("paho-mqtt", "pydantic", "click", "rich"), "\n")
    with tempfile.TemporaryDirectory() as name:
        brokers: dict[str, tuple[BrokerProcess, House | None]] = {
            "embedded broker": (embedded(), None)
        }
        if shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin"):
            house = House.make(Path(name, "house"))
            brokers["mosquitto"] = (mosquitto(Path(name)), None)
            brokers["mosquitto, TLS"] = (mosquitto_tls(house), house)
        for title, (broker, certified) in brokers.items():
            print(f"### {title}\n")
            measure(broker, Path(name, title.replace(" ", "-")), certified, arguments)
    if arguments.install:
        install()


if __name__ == "__main__":
    main()
