"""How large a fleet one coordinator bears: simulated hosts on mosquitto, and what they cost.

    python -m benchmarks.scale [--hosts 100,1000,10000] [--jobs 100] [--steady 60] [--repeats 5]
        [--parts steady,verbs,coordinator,broker]

mosquitto runs with the files of `fleet broker config mosquitto --loopback`, the coordinator as it
does for everybody; the hosts are `benchmarks.swarm`: real connections, real messages, no trainers.
Some of them hold a job, and say how far it is every ten seconds. For each size: what a steady fleet
costs; how long it takes after the coordinator, or the broker, was killed, until every host is known
again, to its first heartbeat, and what is lacking of those that are late; what has become of the
jobs; how long `fleet status` and `fleet workers` take. The floor is a bare subscriber that counts
the same heartbeats.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from benchmarks.common import cpu_s, machine, numbers, peak_mib, rss_mib, table, words
from benchmarks.swarm import name_of
from broker.protocol.messages import AskStatus, AskWorkers
from broker.protocol.topics import Topics
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone, Unreachable
from tests.harness import secured_brokers
from tests.harness.fleet import Fleet, Program

HOSTS_A_PROCESS: Final = 2_500
DEADLINE_S: Final = 180.0
LATE_S: Final = 15.0  # a coordinator that was restarted is to know every host by then
LOOK_S: Final = 0.25
JOB: Final = 'name = "j{n}"\nmodel = "gbt"\nmode = "realistic"\nhyper.lr = {lr:.6f}'


class Swarm:
    """The processes of the swarm, and what they said last."""

    def __init__(self) -> None:
        """Start with none."""
        self.said: list[dict[str, int]] = []
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, port: int, root: str, hosts: int) -> None:
        """Start them; they connect within some seconds."""
        spread_s = max(2.0, hosts / 1000)
        for index, first in enumerate(range(0, hosts, HOSTS_A_PROCESS)):
            options = {
                "port": port, "root": root, "hosts": min(HOSTS_A_PROCESS, hosts - first),
                "first": first, "source": f"127.0.0.{2 + index}", "spread": spread_s,
            }  # fmt: skip
            flags = [f"--{name}={value}" for name, value in options.items()]
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.swarm", *flags],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self._processes.append(process)
            self.said.append({})
            threading.Thread(target=self._read, args=(index, process), daemon=True).start()

    def _read(self, index: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.said[index] = json.loads(line)

    def counts(self) -> Counter[str]:
        """Return what all of them count, as of the last second."""
        return sum((Counter(one) for one in self.said), Counter())

    def cpu_s(self) -> float:
        """Return the seconds of a core that they have used."""
        return sum(cpu_s(process.pid) for process in self._processes)

    def end(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.wait()


class Scene:
    """mosquitto, a coordinator and a swarm, for one number of hosts."""

    def __init__(self, folder: Path, hosts: int, jobs: int) -> None:
        """Start broker and coordinator."""
        self.hosts, self.jobs, self.folder = hosts, jobs, folder
        made = folder / "broker"
        made.mkdir()
        names = tuple(name_of(number) for number in range(hosts))
        self.broker = secured_brokers.mosquitto(made, people=(), hosts=names, loopback=True)
        self.broker.launch()
        self.port = self.broker.ports.loopback
        self.fleet = Fleet(folder, f"mqtt://127.0.0.1:{self.port}", folder)
        self.fleet.root = self.fleet.environment["FLEET_TOPIC_ROOT"] = Topics().root
        self.plan(0)
        self.coordinator = self._start_coordinator()
        self.client = self._client()
        self.swarm = Swarm()

    @property
    def broker_pid(self) -> int:
        """The broker's process, whichever it is by now."""
        return 0 if self.broker.process is None else self.broker.process.pid

    def plan(self, jobs: int) -> None:
        """Write a manifest of so many jobs."""
        self.fleet.plan(*(JOB.format(n=n, lr=0.001 + n * 1e-6) for n in range(jobs)))

    def _start_coordinator(self) -> Program:
        return self.fleet.coordinator()

    def _client(self) -> OperatorClient:
        settings = BrokerSettings(url=self.fleet.broker_url, topic_root=self.fleet.root)
        client = OperatorClient(settings, 20.0, patient=True)
        client.__enter__()
        return client

    def join(self) -> float:
        """Let the hosts come; return the seconds until all are known."""
        begun_s = time.monotonic()
        self.swarm.start(self.port, self.fleet.root, self.hosts)
        return self.until_known(begun_s)

    def until_known(self, begun_s: float) -> float:
        """Return the seconds from `begun_s` until each host has joined, by the coordinator."""
        hosts, told = self.hosts, False

        def known() -> int:
            nonlocal told
            if not told and time.monotonic() - begun_s > LATE_S:
                told = True
                print(f"after {LATE_S:.0f} s {self._lacking()}", file=sys.stderr, flush=True)
            return sum(1 for _ in takewhile(_is_known, self.workers(brief=True)))

        self._until(lambda: self.client.ask(AskStatus(id=new_id()))["hosts"]["online"], hosts)
        self._until(known, hosts)
        return time.monotonic() - begun_s

    def _lacking(self) -> str:
        """Say what is lacking of the hosts that are not known."""
        late = [row for row in self.workers(brief=False) if not _is_known(row)]
        lacks = Counter("a heartbeat" if row["capability"] else "all" for row in late)
        return f"{len(late)} hosts are not known, and lack: {dict(lacks)}"

    def drops(self) -> int:
        """Return how often mosquitto has begun to drop what did not fit."""
        log = self.broker.log
        return 0 if log is None else log.read_text("utf-8", "replace").count("are being dropped")

    def _until(self, look: Callable[[], int], wanted: int) -> None:
        deadline_s, found = time.monotonic() + DEADLINE_S, 0
        while True:
            with contextlib.suppress(Unreachable, NotDone):
                if (found := look()) >= wanted:
                    return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{found} of {wanted}, and no more")
            time.sleep(LOOK_S)

    def workers(self, *, brief: bool) -> Iterator[dict[str, Any]]:
        """Yield the row of every host."""
        offset: int | None = 0
        while offset is not None:
            ask = AskWorkers(id=new_id(), offset=offset, limit=500, brief=brief)
            page = self.client.ask(ask)
            yield from page["workers"]
            offset = page["next"]

    def give_jobs(self) -> float:
        """Plan the jobs; return the seconds until all of them run."""
        self.plan(self.jobs)
        begun_s = time.monotonic()
        self.coordinator.process.send_signal(signal.SIGHUP)
        self._until(lambda: len(self.held()), self.jobs)
        return time.monotonic() - begun_s

    def held(self) -> set[tuple[str, int, str]]:
        """Return the jobs that run: each with its attempt and host."""
        rows = self.client.list_jobs(("running",)) if self.jobs else []
        return {(row["job_id"], row["attempt"], row["host"]) for row in rows}

    def restart_coordinator(self) -> float:
        """Kill the coordinator; return the seconds from its start until all are known."""
        self.coordinator.kill()
        begun_s = time.monotonic()
        self.coordinator = self._start_coordinator()
        return self.until_known(begun_s)

    def restart_broker(self) -> float:
        """Kill the broker; return the seconds from then until all are known again."""
        begun_s = time.monotonic()
        self.broker.end(signal.SIGKILL)
        self.broker.launch()
        return self.until_known(begun_s)

    def timed(self, *verb: str) -> tuple[float, int]:
        """Run a verb of the command line; return its seconds and the bytes that it printed."""
        command = [sys.executable, "-m", "coordinator.cli", *verb, "--timeout", "60"]
        begun_s = time.monotonic()
        done = subprocess.run(
            command, env=self.fleet.environment, stdout=subprocess.PIPE, check=True
        )
        return time.monotonic() - begun_s, len(done.stdout)

    def close(self) -> None:
        """End all of it."""
        self.swarm.end()
        self.client.__exit__()
        self.fleet.close()
        self.broker.end(signal.SIGKILL)


