"""What the embedded broker's overrides are worth: stock amqtt and ours, side by side.

Run by hand from the repository's root: `python benchmarks/broker_embedded.py`. Each broker is a
process of its own; the rounds of the two alternate, so that both meet the same neighbours. Trust
the ratios, not the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import paho.mqtt.client as mqtt
from amqtt.broker import Broker
from paho.mqtt.enums import CallbackAPIVersion

ROOT = Path(__file__).resolve().parent.parent
CHUNK_BYTES = 256 * 1024
WINDOW = 16
DEADLINE_S = 60.0
CONNECT_DEADLINE_S = 30.0
COMMANDS = {
    "stock": [sys.executable, __file__, "--serve-stock"],
    "ours": [sys.executable, "-m", "broker.server", "--listen", "127.0.0.1:0"],
}


async def serve_stock() -> None:
    """Serve stock amqtt on a free port until killed; say which, as our own broker does."""
    broker = Broker(
        {
            "listeners": {
                "default": {"type": "tcp", "bind": "127.0.0.1:0", "max_connections": 10_000}
            },
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}},
        }
    )
    await broker.start()
    port = next(iter(broker._servers["default"].instance.sockets)).getsockname()[1]  # noqa: SLF001 - no accessor
    print(json.dumps({"event": "listening", "host": "127.0.0.1", "port": port}), flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def running(kind: str) -> Iterator[int]:
    """Run a broker; give its port. Raises `RuntimeError` if it ends before it serves."""
    process = subprocess.Popen(
        COMMANDS[kind],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline() if process.stdout else b""
        watchdog.cancel()
        if not line:
            raise RuntimeError(f"the {kind} broker ended with {process.wait()}")
        yield int(json.loads(line)["port"])
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _client(
    port: int, name: str, on_message: Callable[[bytes], None], filter_: str = ""
) -> mqtt.Client:
    ready = threading.Event()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)
    # paho leaves Nagle's algorithm on: 43 ms a round trip, which would hide the brokers.
    client.on_socket_open = lambda _c, _d, sock: cast("socket.socket", sock).setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )
    client.on_connect = lambda *_: ready.set()
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _c, _d, message: on_message(bytes(message.payload))
    client.connect("127.0.0.1", port)
    client.loop_start()
    if not ready.wait(DEADLINE_S):
        raise TimeoutError(f"{name}: no CONNACK")
    ready.clear()
    if filter_:
        client.subscribe(filter_, 1)
        if not ready.wait(DEADLINE_S):
            raise TimeoutError(f"{name}: no SUBACK")
    return client


def bulk_mb_s(port: int, qos: int, chunks: int) -> float:
    """Send chunks of 256 KiB, `WINDOW` of them under way; return MB/s that arrived."""
    room = threading.Semaphore(WINDOW)
    wrong = 0
    payload = os.urandom(CHUNK_BYTES)

    def on_message(got: bytes) -> None:
        nonlocal wrong
        wrong += got != payload
        room.release()

    receiver = _client(port, "receiver", on_message, "bulk")
    sender = _client(port, "sender", lambda _payload: None)
    begun_s = time.monotonic()
    for step in range(chunks + WINDOW):
        if not room.acquire(timeout=DEADLINE_S):
            raise TimeoutError(f"chunk {step} of {chunks}: nothing arrives")
        if step < chunks:
            sender.publish("bulk", payload, qos)
    took_s = time.monotonic() - begun_s
    for client in (sender, receiver):
        client.disconnect()
        client.loop_stop()
    if wrong:
        raise ValueError(f"{wrong} of {chunks} chunks arrived altered")
    return chunks * CHUNK_BYTES / took_s / 1e6


async def _until_suback(reader: asyncio.StreamReader) -> int:
    """Pass over what the broker publishes before its SUBACK; return the SUBACK's answer."""
    while True:
        kind = (await reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        body = await reader.readexactly(length)
        if kind == 0x90:
            return body[-1]


async def _connect(port: int, name: str) -> list[asyncio.StreamWriter]:
    """CONNECT with a clean session, SUBSCRIBE to a filter of its own; empty if that failed."""
    identity = name.encode()
    connect = b"\x00\x04MQTT\x04\x02\x00\x3c" + len(identity).to_bytes(2, "big") + identity
    topic = b"own/" + identity
    subscribe = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic + b"\x01"
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes([0x10, len(connect)]) + connect)
            connack = await reader.readexactly(4)
            writer.write(bytes([0x82, len(subscribe)]) + subscribe)
            answer = await _until_suback(reader)
    except (OSError, EOFError, TimeoutError):
        return []
    return [writer] if connack[3] == 0 and answer <= 2 else []


def retain_births(port: int, clients: int) -> mqtt.Client:
    """Retain a message for every client to come, as a fleet does; return their subscriber."""
    room = threading.Semaphore(0)
    hub = _client(port, "hub", lambda _payload: room.release(), "own/#")
    for number in range(clients):
        hub.publish(f"own/c{number}", b"birth", 1, retain=True)
        if not room.acquire(timeout=DEADLINE_S):
            raise TimeoutError(f"birth {number} of {clients} does not arrive")
    return hub


async def connects(port: int, clients: int) -> tuple[float, int]:
    """Connect clients all at once; return the seconds until all were done, and how many failed."""
    begun_s = time.monotonic()
    made = await asyncio.gather(*(_connect(port, f"c{number}") for number in range(clients)))
    took_s = time.monotonic() - begun_s
    for writer in (one for found in made for one in found):
        writer.close()
    return took_s, sum(not found for found in made)


def measure(rounds: int, chunks: int, clients: int) -> dict[str, dict[str, list[float]]]:
    """Measure both brokers by turns; return every round's figures by broker and measure."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in COMMANDS}
    for _ in range(rounds):
        for kind, figures in found.items():
            with running(kind) as port:
                for qos in (0, 1):
                    rate = bulk_mb_s(port, qos, chunks)
                    figures.setdefault(f"256 KiB at QoS {qos}, MB/s", []).append(rate)
            with running(kind) as port:
                hub = retain_births(port, clients)
                took_s, failed = asyncio.run(connects(port, clients))
                hub.disconnect()
                hub.loop_stop()
                figures.setdefault(f"{clients} connects at once, s", []).append(took_s)
                figures.setdefault("  of which failed", []).append(failed)
    return found


def main() -> int:
    """Print the table: medians with their range, and ours in units of stock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=400, help="of 256 KiB, per bulk measure")
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--serve-stock", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_stock:
        asyncio.run(serve_stock())
        return 0
    found = measure(arguments.rounds, arguments.chunks, arguments.clients)
    print(f"{'median of ' + str(arguments.rounds) + ' (range)':30}{'stock':>24}{'ours':>24}  ratio")
    for name, stock in found["stock"].items():
        ours = found["ours"][name]
        cells = [
            f"{statistics.median(one):.2f} ({min(one):.2f}-{max(one):.2f})" for one in (stock, ours)
        ]
        below = statistics.median(stock)
        ratio = f"{statistics.median(ours) / below:.2f}" if below else "-"
        print(f"{name:30}{cells[0]:>24}{cells[1]:>24}  {ratio:>5}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
