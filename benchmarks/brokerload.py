"""What is measured of a broker: connects, bulk, small messages, heartbeats, memory, latency."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from benchmarks.common import cpu_s, percentile, rss_mib
from benchmarks.mqttload import DEADLINE_S, Peer
from broker.protocol.topics import Topics

TOPICS: Final = Topics()
CAPABILITY_BYTES: Final = 3_000
HEARTBEAT_BYTES: Final = 300
FLEET_DEADLINE_S: Final = 200.0
AT_ONCE_BY_TLS: Final = 60  # the embedded broker has 64 of one address say who they are
JOB: Final = "0" * 64


@dataclass
class Served:
    """A broker that serves: where, its process, and what a client of a name needs for TLS."""

    port: int
    pid: int
    tls: Callable[[str], ssl.SSLContext | None] = lambda _name: None
    peers: list[Peer] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Return the CPU time that its process has taken."""
        return cpu_s(self.pid)

    def rss_kib(self) -> float:
        """Return its resident memory."""
        return 1024 * rss_mib(self.pid)

    def peer(self, peer: Peer) -> Peer:
        """Remember a peer, to be closed at the end."""
        self.peers.append(peer)
        return peer

    def close(self) -> None:
        """Close all peers."""
        for peer in self.peers:
            peer.close()
        self.peers.clear()


class Fleet:
    """A coordinator that listens and hosts that join: birth retained, five filters, a heartbeat."""

    def __init__(self, served: Served, count: int) -> None:
        self.served = served
        self.names = [f"host-{number:05}" for number in range(count)]
        self.failed = 0
        self._born: set[bytes] = set()
        self._one_born = asyncio.Event()
        self.hosts: list[Peer] = []
        self._contexts = {name: served.tls(name) for name in self.names}

    async def join(self) -> float:
        """Have all connect at once; return the seconds until the coordinator has every birth.

        Who is not there after `FLEET_DEADLINE_S` has failed.
        """
        hub = self.served.peer(Peer(self._on_birth))
        await hub.connect(self.served.port, "fleet-hub", tls=self.served.tls("coordinator"))
        await hub.subscribe(TOPICS.for_coordinator())
        by_tls = self._contexts[self.names[0]] is not None
        doors = asyncio.Semaphore(AT_ONCE_BY_TLS if by_tls else len(self.names))
        begun_s = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLEET_DEADLINE_S):
                joined = await asyncio.gather(*(self._join(name, doors) for name in self.names))
                while len(self._born) < 2 * joined.count(True):
                    self._one_born.clear()
                    await self._one_born.wait()
        self.failed = len(self.names) - len(self.hosts)
        return time.monotonic() - begun_s

    async def _join(self, name: str, doors: asyncio.Semaphore) -> bool:
        peer = self.served.peer(Peer())
        status = TOPICS.status(name)
        acks = asyncio.Semaphore(0)
        peer.acked = lambda _packet_id: acks.release()
        try:
            async with doors:
                will = (status, b'{"v":1,"state":"offline"}')
                context = self._contexts[name]
                await peer.connect(self.served.port, f"fleet-{name}", tls=context, will=will)
            await peer.subscribe(TOPICS.for_agent(name))
            peer.publish(status, b'{"v":1,"state":"online"}', 1, retain=True)
            peer.publish(TOPICS.capability(name), b"c" * CAPABILITY_BYTES, 1, retain=True)
            peer.publish(TOPICS.heartbeat(name), b"h" * HEARTBEAT_BYTES)
            async with asyncio.timeout(DEADLINE_S):
                await acks.acquire()
                await acks.acquire()
        except (OSError, TimeoutError):
            return False
        self.hosts.append(peer)
        return True

    def _on_birth(self, _peer: Peer, topic: bytes, _payload: memoryview) -> None:
        if topic.endswith((b"/status", b"/capability")):
            self._born.add(topic)
            self._one_born.set()

    async def beat(self, seconds: float, every_s: float = 30.0) -> None:
        """Have each host send a heartbeat every so often, spread evenly."""
        steps = max(1, round(seconds / 0.1))
        begun_s, sent = time.monotonic(), 0
        for step in range(1, steps + 1):
            due = int(len(self.hosts) * step * 0.1 / every_s)
            for number in range(sent, due):
                name = self.names[number % len(self.hosts)]
                peer = self.hosts[number % len(self.hosts)]
                peer.publish(TOPICS.heartbeat(name), b"h" * HEARTBEAT_BYTES)
            sent = due
            await asyncio.sleep(max(0.0, begun_s + step * 0.1 - time.monotonic()))


async def connects(served: Served, count: int) -> dict[str, float]:
    """Have a fleet connect: its wall seconds, the broker's CPU seconds, memory for each host."""
    fleet = Fleet(served, count)
    used_s, rss_kib = served.cpu_s(), served.rss_kib()
    took_s = await fleet.join()
    found = {
        "took_s": took_s,
        "cpu_s": served.cpu_s() - used_s,
        "failed": fleet.failed,
        "kib_each": (served.rss_kib() - rss_kib) / count,
    }
    begun_s, used_s = time.monotonic(), served.cpu_s()
    await fleet.beat(5.0)
    found["beat_percent"] = 100 * (served.cpu_s() - used_s) / (time.monotonic() - begun_s)
    served.close()
    return found


