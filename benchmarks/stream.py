"""The artifact stream beside the bare limit of each broker, beside HTTP, under loss, and for eight.

    python -m benchmarks.stream [--quick] [--rounds 5] [--mib 1024] [--brokers mosquitto,nats]
        [--parts speed,loss,fair,delay]

Real programs in processes of their own: a coordinator, an agent whose spool holds a bundle of
random bytes, and the broker. Ours goes from the agent's report until an operator's client
hears that the job is completed: read, sent, written, hashed, fsynced, recorded in the ledger. The
bare limit is paho to paho through the same broker, with messages of 256 KiB at QoS 0 where ours has
up to 512, and nobody looks at a byte; it is given for messages of 64 KiB as well. HTTP is a PUT to
Starlette on uvicorn, hashed and written, not fsynced; scp, where OpenSSH is installed, goes to an
sshd of its own on loopback. The ways alternate in each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import stream_scp
from benchmarks.common import MIB, cpu_s, machine, median, percentile, table, words
from benchmarks.stream_brokers import end_tree, installed, running
from benchmarks.stream_delay import Probe
from benchmarks.stream_fleet import Handover, Uploads, make_bundle
from tests.harness.brokers import BrokerProcess, free_port, listens
from tests.harness.waiting import wait_until

MESSAGE_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 64 * 1024
LOSSY: Final = "benchmarks.stream_lossy"
LOSS: Final = 0.01
SEVERAL: Final = 8
START_S: Final = 20.0

Bundle = tuple[Path, str]


class Bench:
    """One run of the benchmark: where it works, and how large its artifacts are."""

    def __init__(self, folder: Path, size_mib: int, rounds: int) -> None:
        """Make what is sent."""
        self.folder, self.size_mib, self.rounds = folder, size_mib, rounds
        self._count = 0
        self.one = self._bundles(1, size_mib)
        self.several = self._bundles(SEVERAL, size_mib // SEVERAL)

    def _bundles(self, count: int, size_mib: int) -> list[Bundle]:
        made = []
        for number in range(count):
            path = self.folder / f"bundle-{size_mib}-{number}"
            made.append((path, make_bundle(path, size_mib * MIB)))
        return made

    def fresh(self) -> Path:
        """Return a new folder."""
        self._count += 1
        folder = self.folder / f"run{self._count}"
        folder.mkdir()
        return folder

    def ours(
        self,
        broker: BrokerProcess,
        bundles: list[Bundle],
        *,
        module: str = "",
        beside: Callable[[Uploads], Callable[[], object]] | None = None,
    ) -> Handover:
        """Hand bundles over, each by an agent of its own."""
        pid = broker.process.pid if broker.process else 0
        with Uploads(self.fresh(), broker.url, bundles, module=module) as uploads:
            if beside is None:
                return uploads.hand_over(lambda: cpu_s(pid))
            return uploads.hand_over(lambda: cpu_s(pid), beside(uploads))

    def rate(self, found: Handover) -> float:
        """Return MB/s of a handover of one."""
        return self.size_mib * MIB / max(found.took_s) / 1e6


def bare(port: int, size_mib: int, message_bytes: int) -> float:
    """Return MB/s that come through a broker when nobody looks at them."""
    command = [sys.executable, "-m", "benchmarks.stream_bare"]
    receiver = subprocess.Popen([*command, "receive", str(port)], stdout=subprocess.PIPE)
    try:
        assert receiver.stdout is not None  # noqa: S101 - for the type checker
        receiver.stdout.readline()
        messages = str(size_mib * MIB // message_bytes)
        subprocess.run(
            [*command, "send", str(port), messages, str(message_bytes)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        found = json.loads(receiver.stdout.readline())
    finally:
        end_tree(receiver)
    return float(found["bytes"] / found["seconds"] / 1e6)


def http(bench: Bench) -> float:
    """Return MB/s of a PUT."""
    port, command = free_port(), [sys.executable, "-m", "benchmarks.stream_http"]
    server = subprocess.Popen([*command, "serve", str(port), str(bench.fresh())])
    try:
        wait_until(lambda: listens(port), "the HTTP server does not listen", START_S)
        put = [*command, "put", str(port), str(bench.one[0][0])]
        done = subprocess.run(put, check=True, capture_output=True)
    finally:
        end_tree(server)
    return float(bench.size_mib * MIB / json.loads(done.stdout)["seconds"] / 1e6)


def scp(bench: Bench, programs: stream_scp.Programs) -> float:
    """Return MB/s of a copy."""
    took_s = stream_scp.seconds(programs, bench.one[0][0], bench.fresh())
    return bench.size_mib * MIB / took_s / 1e6


def speed(bench: Bench, kinds: list[str]) -> Iterator[str]:
    """Yield a table: each broker's limit, and how near to it an artifact comes home."""
    rows, puts, copies, openssh = [], [], [], stream_scp.find()
    for kind in kinds:
        found: dict[str, list[float]] = {"ours": [], "bare": [], "small": []}
        cpu: list[float] = []
        grown: list[float] = []
        with running(kind, bench.fresh()) as broker:
            for _ in range(bench.rounds):
                found["bare"].append(bare(broker.port, bench.size_mib, MESSAGE_BYTES))
                home = bench.ours(broker, bench.one)
                found["ours"].append(bench.rate(home))
                found["small"].append(bare(broker.port, bench.size_mib, SMALL_BYTES))
                cpu.append(sum(home.cpu_s.values()) / bench.size_mib * 1024)
                grown.append(max(home.grown_mib.values()))
                if kind == "mosquitto":
                    puts.append(http(bench))
                    copies += [scp(bench, openssh)] if openssh else []
        ratios = [
            statistics.median(a / b for a, b in zip(found["ours"], found[way], strict=True))
            for way in ("bare", "small")
        ]
        cells = [median(found[way]) for way in ("ours", "bare", "small")]
        rows.append(
            [kind, *cells, *(f"{ratio:.0%}" for ratio in ratios), f"{statistics.median(cpu):.1f}",
             f"{max(grown):.0f}"]
        )  # fmt: skip
    yield table(
        ["broker", "ours, MB/s", "bare 256 KiB", "bare 64 KiB", "of bare 256", "of bare 64",
         "CPU s a GiB", "most memory, MiB"],
        rows,
    )  # fmt: skip
    if puts:
        yield f"\nHTTP PUT to Starlette: {median(puts)} MB/s"
        yield f"scp: {median(copies)} MB/s" if copies else "scp: OpenSSH is not installed"


