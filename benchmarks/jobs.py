"""What a job costs besides its training: a thousand jobs that do nothing, here and with the peers.

    python -m benchmarks.jobs [--agents 1,4,16] [--broker mosquitto,embedded] [--peers FOLDER]

Two things are measured of each. One at a time: from the moment a job is asked for, on a fleet that
is idle, until its program's first instruction, and from its last until the asker hears `completed`.
All at once: jobs a second, from the moment the plan is handed over until all are completed. The
floor is fork and exec of the same program in a loop, bare and with two durable SQLite transactions
around each. FOLDER is a virtual environment that has the peers (benchmarks/README.md tells how it
is made); a peer that is not installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import child
from benchmarks.common import machine, numbers, percentile, prepared, table, words
from benchmarks.peers import PEERS, Peer
from broker.protocol.messages import AskReload, AskRun
from broker.system.machine import new_id
from tests.harness.brokers import BrokerProcess, embedded, mosquitto
from tests.harness.fleet import Fleet

DEADLINE_S = 300.0
PAUSE_S = 0.05
SCHEMA = '{ type = "object", properties = { n = { type = "integer" } } }'


@dataclass
class Figures:
    """What one side measured: milliseconds of each single job, jobs a second of each run."""

    starts_ms: list[float] = field(default_factory=list)
    ends_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    # A job's, of each run: the coordinator's, the agents', of what these run.
    cpu_ms: list[tuple[float, float, float]] = field(default_factory=list)

    def row(self, name: str) -> list[str]:
        """Return a line of the table."""
        cpu_ms = [statistics.median(part) for part in zip(*self.cpu_ms, strict=True)]
        return [
            name, _two(self.starts_ms), _two(self.ends_ms),
            f"{statistics.median(self.rates):.3g} ({min(self.rates):.3g} to {max(self.rates):.3g})"
            if self.rates else "",
            f"{sum(cpu_ms):.1f} = {' + '.join(f'{ms:.1f}' for ms in cpu_ms)}" if cpu_ms else "",
        ]  # fmt: skip


def _two(values: list[float]) -> str:
    if not values:
        return ""
    return f"{percentile(values, 50):.1f} / {percentile(values, 99):.1f}"


class Watcher:
    """Hears of every job's state, with as little work as can be; the rows are read afterwards."""

    def __init__(self, fleet: Fleet) -> None:
        at = urlsplit(fleet.broker_url)
        self._rows: list[tuple[float, bytes | bytearray]] = []
        self._changed = threading.Condition()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"watcher-{new_id()}")
        self._client.on_message = self._on_message
        self._client.connect(at.hostname or "", at.port or 1883)
        self._client.subscribe(f"{fleet.root}/jobs/+", 1)
        self._client.loop_start()

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        if b'"state":"completed"' in message.payload[:400]:
            with self._changed:
                self._rows.append((time.monotonic(), message.payload))
                self._changed.notify_all()

    def wait(self, count: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until so many jobs are completed. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._rows) >= count, deadline_s):
                raise TimeoutError(f"{len(self._rows)} of {count} jobs were completed")

    def completed(self) -> dict[int, float]:
        """Return when each job was heard to be completed."""
        with self._changed:
            rows = list(self._rows)
        return {int(json.loads(row)["name"].rpartition("-")[2]): at for at, row in rows}

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()


def job_table(number: int) -> dict[str, Any]:
    """Return the entry of one job."""
    return {"name": f"j-{number}", "model": "nothing", "seed": number}


def _toml(number: int) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in job_table(number).items())


@contextlib.contextmanager
def running(
    broker: BrokerProcess,
    folder: Path,
    data: Path,
    program: list[str],
    agents: int,
    slots: int,
) -> Iterator[tuple[Fleet, Watcher]]:
    """Run broker, coordinator and agents, each a process, until the context ends."""
    broker.start()
    fleet = Fleet(folder, broker.url, data)
    # Not a word of its own: a file that changes would be part of the trainer's version.
    command = json.dumps([*program, f"--times={folder / 'times'}"])
    trainer = f"[trainers.nothing]\ncommand = {command}\nschema = {SCHEMA}\n"
    watcher = None
    try:
        fleet.plan()
        fleet.coordinator(more=trainer)
        for number in range(agents):
            fleet.agent(f"h{number}", more=trainer, heartbeat_s=30.0, slots=slots)
        watcher = Watcher(fleet)
        yield fleet, watcher
    finally:
        if watcher is not None:
            watcher.close()
        fleet.close()
        broker.end()