async def bulk(
    served: Served, size_bytes: int, qos: int, total_bytes: int, window: int = 16
) -> dict[str, float]:
    """Send chunks, `window` of them under way; return MB/s and the broker's CPU seconds a GB."""
    count = max(window, total_bytes // size_bytes)
    payload = os.urandom(size_bytes)
    done = asyncio.get_running_loop().create_future()
    sent = got = 0

    def send() -> None:
        nonlocal sent
        while sent < count and sent - got < window:
            topic = TOPICS.chunk("host-00000", JOB, sent)
            sender.publish(topic, payload, qos)
            sent += 1

    def on_message(_peer: Peer, _topic: bytes, data: memoryview) -> None:
        nonlocal got
        got += 1
        if len(data) != size_bytes or (got in {1, count} and data != payload):
            raise ValueError(f"chunk {got} arrived altered")
        if got == count:
            done.set_result(None)
        send()

    receiver, sender = served.peer(Peer(on_message)), served.peer(Peer())
    await receiver.connect(served.port, "fleet-hub", tls=served.tls("coordinator"))
    await receiver.subscribe([(TOPICS.chunk("+", "+", 0).rpartition("/")[0] + "/+", qos)])
    await sender.connect(served.port, "fleet-host-00000", tls=served.tls("host-00000"))
    begun_s, used_s = time.monotonic(), served.cpu_s()
    send()
    async with asyncio.timeout(DEADLINE_S):
        await done
    took_s, used_s = time.monotonic() - begun_s, served.cpu_s() - used_s
    served.close()
    gb = count * size_bytes / 1e9
    return {"mb_s": gb * 1000 / took_s, "cpu_s_gb": used_s / gb}


async def small(served: Served, qos: int, total: int, senders: int = 20) -> dict[str, float]:
    """Send 200 bytes from many to one, 20 of each under way; return messages a second."""
    done = asyncio.get_running_loop().create_future()
    payload, window = b"s" * 200, 20
    names = [f"host-{number:05}" for number in range(senders)]
    peers = {TOPICS.heartbeat(name).encode(): served.peer(Peer()) for name in names}
    got = sent = 0

    def on_message(_peer: Peer, topic: bytes, _data: memoryview) -> None:
        nonlocal got, sent
        got += 1
        if got == total:
            done.set_result(None)
        if sent < total:
            sent += 1
            peers[topic].publish(topic.decode(), payload, qos)

    hub = served.peer(Peer(on_message))
    await hub.connect(served.port, "fleet-hub", tls=served.tls("coordinator"))
    await hub.subscribe([(TOPICS.heartbeat("+"), qos)])
    for name, peer in zip(names, peers.values()):
        await peer.connect(served.port, f"fleet-{name}", tls=served.tls(name))
    begun_s, used_s = time.monotonic(), served.cpu_s()
    for topic, peer in peers.items():
        for _ in range(window):
            sent += 1
            peer.publish(topic.decode(), payload, qos)
    async with asyncio.timeout(DEADLINE_S):
        await done
    took_s, used_s = time.monotonic() - begun_s, served.cpu_s() - used_s
    served.close()
    return {"per_s": got / took_s, "cpu_us": used_s / got * 1e6}


async def probe(port: int, rounds: int) -> dict[str, float]:
    """Return p50 and p99 of a round trip in ms: a request to a host, and its answer, at QoS 1."""
    heard: asyncio.Queue[None] = asyncio.Queue()
    request, response = TOPICS.request("prober"), TOPICS.response("prober")

    def answer(peer: Peer, _topic: bytes, _data: memoryview) -> None:
        peer.publish(response, b"a" * 300, 1)

    host, hub = Peer(answer), Peer(lambda *_: heard.put_nowait(None))
    await host.connect(port, "fleet-prober")
    await host.subscribe([(request, 1)])
    await hub.connect(port, "fleet-prober-hub")
    await hub.subscribe([(response, 1)])
    times_ms = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        hub.publish(request, b"r" * 300, 1)
        async with asyncio.timeout(DEADLINE_S):
            await heard.get()
        times_ms.append(1000 * (time.perf_counter() - begun_s))
    host.close()
    hub.close()
    return {"p50_ms": percentile(times_ms, 50), "p99_ms": percentile(times_ms, 99)}


async def _probed(served: Served, rounds: int) -> dict[str, float]:
    """Probe from a process of its own: this one may be busy. Nothing if the broker ends it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.broker_embedded", "--probe", str(served.port),
        "--round-trips", str(rounds), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    said, _ = await process.communicate()
    found: dict[str, float] = json.loads(said or "{}")
    return found


async def latency(served: Served, rounds: int, hosts: int) -> dict[str, float]:
    """Return a round trip's p50 and p99 on an idle broker, then on one with hosts and an upload."""
    idle = await _probed(served, rounds)
    fleet = Fleet(served, hosts)
    await fleet.join()
    beating = asyncio.create_task(fleet.beat(DEADLINE_S))
    uploading = asyncio.create_task(_upload(served, asyncio.Event()))
    busy = await _probed(served, rounds)
    for task in (beating, uploading):
        task.cancel()
    served.close()
    return idle | {f"busy_{key}": value for key, value in busy.items()}


async def _upload(served: Served, never: asyncio.Event) -> None:
    """Send chunks of 256 KiB, four of them under way, for as long as it is let."""
    payload = os.urandom(256 * 1024)
    chunks = "fleet/host-00000/artifact/" + JOB + "/chunk/"

    def on_message(_peer: Peer, topic: bytes, _data: memoryview) -> None:
        if topic.startswith(chunks.encode()):  # stock amqtt sends retained messages to everybody
            sender.publish(f"{chunks}1", payload)

    receiver, sender = served.peer(Peer(on_message)), served.peer(Peer())
    await sender.connect(served.port, "fleet-up")
    await receiver.connect(served.port, "fleet-up-hub")
    await receiver.subscribe([(chunks + "+", 0)])
    for _ in range(4):
        sender.publish(f"{chunks}1", payload)
    await never.wait()