def loss(bench: Bench, kinds: list[str]) -> Iterator[str]:
    """Yield a table: with one chunk's message in a hundred lost, beside none."""
    rows = []
    for kind in kinds:
        rates: dict[float, list[float]] = {0.0: [], LOSS: []}
        with running(kind, bench.fresh()) as broker:
            for _ in range(bench.rounds):
                for share, into in rates.items():
                    os.environ["BENCH_LOSS"] = str(share)
                    into.append(bench.rate(bench.ours(broker, bench.one, module=LOSSY)))
        pairs = zip(rates[LOSS], rates[0.0], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        rows.append([kind, median(rates[0.0]), median(rates[LOSS]), f"{ratio:.0%}"])
    yield table(["broker", "none lost, MB/s", "1 % lost", "ratio"], rows)


def fair(bench: Bench, kinds: list[str]) -> Iterator[str]:
    """Yield a table: eight agents at once, by when each was done."""
    rows = []
    for kind in kinds:
        spreads, sums, indexes, grown = [], [], [], []
        with running(kind, bench.fresh()) as broker:
            for _ in range(bench.rounds):
                found = bench.ours(broker, bench.several)
                rates = [1 / took_s for took_s in found.took_s]
                spreads.append(min(found.took_s) / max(found.took_s))
                indexes.append(sum(rates) ** 2 / len(rates) / sum(rate**2 for rate in rates))
                sums.append(bench.size_mib * MIB / max(found.took_s) / 1e6)
                grown.append(max(found.grown_mib.values()))
        cells = [median(sums), f"{statistics.median(spreads):.2f}"]
        rows.append([kind, *cells, f"{statistics.median(indexes):.3f}", f"{max(grown):.0f}"])
    yield table(
        ["broker", "together, MB/s", "first done / last done", "Jain's index", "most memory, MiB"],
        rows,
    )


def delay(bench: Bench, kinds: list[str]) -> Iterator[str]:
    """Yield a table: how long others wait while an artifact passes, and while none does."""
    rows = []
    for kind in kinds:
        with running(kind, bench.fresh()) as broker:
            probes = [_probed(bench, broker) for _ in range(bench.rounds)]
        for what in Probe.KINDS:
            waits_ms = [wait_s * 1e3 for probe in probes for wait_s in probe.waits_s[what]]
            if waits_ms:
                cells = [f"{percentile(waits_ms, share):.1f}" for share in (50, 99, 100)]
                rows.append([kind, what, len(waits_ms), *cells])
    yield table(["broker", "what waits", "how many", "p50, ms", "p99, ms", "most, ms"], rows)


def _probed(bench: Bench, broker: BrokerProcess) -> Probe:
    """Hand one over, and ask all the while."""
    probes: list[Probe] = []

    def beside(uploads: Uploads) -> Callable[[], object]:
        probes.append(Probe(uploads.fleet, uploads.hosts[0]))
        return probes[0].turn

    bench.ours(broker, bench.one, beside=beside)
    probes[0].close()
    return probes[0]


PARTS: Final = {"speed": speed, "loss": loss, "fair": fair, "delay": delay}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stream",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="256 MiB, three rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--mib", type=int)
    parser.add_argument("--brokers", type=words, default=installed())
    parser.add_argument("--parts", type=words, default=list(PARTS))
    arguments = parser.parse_args()
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    size_mib = arguments.mib or (256 if arguments.quick else 1024)
    kinds = arguments.brokers
    print(machine("paho-mqtt", "amqtt", "starlette", "uvicorn", "httpx"))
    print(f"{size_mib} MiB, median of {rounds} (lowest to highest)\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), size_mib, rounds)
        for part in arguments.parts:
            for text in PARTS[part](bench, kinds):
                print(text, flush=True)
            print(flush=True)
    print(f"load afterwards: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
