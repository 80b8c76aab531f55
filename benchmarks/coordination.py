"""The coordinator's part of a job alone: a host that answers at once, and no trainer, no agent.

    python -m benchmarks.coordination [--jobs 500] [--single 200] [--slots 2] [--repeats 5]
        [--broker embedded] [--profile FILE]

One connection asks for jobs and is the host that is given them: it says accepted, started and
finished in one go, with a small bundle. So nobody competes with the coordinator for the cores but
the broker and this program. Measured from here: from the request, or the report that frees a slot,
to the assignment; from that report to `completed`. Both pass the broker twice, as the two floors
do: a message to oneself, and `bareclerk.py`, which commits two rows and answers. Processor time is
the coordinator's, or the clerk's, without its start. Medians of the rounds, and their range.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import machine, median, percentile, table
from benchmarks.swarm import mqtt
from broker.protocol.messages import (
    Accepted,
    AskReload,
    AskRun,
    Capability,
    Finished,
    Heartbeat,
    Started,
    Status,
    TrainerInfo,
    Wire,
    encode,
)
from broker.protocol.topics import CLIENT_PREFIX, LOCAL_USER, Topics
from tests.harness.brokers import BrokerProcess, embedded, mosquitto
from tests.harness.fleet import Fleet, Program

PAUSE_S = 0.05
DEADLINE_S = 100.0
BEAT_S = 30.0
GIB = 1 << 30
TRAINER = "nothing"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
_SCHEMA_TOML = '{ type = "object", properties = { n = { type = "integer" } } }'
CONFIG = f'[trainers.{TRAINER}]\ncommand = ["true"]\nschema = {_SCHEMA_TOML}\n'


Line = tuple[float | None, ...]
"""What a round has measured: the columns of the table but for its first, ms."""


class Caller(mqtt.Connection):
    """Asks the bare clerk, and waits for its answer."""

    def __init__(self, root: str) -> None:
        self._ask_at = f"{root}/ask".encode()
        self._asked_s: dict[str, float] = {}
        self.answered_ms: list[float] = []
        self.changed = asyncio.Event()
        self.ready = asyncio.Event()
        will = mqtt.Message(f"{root}/gone".encode(), b"{}")
        super().__init__(
            mqtt.connect(f"{root}-caller", 60, will), mqtt.subscribe([(f"{root}/answer", 1)])
        )

    def on_ready(self) -> None:
        """Answers will be heard."""
        self.ready.set()

    def ask(self, number: int) -> None:
        """Ask for one job."""
        job_id = hashlib.sha256(str(number).encode()).hexdigest()
        self._asked_s[job_id] = time.monotonic()
        asked = json.dumps({"type": "run", "job_id": job_id, "job": _job(number)})
        self.send(mqtt.Message(self._ask_at, asked.encode()))

    def on_message(self, topic: bytes, payload: bytes, *, retained: bool) -> None:  # noqa: ARG002
        """Take an answer."""
        since_s = self._asked_s.pop(json.loads(payload)["job_id"])
        self.answered_ms.append(1e3 * (time.monotonic() - since_s))
        self.changed.set()


class Host(mqtt.Connection):
    """Asks for jobs, is given them, and has them finished at once."""

    def __init__(self, topics: Topics, slots: int) -> None:
        self.name, self._topics = "sim", topics
        self._who = {"session": uuid.uuid4().hex[:16], "instance": uuid.uuid4().hex[:16]}
        client = f"{LOCAL_USER}/bench"
        self._asks_at = topics.operator_request(client)
        self._freed_s: list[float] = []
        self._finished_s: dict[str, float] = {}
        self._slots = slots
        self.to_assign_ms: list[float] = []
        self.to_complete_ms: list[float] = []
        self.echoed_ms: list[float] = []
        self.changed = asyncio.Event()
        self.ready = asyncio.Event()
        will = mqtt.Message(topics.status(self.name).encode(), b"{}")
        filters = [
            (topics.request(self.name), 1), (topics.job("+"), 1), (topics.echo(self.name), 1)
        ]  # fmt: skip
        super().__init__(mqtt.connect(CLIENT_PREFIX + self.name, 60, will), mqtt.subscribe(filters))

    def on_ready(self) -> None:
        """Be born."""
        status = Status(state="online", reason="birth", boot_id="boot", **self._who)
        self._say(self._topics.status(self.name), status, retain=True)
        capability = Capability(
            **self._who, description="", os="Linux", arch="x86_64", python="3.11", cpu="one",
            physical_cores=8, ram_total_bytes=32 * GIB, ram_available_bytes=30 * GIB,
            trainers={TRAINER: TrainerInfo(hyper_schema=SCHEMA)}, data_id="simulated",
            agent_version="0.1.0", slots=self._slots,
        )  # fmt: skip
        self._say(self._topics.capability(self.name), capability, retain=True)
        beat = Heartbeat(
            **self._who, seq=1, ram_available_bytes=30 * GIB, cpu_percent=1.0, load_1m=0.1, jobs=()
        )
        self._say(self._topics.heartbeat(self.name), beat, qos=0)
        self.ready.set()

    def echo(self) -> None:
        """Say something to oneself."""
        self._say(self._topics.echo(self.name), AskReload(id=repr(time.monotonic())))

    def ask(self, ask: Wire) -> None:
        """Ask the coordinator for something."""
        self._freed_s = [time.monotonic()]
        self._say(self._asks_at, ask)

    def forget(self) -> None:
        """Take nothing that was asked for as the cause of the next assignment."""
        self._freed_s = []

    def on_message(self, topic: bytes, payload: bytes, *, retained: bool) -> None:
        """Take an assignment, a row, or what was said to oneself."""
        now_s = time.monotonic()
        if topic.endswith(b"/echo"):
            self.echoed_ms.append(1e3 * (now_s - float(json.loads(payload)["id"])))
            self.changed.set()
        elif b"/jobs/" in topic:
            if b'"state":"completed"' in payload[:400] and not retained:
                job_id = topic.rpartition(b"/")[2].decode()
                if job_id in self._finished_s:
                    since_s = self._finished_s.pop(job_id)
                    self.to_complete_ms.append(1e3 * (now_s - since_s))
                    self.changed.set()
        else:
            message = json.loads(payload)
            if message["type"] == "assign":
                if self._freed_s:
                    self.to_assign_ms.append(1e3 * (now_s - self._freed_s.pop(0)))
                self._carry_out(message)

    def _carry_out(self, assign: dict[str, Any]) -> None:
        about = {
            **self._who, "job_id": assign["job_id"], "attempt": assign["attempt"],
            "receipt": assign["receipt"],
        }  # fmt: skip
        data = hashlib.sha256(assign["job_id"].encode()).digest() * 24
        topic = self._topics.response(self.name)
        self._say(topic, Accepted(id=_id(), request_id=assign["id"], **about))
        self._say(topic, Started(id=_id(), slot=0, pid=4711, **about))
        finished = Finished(
            id=_id(), artifact_id=hashlib.sha256(data).hexdigest(), size_bytes=len(data),
            metrics={}, bundle=base64.b64encode(data).decode(), **about,
        )  # fmt: skip
        self._say(topic, finished)
        at_s = time.monotonic()
        self._finished_s[assign["job_id"]] = at_s
        self._freed_s.append(at_s)

    def _say(self, topic: str, message: Wire, *, qos: int = 1, retain: bool = False) -> None:
        self.send(mqtt.Message(topic.encode(), encode(message), qos, retain))


def _id() -> str:
    return uuid.uuid4().hex[:16]


async def _until(one: Host | Caller, values: list[float], count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(values) < count:
            one.changed.clear()
            await one.changed.wait()


async def of_floors(
    clerk: Program, broker: BrokerProcess, root: str, options: argparse.Namespace
) -> dict[str, Line]:
    """Measure the bare clerk, one request at a time and `--slots` at once."""
    caller = Caller(root)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: caller, broker.host, broker.port)
    await caller.ready.wait()
    lines: dict[str, Line] = {}
    for name, count, pause_s in (
        ("the least, one at a time", options.single, PAUSE_S),
        (f"the least, {options.slots} at once", options.jobs, 0.0),
    ):
        before_s, caller.answered_ms = _cpu_s(clerk), []
        at_once = 1 if pause_s else options.slots
        for number in range(count):
            if pause_s:
                await asyncio.sleep(pause_s)
            caller.ask(number + (0 if pause_s else options.single))
            await _until(caller, caller.answered_ms, number + 2 - at_once)
        await _until(caller, caller.answered_ms, count)
        if count:
            spent_ms = 1e3 * (_cpu_s(clerk) - before_s) / count
            lines[name] = (*_figures(caller.answered_ms), None, None, spent_ms)
    caller.close()
    return lines


async def measure(
    fleet: Fleet, broker: BrokerProcess, options: argparse.Namespace
) -> dict[str, Line]:
    """Run the jobs; return a line of the table for each way."""
    topics = Topics(fleet.root)
    loop = asyncio.get_running_loop()
    host = Host(topics, options.slots)
    await loop.create_connection(lambda: host, broker.host, broker.port)
    await host.ready.wait()
    await asyncio.sleep(1.0)  # for the host to be known
    for number in range(100):
        host.echo()
        await _until(host, host.echoed_ms, number + 1)
    lines: dict[str, Line] = {"to oneself": (*_figures(host.echoed_ms), None, None, None)}
    if options.single:
        before_s = _cpu_s(fleet.programs[0])
        for number in range(1, options.single + 1):
            await asyncio.sleep(PAUSE_S)
            host.ask(AskRun(id=_id(), job=_job(-number)))
            await _until(host, host.to_complete_ms, number)
        lines["one at a time"] = _line(host, fleet, before_s, options.single)
    if options.jobs:
        await asyncio.sleep(1.0)
        host.to_assign_ms, host.to_complete_ms = [], []
        fleet.plan(*(_toml(number) for number in range(options.jobs)))
        before_s = _cpu_s(fleet.programs[0])
        host.ask(AskReload(id=_id()))
        host.forget()
        await _until(host, host.to_complete_ms, options.jobs)
        lines["all at once"] = _line(host, fleet, before_s, options.jobs)
    host.close()
    return lines


def _job(number: int) -> dict[str, Any]:
    return {"name": f"j-{number}", "model": TRAINER, "mode": "oracle", "seed": 10_000 + number}


def _toml(number: int) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in _job(number).items())


def _line(host: Host, fleet: Fleet, before_s: float, count: int) -> Line:
    spent_ms = 1e3 * (_cpu_s(fleet.programs[0]) - before_s) / count
    return (*_figures(host.to_assign_ms), *_figures(host.to_complete_ms), spent_ms)


def _figures(values: list[float]) -> tuple[float, float]:
    return percentile(values, 50), percentile(values, 99)


def _cpu_s(program: Program) -> float:
    used = psutil.Process(program.process.pid).cpu_times()
    return float(used.user + used.system)


@contextlib.contextmanager
def _profiled(fleet: Fleet, path: Path | None) -> Iterator[None]:
    """Have py-spy write stacks of the coordinator, one a line with how often it was seen."""
    if path is None:
        yield
        return
    program = shutil.which("py-spy") or "py-spy"
    pid = fleet.programs[0].process.pid
    spy = subprocess.Popen(
        [program, "record", "-f", "raw", "-r", "500", "-t", "-n", "-o", path, "-p", str(pid)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield
    spy.send_signal(2)
    spy.wait()


def once(folder: Path, options: argparse.Namespace) -> dict[str, Line]:
    """Measure floors and coordinator once, on a broker of their own."""
    folder.mkdir()
    broker = embedded() if options.broker == "embedded" else mosquitto(folder)
    broker.start()
    fleet = Fleet(folder, broker.url, folder / "data")
    root, file = uuid.uuid4().hex[:12], folder / "clerk.db"
    clerk = Program(
        "benchmarks.bareclerk", [broker.host, str(broker.port), root, str(file)],
        dict(os.environ), folder / "clerk.log",
    )  # fmt: skip
    clerk.start()
    try:
        fleet.plan()
        fleet.coordinator(more=CONFIG)
        lines = asyncio.run(of_floors(clerk, broker, root, options))
        with _profiled(fleet, options.profile):
            return lines | asyncio.run(measure(fleet, broker, options))
    finally:
        clerk.kill()
        fleet.close()
        broker.end()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500, help="all at once")
    parser.add_argument("--single", type=int, default=200, help="one at a time")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--broker", choices=["mosquitto", "embedded"], default="mosquitto")
    parser.add_argument("--profile", type=Path, help="of the coordinator, by py-spy")
    options = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory(prefix="fleet-coordination-") as name:
        rounds = [once(Path(name) / str(number), options) for number in range(options.repeats)]
    print(machine("paho-mqtt"), end="\n\n")
    header = ["", "to the answer or assignment, ms p50", "p99", "to completed, ms p50", "p99",
              "CPU ms a job"]  # fmt: skip
    rows = []
    for way in rounds[0]:
        columns = zip(*(one[way] for one in rounds), strict=True)
        rows.append([way, *("" if None in column else median(column) for column in columns)])
    print(table(header, rows))


if __name__ == "__main__":
    main()
