"""A simulated host: it says what an agent says, answers what an agent answers, and runs nothing.

The payloads are the messages of `broker.protocol.messages`, encoded once for the whole swarm and
patched for each host. When it connects, reconnects, is asked for its birth, or hears a coordinator
come, it does what `agent.core.reactor` and `broker.client.link` do, jitter and backoff included.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from benchmarks.mqttload import Peer
from broker.clock import backoff_s
from broker.protocol.messages import (
    Accepted,
    Capability,
    Gpu,
    Heartbeat,
    HeldJob,
    Progress,
    Started,
    Status,
    Stopped,
    Wire,
    encode,
)
from broker.protocol.topics import Topics
from coordinator.manifest.builtin import builtin_trainers

KEEPALIVE_S: Final = 20
BIRTH_JITTER_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 10.0
GIB: Final = 1 << 30
_HEX: Final = "f" * 64
_NUMBER: Final = 987_654_321  # stands for a number that is filled in


class Template:
    """A message that is encoded once; `fill` puts values in the places of `marks`."""

    def __init__(self, message: Wire, marks: dict[str, str]) -> None:
        """`marks` are what stands in the JSON, by the name of what is filled in there."""
        text = encode(message).decode().replace("%", "%%")
        for name, mark in marks.items():
            if mark not in text:
                raise ValueError(f"{type(message).__name__} does not hold {mark!r}")
            text = text.replace(mark, f"%({name})s")
        self._text = text

    def fill(self, values: dict[str, Any]) -> bytes:
        """Return the payload."""
        return (self._text % values).encode()


_WHO: Final = {"session": "-session-", "instance": "-instance-"}
_WHOSE: Final = {**_WHO, "job_id": _HEX, "attempt": str(_NUMBER), "receipt": "0" * 32}


def _of_job(kind: type[Any], **fields: Any) -> Any:
    return kind(
        id="-id-", session="-session-", instance="-instance-", job_id=_HEX, attempt=_NUMBER,
        receipt="0" * 32, **fields,
    )  # fmt: skip


class Words:
    """Everything that a host says, encoded: one set for the swarm."""

    def __init__(self) -> None:
        """Encode."""
        who = {"session": "-session-", "instance": "-instance-"}
        gpu = Gpu(
            index=0, name="NVIDIA GeForce RTX 3060", uuid="GPU-" + "0" * 36,
            vram_total_bytes=12 * GIB, vram_free_bytes=11 * GIB, use_percent=3.0, power_w=14.2,
        )  # fmt: skip
        trainers = builtin_trainers()
        status = Status(state="online", boot_id="-boot-", **who)  # type: ignore[arg-type]
        marks = {**_WHO, "boot": "-boot-"}
        self.online = Template(status, marks)
        self.lost = Template(
            status.model_copy(update={"state": "offline", "reason": "lost"}), marks
        )
        self.capability = Template(
            Capability(
                **who, description="simulated", os="Debian GNU/Linux 12", arch="x86_64",
                python="3.11.2", cpu="AMD Ryzen 5 5600X 6-Core Processor", physical_cores=6,
                ram_total_bytes=32 * GIB, ram_available_bytes=30 * GIB, gpus=(gpu,), torch="2.5.1",
                xgboost="2.1.3", trainers=trainers, trainers_commit="0" * 40, data_id="simulated",
                agent_version="0.1.0",
            ),
            _WHO,
        )  # fmt: skip
        held = HeldJob(job_id=_HEX, attempt=1, phase="running", progress=0.5)
        self.beat = Template(
            Heartbeat(
                **who, seq=_NUMBER, ram_available_bytes=30 * GIB, cpu_percent=5.0, load_1m=0.2,
                gpus=(gpu,), jobs=(held,), suspended_s=0.0,
            ),
            {**_WHO, "seq": str(_NUMBER), "jobs": held.model_dump_json()},
        )  # fmt: skip
        asked = {**_WHOSE, "id": "-id-", "request_id": "-request-"}
        self.accepted = Template(_of_job(Accepted, request_id="-request-"), asked)
        self.stopped = Template(_of_job(Stopped, request_id="-request-"), asked)
        self.started = Template(_of_job(Started, slot=0, pid=4711), {**_WHOSE, "id": "-id-"})
        self.progress = Template(
            Progress(
                attempt=_NUMBER, epoch=3, epochs=100, train_loss=0.31, val_loss=0.35, eta_s=60
            ),
            {"attempt": str(_NUMBER)},
        )


@dataclass(slots=True)
class Swarm:
    """What the hosts of one process have in common."""

    port: int
    source: str
    topics: Topics
    words: Words
    beat_s: float
    progress_s: float
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Job:
    job_id: str
    attempt: int
    receipt: str


class Host:
    """One host, over all its connections."""

    def __init__(self, swarm: Swarm, name: str) -> None:
        """Prepare; `start` connects."""
        self._swarm = swarm
        self._loop = asyncio.get_running_loop()
        self.name = name
        self._who = {"instance": uuid.uuid4().hex[:16], "boot": uuid.uuid4().hex[:16]}
        self._failures = 0
        self._seq = 0
        self._coordinator = ("", "")  # its session and instance
        self._link: Peer | None = None
        self._trying: Peer | None = None
        self._jobs: dict[str, _Job] = {}
        self._birth_due: asyncio.TimerHandle | None = None

    def start(self, delay_s: float) -> None:
        """Connect after a while, then beat, ping and report."""
        swarm, later = self._swarm, self._loop.call_later
        later(delay_s, self._connect)
        later(delay_s + swarm.beat_s * swarm.rng.random(), self._beat_again)
        later(delay_s + KEEPALIVE_S * swarm.rng.random(), self._ping_again)

    def holds(self) -> int:
        """Return how many jobs it holds."""
        return len(self._jobs)

    def _connect(self) -> None:
        self._loop.create_task(self._open())

    async def _open(self) -> None:
        swarm, topics = self._swarm, self._swarm.topics
        self._who["session"] = uuid.uuid4().hex[:16]
        will = topics.status(self.name), swarm.words.lost.fill(self._who)
        link = self._trying = Peer(self._heard, self._lost)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await link.connect(
                    swarm.port, topics.client_id(self.name), keepalive_s=KEEPALIVE_S, will=will,
                    source=swarm.source,
                )  # fmt: skip
                await link.subscribe(topics.for_agent(self.name))
        except OSError:
            link.close()
            self._lost(link)
            return
        self._trying, self._link, self._failures = None, link, 0
        swarm.counts["connected"] += 1
        self._birth()

    def _lost(self, link: Peer) -> None:
        """A connection has ended, or was not made: connect again, as `broker.client.link` does."""
        if link is self._link:
            self._link = None
            self._swarm.counts["connected"] -= 1
        elif link is self._trying:
            self._swarm.counts["refused"] += 1
        else:
            return
        self._trying = None
        self._loop.call_later(backoff_s(self._failures, 0.5, 30.0, self._swarm.rng), self._connect)
        self._failures += 1

    def _birth(self, *, whole: bool = True) -> None:
        topics, words = self._swarm.topics, self._swarm.words
        self._swarm.counts["births" if whole else "short births"] += 1
        self._birth_due = None
        self._say(topics.status(self.name), words.online.fill(self._who), retain=True)
        if whole:
            self._say(topics.capability(self.name), words.capability.fill(self._who), retain=True)
        self._beat()

    def _beat(self) -> None:
        self._seq += 1
        held = (
            HeldJob(
                job_id=job.job_id, attempt=job.attempt, phase="running", progress=0.5,
                receipt=job.receipt,
            ).model_dump_json()
            for job in self._jobs.values()
        )  # fmt: skip
        values = {**self._who, "seq": self._seq, "jobs": ",".join(held)}
        topic = self._swarm.topics.heartbeat(self.name)
        self._say(topic, self._swarm.words.beat.fill(values), qos=0)

    def _beat_again(self) -> None:
        if self._link is not None:
            self._swarm.counts["beats"] += 1
            self._beat()
        self._loop.call_later(self._swarm.beat_s, self._beat_again)

    def _ping_again(self) -> None:
        if self._link is not None:
            self._link.ping()
        self._loop.call_later(KEEPALIVE_S, self._ping_again)

    def _progress_again(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is None:
            return
        payload = self._swarm.words.progress.fill({"attempt": job.attempt})
        self._say(self._swarm.topics.progress(self.name, job_id), payload, qos=0, retain=True)
        self._swarm.counts["progress"] += 1
        self._loop.call_later(self._swarm.progress_s, self._progress_again, job_id)

    def _heard(self, link: Peer, topic: bytes, payload: memoryview) -> None:
        """Take a message of the coordinator's."""
        self._swarm.counts["heard"] += 1
        if not payload:
            return
        message = json.loads(bytes(payload))
        if topic.endswith(b"/coordinator/status"):
            self._on_coordinator(message, retained=link.retained)
        elif not link.retained:
            match message.get("type"):
                case "rebirth":
                    self._swarm.counts["rebirths"] += 1
                    self._birth()
                case "assign" if message["instance"] == self._who["instance"]:
                    self._on_assign(message)
                case "cancel":
                    self._jobs.pop(message["job_id"], None)
                    self._report(self._swarm.words.stopped, message)
                    self._swarm.counts["stopped"] += 1

    def _on_coordinator(self, status: dict[str, Any], *, retained: bool) -> None:
        if status["state"] == "online" and status["session"] != self._coordinator[0]:
            whole = status["instance"] != self._coordinator[1]
            self._coordinator = (status["session"], status["instance"])
            if self._birth_due is None and not retained:
                wait_s = BIRTH_JITTER_S * self._swarm.rng.random()
                self._birth_due = self._loop.call_later(wait_s, partial(self._birth, whole=whole))

    def _on_assign(self, assign: dict[str, Any]) -> None:
        words = self._swarm.words
        self._report(words.accepted, assign)
        if assign["job_id"] in self._jobs:
            return
        job = _Job(assign["job_id"], assign["attempt"], assign["receipt"])
        self._jobs[job.job_id] = job
        self._swarm.counts["started"] += 1
        self._report(words.started, assign)
        self._progress_again(job.job_id)

    def _report(self, template: Template, request: dict[str, Any]) -> None:
        values = {
            **self._who, "id": uuid.uuid4().hex[:16], "request_id": request["id"],
            "job_id": request["job_id"], "attempt": request["attempt"],
            "receipt": request.get("receipt", ""),
        }  # fmt: skip
        self._say(self._swarm.topics.response(self.name), template.fill(values))

    def _say(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        if self._link is not None:
            self._link.publish(topic, payload, qos, retain=retain)
            self._swarm.counts["said"] += 1