def one_at_a_time(fleet: Fleet, watcher: Watcher, count: int, figures: Figures) -> None:
    """Ask for one job after the other, each when the fleet is idle again."""
    asked = {}
    for number in range(1, count + 1):
        time.sleep(PAUSE_S)
        asked[number] = time.monotonic()
        fleet.client.ask(AskRun(id=new_id(), job=job_table(number)))
        watcher.wait(number)
    times, heard = child.times_of(fleet.tmp / "times"), watcher.completed()
    figures.starts_ms += [1e3 * (times[n][0] - asked[n]) for n in asked]
    figures.ends_ms += [1e3 * (heard[n] - times[n][1]) for n in asked]


def all_at_once(fleet: Fleet, watcher: Watcher, count: int, figures: Figures) -> None:
    """Hand over a plan of so many jobs, and wait for the last of them."""
    fleet.plan(*(_toml(number) for number in range(1, count + 1)))
    before_s = _cpu_s(fleet)
    begun_s = time.monotonic()
    fleet.client.ask(AskReload(id=new_id()))
    watcher.wait(count)
    figures.rates.append(count / (time.monotonic() - begun_s))
    used_s = zip(before_s, _cpu_s(fleet))
    coordinator, agents, below = (1e3 * (after_s - one_s) / count for one_s, after_s in used_s)
    figures.cpu_ms.append((coordinator, agents, below))
    if len(child.times_of(fleet.tmp / "times")) != count:
        raise AssertionError("a job did not run, or ran twice")


def _cpu_s(fleet: Fleet) -> tuple[float, float, float]:
    """Return processor seconds: of the coordinator, of the agents, of keepers and trainers."""
    own_s = {"coordinator": 0.0, "agent": 0.0}
    below_s = 0.0
    for program in fleet.programs:
        process = psutil.Process(program.process.pid)
        used = process.cpu_times()
        own_s[program.module.partition(".")[0]] += used.user + used.system
        below_s += used.children_user + used.children_system
        for one in process.children(recursive=True):
            used = one.cpu_times()
            below_s += used.user + used.system + used.children_user + used.children_system
    return own_s["coordinator"], own_s["agent"], below_s


def ours(
    arguments: argparse.Namespace, broker: str, agents: int, folder: Path, figures: Figures
) -> None:
    """Measure the fleet on one broker with so many agents, once more."""
    for count, how in ((arguments.single, one_at_a_time), (arguments.jobs, all_at_once)):
        place = folder / f"{broker}-{agents}-{how.__name__}"
        place.mkdir()
        process = embedded() if broker == "embedded" else mosquitto(place)
        slots = arguments.slots if agents == 1 else 1
        data = folder.parent / "data"
        fleet_of = running(process, place, data, arguments.program, agents, slots)
        with fleet_of as (fleet, watcher):
            if count:
                how(fleet, watcher, count, figures)


def floor(program: list[str], count: int, folder: Path, figures: Figures, *, ledger: bool) -> None:
    """Fork and exec the program, one after the other, bare or between durable transactions."""
    place = folder / f"floor-{ledger}"
    place.mkdir()
    database = sqlite3.connect(place / "ledger.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE jobs (number INTEGER PRIMARY KEY, state TEXT)")
    asked, ended = {}, {}
    for number in range(1, count + 1):
        asked[number] = time.monotonic()
        if ledger:
            database.execute("INSERT INTO jobs VALUES (?, 'running')", (number,))
        out = f"--out-dir={place / str(number)}"
        subprocess.run([*program, str(place / "times"), f"--seed={number}", out], check=True)
        if ledger:
            database.execute("UPDATE jobs SET state = 'completed' WHERE number = ?", (number,))
        ended[number] = time.monotonic()
    database.close()
    times = child.times_of(place / "times")
    figures.starts_ms += [1e3 * (times[n][0] - asked[n]) for n in asked]
    figures.ends_ms += [1e3 * (ended[n] - times[n][1]) for n in asked]
    figures.rates.append(count / (ended[count] - asked[1]))


