"""A fleet that hands over one large artifact a host: the real coordinator and the real agents.

The bundles are laid into the agents' spools as if earlier processes had left them there. The agents
are started first; the coordinator's birth begins the uploads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil

from benchmarks.common import MIB, cpu_s
from broker.protocol.messages import JOB_ROW, Finished, decode, encode
from broker.protocol.topic_table import Kind
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.client.client import OperatorClient
from coordinator.core.receipts import receipt
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.service.state_files import load_key
from tests.harness.fleet import Fleet, Program

DEADLINE_S: Final = 240.0
LOOK_S: Final = 0.02


@dataclass
class Handover:
    """What was seen of some uploads: `took_s` from the report of each until it was completed."""

    took_s: list[float] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    grown_mib: dict[str, float] = field(default_factory=dict)


class Memory:
    """Watches how much memory processes take beyond what they had at first."""

    def __init__(self, pids: dict[str, list[int]]) -> None:
        """Begin to watch; `pids` by role."""
        self._watched = {
            role: [psutil.Process(pid) for pid in found] for role, found in pids.items()
        }
        self._idle = {
            role: [self._rss(one) for one in seen] for role, seen in self._watched.items()
        }
        self._most = {role: list(idle) for role, idle in self._idle.items()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @staticmethod
    def _rss(process: psutil.Process) -> int:
        with contextlib.suppress(psutil.NoSuchProcess):
            return int(process.memory_info().rss)
        return 0

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            for role, seen in self._watched.items():
                for number, process in enumerate(seen):
                    self._most[role][number] = max(self._most[role][number], self._rss(process))

    def grown_mib(self) -> dict[str, float]:
        """End; return the most that a process of each role has grown by, in MiB."""
        self._stop.set()
        self._thread.join()
        return {
            role: max(most - idle for most, idle in zip(self._most[role], idles, strict=True)) / MIB
            for role, idles in self._idle.items()
        }


def make_bundle(path: Path, size_bytes: int) -> str:
    """Write random bytes; return their sha256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size_bytes, 4 * MIB):
            block = os.urandom(min(4 * MIB, size_bytes - start))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _plan(fleet: Fleet, hosts: list[str]) -> dict[str, str]:
    """Plan a job a host that nobody can be given; return the ids by host."""
    fleet.plan(
        *(
            f'name = "{host}"\nmodel = "gbt"\nmode = "oracle"\nrequire_cuda = true\n'
            f"seed = {number}\nallowed_hosts = ['nobody']"
            for number, host in enumerate(hosts)
        )
    )
    plan = load_manifest(fleet.manifest, builtin_trainers())
    return {job.name: job.job_id for job in plan.jobs}


def _spool(fleet: Fleet, host: str, job_id: str, bundle: Path, artifact_id: str) -> None:
    spool = fleet.tmp / host / "spool"
    spool.mkdir(parents=True)
    os.link(bundle, spool / f"{artifact_id}.tar.zst")
    given = receipt(load_key(fleet.tmp / "coordinator"), host, job_id, 1)
    report = Finished(
        id=new_id(), session="-", instance="-", job_id=job_id, attempt=1, receipt=given,
        artifact_id=artifact_id, size_bytes=bundle.stat().st_size,
    )  # fmt: skip
    (spool / f"{job_id}.1.json").write_bytes(encode(report))


class Uploads:
    """Some hosts with a bundle each, on a broker; used as a context manager."""

    def __init__(
        self,
        folder: Path,
        broker_url: str,
        bundles: list[tuple[Path, str]],
        *,
        module: str = "",
        **settings: object,
    ) -> None:
        """Prepare; `bundles` are (file, sha256), one a host. `module` is what agents run."""
        self._settings = settings
        (folder / "coordinator").mkdir(parents=True)
        data = folder / "data"
        data.mkdir()
        self.fleet = Fleet(folder, broker_url, data)
        self.hosts = [f"host{number}" for number in range(len(bundles))]
        self._module = module
        jobs = _plan(self.fleet, self.hosts)
        self.fleet.coordinator().stop()  # it makes the key of receipts, and the ledger
        for host, (bundle, artifact_id) in zip(self.hosts, bundles, strict=True):
            _spool(self.fleet, host, jobs[host], bundle, artifact_id)
        self.agents: list[Program] = []
        self.coordinator: Program | None = None

    def __enter__(self) -> Self:
        """Start the agents, and wait until they have looked at their machine."""
        for host in self.hosts:
            self.agents.append(self._agent(host))
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.close()

    def _agent(self, host: str) -> Program:
        if not self._module:
            return self.fleet.agent(host, heartbeat_s=0.2, **self._settings)
        program = self.fleet._program  # noqa: SLF001 - the same program under another name
        self.fleet._program = (  # type: ignore[method-assign]  # noqa: SLF001
            lambda _module, *more: program(self._module, *more)
        )
        try:
            return self.fleet.agent(host, heartbeat_s=0.2, **self._settings)
        finally:
            self.fleet._program = program  # type: ignore[method-assign]  # noqa: SLF001

    def hand_over(
        self, broker_cpu_s: Callable[[], float], beside: Callable[[], object] = lambda: None
    ) -> Handover:
        """Start the coordinator, and wait until every job is completed; `beside` runs meanwhile."""
        found = Handover()
        settings = BrokerSettings(url=self.fleet.broker_url, topic_root=self.fleet.root)
        root = self.fleet.root
        watch = [f"{root}/jobs/+", f"{root}/+/job/response"]
        with OperatorClient(settings, 10.0, watch=watch, patient=True) as client:
            self.coordinator = self.fleet.coordinator()
            before = self._cpu_s() | {"broker": broker_cpu_s()}
            memory = Memory(
                {
                    "agent": [one.process.pid for one in self.agents],
                    "coordinator": [self.coordinator.process.pid],
                }
            )
            found.took_s = list(self._until_completed(client, beside))
            found.grown_mib = memory.grown_mib()
            after = self._cpu_s() | {"broker": broker_cpu_s()}
        found.cpu_s = {role: after[role] - before[role] for role in after}
        return found

    def _until_completed(
        self, client: OperatorClient, beside: Callable[[], object]
    ) -> Iterator[float]:
        begun_s: dict[str, float] = {}
        done: set[str] = set()
        deadline_s = time.monotonic() + DEADLINE_S
        while len(done) < len(self.hosts):
            if time.monotonic() > deadline_s:
                said = "\n".join(program.said()[-2000:] for program in self.fleet.programs)
                raise TimeoutError(f"{len(done)} of {len(self.hosts)} uploads came home\n{said}")
            beside()
            for topic, payload in client.messages(LOOK_S):
                now_s = time.monotonic()
                if topic.kind is Kind.RESPONSE and b'"finished"' in payload:
                    begun_s.setdefault(topic.host, now_s)
                elif topic.kind is Kind.JOB and payload:
                    row = decode(JOB_ROW, payload)
                    if row.state == "completed" and row.job_id not in done:
                        done.add(row.job_id)
                        yield now_s - begun_s[row.name]

    def _cpu_s(self) -> dict[str, float]:
        found = {"agent": sum(cpu_s(one.process.pid) for one in self.agents)}
        if self.coordinator is not None:
            found["coordinator"] = cpu_s(self.coordinator.process.pid)
        return found
