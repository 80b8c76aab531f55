"""Real trainings on real processes, while somebody pulls plugs: nothing may be lost or doubled."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from broker.errors import FleetError
from tests.harness.brokers import BrokerProcess, embedded, mosquitto
from tests.harness.fleet import ROOT, Fleet, Program, prepared_data

from .namespace import Namespace
from .proxy import Proxy

STALE_S: Final = 8.0
STORE_BYTES: Final = 160 * 1024 * 1024
FINAL: Final = frozenset({"completed", "failed", "cancelled"})

# What it is called, how often it is chosen, and what does it and tells what was hit.
Strike = tuple[str, int, Callable[[], str | None]]


@dataclass
class Report:
    broker: str
    jobs: int
    seed: int
    wanted: int = 0
    states: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def is_good(self) -> bool:
        """Whether every job was completed once, its artifact is whole, and `fsck` finds nothing."""
        return not (self.lost or self.doubled or self.unverified or self.findings)

    def lines(self) -> list[str]:
        strikes = ", ".join(f"{count} {kind}" for kind, count in self.strikes.most_common())
        return [
            f"broker     {self.broker}, seed {self.seed}",
            f"jobs       {self.jobs} in {self.took_s:.0f} s: {dict(self.states)}",
            f"attempts   {self.attempts}",
            f"strikes    {sum(self.strikes.values())} of {self.wanted}: {strikes}",
            f"lost       {len(self.lost)} {self.lost[:5] or ''}",
            f"doubled    {len(self.doubled)} {self.doubled[:5] or ''}",
            f"unverified {len(self.unverified)} {self.unverified[:5] or ''}",
            f"fsck       {len(self.findings)} {self.findings[:5] or ''}",
        ]


class Campaign:
    """One fleet under attack. Use as a context manager: whatever happens, everything is ended."""

    def __init__(self, folder: Path, *, broker: str, jobs: int, agents: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self.report = self._report(broker, jobs, seed)
        self._stack = contextlib.ExitStack()
        self._folder = folder
        self._broker: BrokerProcess = embedded() if broker == "embedded" else mosquitto(folder)
        self._broker.start()
        self._stack.callback(self._end_broker)
        self._proxy = Proxy(self._broker.port)
        self._stack.callback(self._proxy.stop)
        self._hosts = [f"host{number}" for number in range(agents)]
        self._namespace = self._separate()
        # One before each program, all of them behind that before the broker.
        self._links = {"broker": self._proxy} | {
            name: self._link("127.0.0.1") for name in ("coordinator", *self._hosts)
        }
        if self._namespace is not None:
            self._links[self._hosts[0]] = self._link(self._namespace.address)
        self._fleet = Fleet(folder, f"mqtt://127.0.0.1:{self._proxy.port}", prepared_data(folder))
        self._stack.callback(self._fleet.close)
        self._mounted = self._mount(folder / "coordinator")
        self._fleet.plan(*(self._job(number) for number in range(jobs)))
        self._agents: dict[str, Program] = {}
        self._coordinator: Program | None = None
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._busy: set[str] = set()  # what is being struck, until it is well again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, *, strikes: int, pause_s: tuple[float, float], deadline_s: float) -> Report:
        """Carry out the plan under so many strikes; then leave it in peace until it is done."""
        self.report.wanted = strikes
        begun_s = time.monotonic()
        self._start()
        next_s = begun_s + 3.0
        while not self._is_done() and time.monotonic() - begun_s < deadline_s:
            self._look(0.1)
            now_s = time.monotonic()
            while self._later and self._later[0][0] <= now_s:
                heapq.heappop(self._later)[2]()
            dealt = sum(self.report.strikes.values())
            if dealt < min(strikes, self._most_strikes()) and now_s >= next_s:
                self._strike()
                next_s = now_s + self._rng.uniform(*pause_s)
        self.report.took_s = time.monotonic() - begun_s
        while self._later:  # what is struck still is well again, and ends in order
            heapq.heappop(self._later)[2]()
        self._judge()
        return self.report

    def _start(self) -> None:
        self._coordinator = self._fleet.coordinator(
            broker_url=self._links["coordinator"].url, max_attempts=100, claim_timeout_s=5.0,
            host_timeout_s=4.0, more=self._trainers("coordinator"), **self._leases(),
        )  # fmt: skip
        for host in self._hosts:
            away = self._namespace if host == self._hosts[0] else None
            self._agents[host] = self._fleet.agent(
                host, wait=False, broker_url=self._links[host].url, stop_grace_s=1.0,
                chunk_bytes=4096, prefix=away.prefix if away else (), more=self._trainers(host),
            )  # fmt: skip

    def _is_done(self) -> bool:
        return self._over() == self.report.jobs

    def _over(self) -> int:
        return sum(row["state"] in FINAL for row in self._fleet.rows.values())

    def _look(self, wait_s: float) -> None:
        with contextlib.suppress(FleetError):
            self._fleet.look(wait_s)

    # what another kind of campaign does differently

    def _report(self, broker: str, jobs: int, seed: int) -> Report:
        return Report(broker, jobs, seed)

    def _leases(self) -> dict[str, float]:
        return {"stale_after_s": STALE_S, "sleep_grace_s": STALE_S}

    def _trainers(self, _host: str) -> str:
        """Return the sections of a program's file for trainers besides the usual ones."""
        return ""

    def _job(self, number: int) -> str:
        model = "mlp" if number % 20 == 19 else "gbt"
        return (
            f'name = "job{number:03}"\nmodel = "{model}"\nmode = "oracle"\nseed = {number}\n'
            "hyper.epochs = 2\nn_resamples = 10\nretries = 100"
        )

    def _most_strikes(self) -> float:
        """Return how many strikes there may have been by now, at most."""
        return math.inf

    def _kinds(self) -> list[Strike]:
        return [
            ("SIGKILL agent", 6, lambda: self._end_agent(signal.SIGKILL)),
            ("SIGTERM agent", 2, lambda: self._end_agent(signal.SIGTERM)),
            ("SIGKILL coordinator", 4, self._kill_coordinator),
            ("SIGKILL broker", 2, self._kill_broker),
            ("SIGSTOP agent", 1, self._freeze),
            ("connections cut", 3, self._cut),
            ("network stalled", 1, self._stall),
            ("network slow", 1, self._slow),
            ("cable pulled", 2 if self._namespace else 0, self._pull_the_cable),
            ("bundle corrupted", 4, self._corrupt),
            ("store full", 2 if self._mounted else 0, self._fill),
        ]

    # strikes

    def _strike(self) -> None:
        kinds = self._kinds()
        kind, _, strike = self._rng.choices(kinds, [weight for _, weight, _ in kinds])[0]
        hit = strike()
        if hit is not None:
            self.report.strikes[kind] += 1

    def _after(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._count), call))

    def _hit(self, name: str, for_s: float, heal: Callable[[], object]) -> str | None:
        self._busy.add(name)

        def well() -> None:
            heal()
            self._busy.discard(name)

        self._after(for_s, well)
        return name

    def _ready_host(self) -> str | None:
        """Choose one that is not struck, and has come to itself since: else it never would."""
        free = [host for host in self._hosts if host not in self._busy]
        ready = [host for host in free if self._agents[host].is_ready()]
        return self._rng.choice(ready) if ready else None

    def _end_agent(self, how: int) -> str | None:
        if (host := self._ready_host()) is None:
            return None
        agent = self._agents[host]
        agent.end(how)
        return self._hit(host, self._rng.uniform(0.0, 3.0), lambda: agent.start(wait=False))

    def _freeze(self) -> str | None:
        if (host := self._ready_host()) is None:
            return None
        process = self._agents[host].process
        process.send_signal(signal.SIGSTOP)
        return self._hit(host, STALE_S + 3.0, lambda: process.send_signal(signal.SIGCONT))

    def _kill_coordinator(self) -> str | None:
        coordinator = self._coordinator
        if coordinator is None or "coordinator" in self._busy:
            return None
        coordinator.kill()
        again = self._rng.uniform(0.0, 2.0)
        return self._hit("coordinator", again, lambda: coordinator.start(wait=False))

    def _kill_broker(self) -> str | None:
        if "broker" in self._busy:
            return None
        self._broker.end(signal.SIGKILL)
        return self._hit("broker", self._rng.uniform(0.0, 2.0), self._broker.start)

    def _cut(self) -> str:
        self._proxy.cut()
        return "cut"

    def _stall(self) -> str | None:
        if "network" in self._busy:
            return None
        self._proxy.stall()
        return self._hit("network", self._rng.uniform(1.0, 6.0), self._proxy.flow)

    def _slow(self) -> str | None:
        if "network" in self._busy:
            return None
        self._proxy.bytes_a_second = 30_000.0
        return self._hit("network", self._rng.uniform(2.0, 6.0), self._proxy.flow)

    def _corrupt(self) -> str | None:
        for path in sorted(self._folder.glob("host*/spool/*.tar.zst")):
            with contextlib.suppress(OSError), path.open("r+b") as file:
                file.seek(path.stat().st_size // 2)
                file.write(b"rotten")
                return path.name
        return None

    def _fill(self) -> str | None:
        if "store" in self._busy:
            return None
        ballast = self._folder / "coordinator" / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1024 * 1024))
                file.flush()
        return self._hit("store", 4.0, lambda: ballast.unlink(missing_ok=True))

    def _pull_the_cable(self) -> str | None:
        if "cable" in self._busy or self._namespace is None:
            return None
        self._namespace.pull()
        return self._hit("cable", self._rng.uniform(1.0, 15.0), self._namespace.plug)

    def _separate(self) -> Namespace | None:
        """Give the first host a network of its own, where that is allowed."""
        try:
            namespace = Namespace()
        except OSError:
            return None
        self._stack.callback(namespace.remove)
        return namespace

    def _link(self, address: str) -> Proxy:
        proxy = Proxy(self._proxy.port, address)
        self._stack.callback(proxy.stop)
        return proxy

    def _mount(self, folder: Path) -> bool:
        """Give the coordinator a small disk of its own, where that is allowed."""
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={STORE_BYTES}", "tmpfs", str(folder)]
        if (
            os.geteuid() != 0
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            return False
        unmount = ["umount", "--lazy", str(folder)]
        self._stack.callback(subprocess.run, unmount, capture_output=True, check=False)
        return True

    def _end_broker(self) -> None:
        if self._broker.process is not None and self._broker.process.poll() is None:
            self._broker.end(signal.SIGKILL)

    # the verdict

    def _judge(self) -> None:
        report = self.report
        for row in self._fleet.rows.values():
            report.states[row["state"]] += 1
            report.attempts += row["attempt"]
            if row["state"] != "completed":
                report.lost.append(f"{row['name']} is {row['state']}: {row['error']}")
                continue
            self._verify(row)
        if len(self._fleet.rows) < report.jobs:
            report.lost.append(f"{report.jobs - len(self._fleet.rows)} jobs were never heard of")
        self._check()

    def _check(self) -> None:
        """Have the coordinator leave in order, then compare what it has left on the disk."""
        assert self._coordinator is not None
        self._coordinator.end(signal.SIGTERM)
        state = self._folder / "coordinator"
        command = [sys.executable, "-m", "coordinator.cli", "fsck", "--json"]
        done = subprocess.run(
            [*command, "--state", str(state)], capture_output=True, text=True, timeout=120,
            cwd=ROOT, check=False,
        )  # fmt: skip
        found = json.loads(done.stdout)
        self.report.findings += [f"{one['where']}: {one['what']}" for one in found["findings"]]

    def _verify(self, row: dict[str, Any]) -> None:
        try:
            digest = self._fleet.digest(row)
        except AssertionError:
            digest = ""
        if digest != row["artifact_id"]:
            self.report.unverified.append(row["name"])
        events = self._fleet.show(row["job_id"])["events"]
        started = Counter(one["attempt"] for one in events if one["event"] == "started")
        completed = sum(one["event"] == "completed" for one in events)
        if completed != 1 or any(count > 1 for count in started.values()):
            self.report.doubled.append(row["name"])