def _is_known(row: dict[str, Any]) -> bool:
    return bool(row["presence"] == "online")


def steady(scene: Scene, seconds: float) -> dict[str, float]:
    """Return what a steady fleet costs: percent of a core, and MiB."""
    floor = subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.swarm.count", f"--port={scene.port}",
            f"--root={scene.fleet.root}",
        ],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        if floor.stdout is not None:
            floor.stdout.readline()
        pids = {
            "coordinator": scene.coordinator.process.pid,
            "floor": floor.pid,
            "broker": scene.broker_pid,
        }
        begun_s, before = time.monotonic(), {name: cpu_s(pid) for name, pid in pids.items()}
        swarm_s, counts = scene.swarm.cpu_s(), scene.swarm.counts()
        time.sleep(seconds)
        took_s = time.monotonic() - begun_s
        found = {
            f"{name} %": 100 * (cpu_s(pid) - before[name]) / took_s for name, pid in pids.items()
        }
        found |= {f"{name} MiB": rss_mib(pid) for name, pid in pids.items()}
        now = scene.swarm.counts()
        found["swarm %"] = 100 * (scene.swarm.cpu_s() - swarm_s) / took_s
        found["beats/s"] = (now["beats"] - counts["beats"]) / took_s
        found["progress/s"] = (now["progress"] - counts["progress"]) / took_s
        return found
    finally:
        floor.kill()
        floor.wait()


