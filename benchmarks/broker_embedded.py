"""The embedded broker beside stock amqtt, which it is made of, and mosquitto: what each bears.

    python -m benchmarks.broker_embedded [--quick] [--only connects] [--brokers ours,mosquitto]

Each broker is a process of its own; the rounds alternate, so that all meet the same neighbours.
Trust the ratios and the processor time, not the wall time of a busy machine. Clients are those of
`mqttload.py`, all in this process, and one core is all that they have: where a broker takes less
time than they do, `MB/s` and `messages/s` are theirs, and the processor time tells the rest.

Stock amqtt gets a fleet of 1,000 once: it takes minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from amqtt.broker import Broker

from benchmarks.brokerload import Served, bulk, connects, latency, probe, small
from benchmarks.common import machine, median, table, words
from benchmarks.stream_brokers import installed
from tests.harness.brokers import BrokerProcess, mosquitto
from tests.harness.secure import House

KIB, MB = 1024, 1_000_000
STOCK, OURS, OURS_TLS, MOSQUITTO = "stock amqtt", "ours", "ours, TLS", "mosquitto"
MANY: Final = 1_000

Found = dict[str, float]
Measure = Callable[[Served], Awaitable[Found]]


async def serve_stock() -> None:
    """Serve stock amqtt on a free port until killed; say which, as our own broker does."""
    listener = {"type": "tcp", "bind": "127.0.0.1:0", "max_connections": 10_000}
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}}
    broker = Broker({"listeners": {"default": listener}, "plugins": plugins})
    await broker.start()
    port = next(iter(broker._servers["default"].instance.sockets)).getsockname()[1]  # noqa: SLF001 - no accessor
    print(json.dumps({"event": "listening", "host": "127.0.0.1", "port": port}), flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def running(kind: str, house: House | None) -> Iterator[Served]:
    """Run a broker."""
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
        process = _process(kind, Path(folder), house)
        process.start()
        try:
            served = Served(process.port, process.process.pid if process.process else 0)
            if kind == OURS_TLS and house is not None:
                served.tls = lambda name: house.context(house.known(name))
            yield served
        finally:
            process.end(signal.SIGKILL)


def _process(kind: str, folder: Path, house: House | None) -> BrokerProcess:
    if kind == MOSQUITTO:
        return mosquitto(folder)
    command = [sys.executable, "-m", "broker.embedded", "--listen", "127.0.0.1:0"]
    if kind == OURS_TLS and house is not None:
        command += ["--identity", str(house.broker)]
    if kind == STOCK:
        command = [sys.executable, "-m", "benchmarks.broker_embedded", "--serve-stock"]
    return BrokerProcess(lambda _port: command, announces=True)


def measures(*, quick: bool) -> dict[str, tuple[Measure, dict[str, str]]]:
    """Return what is measured, by name: how, and what each of its figures is called."""
    found: dict[str, tuple[Measure, dict[str, str]]] = {}
    share = 4 if quick else 1
    for hosts in (300,) if quick else (300, MANY):
        found[f"connects {hosts}"] = (
            lambda served, hosts=hosts: connects(served, hosts),
            {
                "took_s": f"{hosts} hosts connect at once, s",
                "cpu_s": "  the broker's processor time, s",
                "failed": "  of which failed",
                "kib_each": "  memory for each host, KiB",
                "beat_percent": "  their heartbeats every 30 s, % of a core",
            },
        )
    for size_kib, qos in ((256, 1), (256, 0), (64, 0), (1024, 1)):
        found[f"bulk {size_kib} {qos}"] = (
            lambda served, size=size_kib * KIB, qos=qos: bulk(served, size, qos, 400 * MB // share),
            {
                "mb_s": f"bulk, {size_kib} KiB at QoS {qos}, MB/s",
                "cpu_s_gb": "  the broker's processor time a GB, s",
            },
        )
    for qos in (0, 1):
        found[f"small {qos}"] = (
            lambda served, qos=qos: small(served, qos, 20_000 // share),
            {
                "per_s": f"200 bytes at QoS {qos}, messages/s",
                "cpu_us": "  the broker's processor time each, us",
            },
        )
    found["latency"] = (
        lambda served: latency(served, 400, 300),
        {
            "p50_ms": "round trip, idle broker, p50, ms",
            "p99_ms": "  p99",
            "busy_p50_ms": "  beside 300 hosts and an upload at full speed, p50",
            "busy_p99_ms": "  p99",
        },
    )
    return found


def measure(kinds: Sequence[str], names: Sequence[str], rounds: int, *, quick: bool) -> None:
    """Measure the brokers by turns and print a table for each measure as soon as it is there."""
    every = measures(quick=quick)
    with tempfile.TemporaryDirectory(prefix="fleet-bench-ca-") as folder:
        house = House.make(Path(folder)) if OURS_TLS in kinds else None
        for name in names:
            how, labels = every[name]
            figures: dict[str, list[Found]] = {kind: [] for kind in kinds}
            try:
                for number in range(rounds):
                    for kind in kinds:
                        skip = number and kind == STOCK and name.endswith(str(MANY))
                        if not skip and not (name == "latency" and kind == OURS_TLS):
                            figures[kind].append(_once(kind, house, how))
            finally:  # what was measured before Ctrl-C is shown
                print(f"\n{_table(figures, labels)}", flush=True)


def _once(kind: str, house: House | None, how: Measure) -> Found:
    with running(kind, house) as served:
        try:
            return asyncio.run(_measured(how, served))
        except TimeoutError:
            return {}  # shown as such


async def _measured(how: Measure, served: Served) -> Found:
    return await how(served)


def _table(figures: dict[str, list[Found]], labels: dict[str, str]) -> str:
    """Return medians with their range, and ours in units of stock."""
    rows = []
    for key, label in labels.items():
        columns = {
            kind: [one[key] for one in found if key in one] for kind, found in figures.items()
        }
        cells = [median(values) if values else "-" for values in columns.values()]
        stock, ours = columns.get(STOCK), columns.get(OURS)
        below = statistics.median(stock) if stock else 0.0
        ratio = f"{statistics.median(ours) / below:.3g}" if ours and below else "-"
        rows.append([label, *cells, ratio])
    return table(["", *figures, "ours / stock"], rows)


def main() -> int:
    """Print the machine and the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a fleet of 300 alone, fewer messages")
    parser.add_argument("--only", default="", help="names that begin so: connects, bulk 256, ...")
    parser.add_argument("--brokers", type=words, help="of: stock amqtt, ours, ours TLS, mosquitto")
    parser.add_argument("--serve-stock", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--round-trips", type=int, default=400, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_stock:
        asyncio.run(serve_stock())
        return 0
    if arguments.probe:
        print(json.dumps(asyncio.run(probe(arguments.probe, arguments.round_trips))))
        return 0
    kinds = [STOCK, OURS, OURS_TLS, *([MOSQUITTO] if "mosquitto" in installed() else [])]
    if arguments.brokers:
        kinds = [kind for kind in kinds if kind.replace(",", "") in arguments.brokers]
    every = measures(quick=arguments.quick)
    names = [name for name in every if name.startswith(arguments.only)]
    if not kinds or not names:
        parser.error(f"nothing to measure: --brokers of {kinds}, --only of {list(every)}")
    print(machine("amqtt"))
    measure(kinds, names, arguments.rounds, quick=arguments.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