def peer(one: Peer, arguments: argparse.Namespace, folder: Path, figures: Figures) -> None:
    """Run a peer's program, which prints what it measured as a line of JSON."""
    place = folder / one.name
    place.mkdir()
    done = subprocess.run(
        [
            str(one.python(arguments.peers)), *one.script, str(place),
            str(min(arguments.single, one.most_single)), str(min(arguments.jobs, one.most_jobs)),
            str(arguments.slots), *arguments.program,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=2 * DEADLINE_S, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout.splitlines()[-1])
    figures.starts_ms += said["starts_ms"]
    figures.ends_ms += said["ends_ms"]
    figures.rates += said["rates"]


def sides(
    arguments: argparse.Namespace,
) -> Iterator[tuple[str, Callable[[Path, Figures], None]]]:
    """Yield each side's name, and what measures it once, in an empty folder."""
    bare = functools.partial(floor, arguments.program, arguments.jobs)
    yield "fork and exec", functools.partial(bare, ledger=False)
    yield "with two SQLite transactions each", functools.partial(bare, ledger=True)
    for broker, agents in itertools.product(arguments.broker, arguments.agents):
        name = f"the fleet, {broker}, {agents} agent{'s' * (agents > 1)}"
        yield name, functools.partial(ours, arguments, broker, agents)
    for one in PEERS if arguments.peers else ():
        if arguments.only and one.name not in arguments.only:
            continue
        if (why := one.missing(arguments.peers, arguments.program)) is not None:
            print(f"{one.name}: left out: {why}")
            continue
        yield one.name, functools.partial(peer, one, arguments)


def measure(arguments: argparse.Namespace, folder: Path) -> list[list[str]]:
    """Measure all sides by turns, several rounds; return the lines of the table."""
    all_sides = list(sides(arguments))
    figures = {name: Figures() for name, _ in all_sides}
    for run in range(arguments.repeats):
        for number, (name, once) in enumerate(all_sides):
            at = folder / f"run-{run}-{number}"
            at.mkdir()
            try:
                once(at, figures[name])
            except (subprocess.SubprocessError, ValueError) as error:
                print(f"{name}: a round is left out: {error}")
                continue
            print(" | ".join(figures[name].row(name)), file=sys.stderr, flush=True)
    return [of.row(name) for name, of in figures.items()]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=numbers, default=[1, 4, 16])
    parser.add_argument("--slots", type=int, default=2, help="of a single agent, and of the peers")
    parser.add_argument("--jobs", type=int, default=1000, help="all at once")
    parser.add_argument("--single", type=int, default=200, help="one at a time")
    parser.add_argument("--broker", type=words, default=["mosquitto", "embedded"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--child", choices=["static", "python"], default="static")
    parser.add_argument("--peers", type=Path, help="a virtual environment with the peers")
    names = ", ".join(one.name for one in PEERS)
    parser.add_argument("--only", type=words, help=f"of the peers: {names}")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.jobs, arguments.single = arguments.jobs // 10, arguments.single // 10
    return arguments


def main() -> None:
    """Print the table."""
    arguments = _options()
    with tempfile.TemporaryDirectory(prefix="fleet-jobs-") as name:
        folder = Path(name)
        arguments.program = child.static(folder) if arguments.child == "static" else None
        arguments.program = arguments.program or child.python()
        prepared(folder, 4, 2, 400)  # without data no agent takes a job
        rows = measure(arguments, folder)
    print(machine("paho-mqtt", "amqtt"), end="\n\n")
    header = ["", "asked to first instruction, ms p50 / p99", "last instruction to completed, ms",
              "jobs a second",
              "CPU ms a job = coordinator + agents + keepers and children"]  # fmt: skip
    print(table(header, rows))


if __name__ == "__main__":
    main()