Note = Callable[[str, object], None]


def measure(arguments: argparse.Namespace, hosts: int) -> dict[str, object]:
    """Measure one size; each figure is told as it comes, on standard error."""
    found: dict[str, object] = {}

    def note(name: str, value: object) -> None:
        found[name] = round(value, 2) if isinstance(value, float) else value
        print(f"{hosts:6} hosts: {name}: {found[name]}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="scale-", ignore_cleanup_errors=True) as name:
        scene = Scene(Path(name), hosts, min(arguments.jobs, hosts))
        try:
            note("all join, s", scene.join())
            note("jobs run after, s", scene.give_jobs())
            for part in arguments.parts:
                PARTS[part](scene, arguments, note)
            note("load", os.getloadavg()[0])
        finally:
            scene.close()
    return found


def note_steady(scene: Scene, arguments: argparse.Namespace, note: Note) -> None:
    """What a steady fleet costs."""
    for key, value in steady(scene, arguments.steady).items():
        note(key, value)


def note_verbs(scene: Scene, arguments: argparse.Namespace, note: Note) -> None:
    """How long operators wait."""
    for verb in (("status",), ("workers",), ("why", "j0")):
        runs = [scene.timed(*verb) for _ in range(arguments.repeats)]
        note(f"fleet {verb[0]}, s", statistics.median(run[0] for run in runs))
        note(f"fleet {verb[0]}, KiB", runs[-1][1] / 1024)


def note_restarts(
    scene: Scene, arguments: argparse.Namespace, note: Note, who: str, restart: Callable[[], float]
) -> None:
    """Kill `who` again and again."""
    before, said, drops = scene.held(), scene.swarm.counts(), scene.drops()
    times, cpu, kept, most = [], [], [], []
    for _ in range(arguments.repeats):
        used_s = cpu_s(scene.coordinator.process.pid)
        times.append(restart())
        now_s = cpu_s(scene.coordinator.process.pid)
        cpu.append(now_s if who == "coordinator" else now_s - used_s)
        kept.append(len(before & scene.held()))
        most.append(peak_mib(scene.coordinator.process.pid))
    time.sleep(2)  # until the swarm has counted
    said = scene.swarm.counts() - said
    note(f"{who} killed: all known after, s", statistics.median(times))
    note("  from, s", min(times))
    note("  to, s", max(times))
    note("  of that the coordinator's CPU, s", statistics.median(cpu))
    note("  coordinator at most, MiB", max(most))
    note("  jobs kept", f"{min(kept)} of {len(before)}")
    each = scene.hosts * arguments.repeats
    note("  births of each host", said["births"] / each)
    note("  births without capability", said["short births"] / each)
    note("  hosts asked for theirs", said["rebirths"] / arguments.repeats)
    note("  mosquitto dropped messages, times", scene.drops() - drops)


def note_coordinator(scene: Scene, arguments: argparse.Namespace, note: Note) -> None:
    """The coordinator is killed and started."""
    note_restarts(scene, arguments, note, "coordinator", scene.restart_coordinator)


def note_broker(scene: Scene, arguments: argparse.Namespace, note: Note) -> None:
    """The broker is killed and started."""
    note_restarts(scene, arguments, note, "broker", scene.restart_broker)


PARTS: Final = {
    "steady": note_steady,
    "verbs": note_verbs,
    "coordinator": note_coordinator,
    "broker": note_broker,
}


def main() -> None:
    """Measure each size, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--hosts", type=numbers, default=[100, 1000, 10_000])
    parser.add_argument("--jobs", type=int, default=100, help="that hosts hold meanwhile")
    parser.add_argument("--steady", type=float, default=60.0, help="seconds of steady beat")
    parser.add_argument("--repeats", type=int, default=5, help="of each restart and verb")
    parser.add_argument("--parts", type=words, default=list(PARTS), help="some of them")
    arguments = parser.parse_args()
    sizes = arguments.hosts
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < max(sizes) + 500:
        sys.exit(f"ulimit -n is {most}; {max(sizes)} hosts need more")
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent))
    found = {hosts: measure(arguments, hosts) for hosts in sizes}
    names = list(dict.fromkeys(name for one in found.values() for name in one))
    rows = [[name, *(one.get(name, "-") for one in found.values())] for name in names]
    print(machine("paho-mqtt", "pydantic"))
    print(table(["", *(f"{hosts:,} hosts" for hosts in found)], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
