"""Make a small simulated telemetry file, so that everything can be tried without real data.

    python -m agent.trainer.simulate --out-dir DIR [--hosts 8 --episodes 3 --rows 1440 --seed 0]

Servers with unlike baselines carry a daily load; faults shift what only an oracle sees clearly, and
what anyone sees faintly. Surges of honest load look much like them. The first episode of each host
is unlabelled. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agent.trainer.common.arguments import at_least
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.progress import Progress, program

RAW_FILE: Final = "simulated.parquet"
RAW_SCHEMA_FILE: Final = "simulated.schema.json"

_BOTH: Final = ("realistic", "oracle")
_ORACLE: Final = ("oracle",)

# channel: modes, and its response to load, to surge, and to each of the three faults
# (a memory leak, a contended disk, a lossy link) in units of its own noise.
_CHANNELS: Final[dict[str, tuple[tuple[str, ...], tuple[float, ...]]]] = {
    "net_in": (_BOTH, (3.0, 3.0, -0.2, -0.7, -0.9)),
    "net_out": (_BOTH, (3.0, 3.0, -0.3, -0.9, -0.4)),
    "requests": (_BOTH, (3.0, 3.5, 0.0, -0.5, -0.3)),
    "latency": (_BOTH, (1.0, 1.6, 0.5, 1.2, 0.7)),
    "retransmits": (_BOTH, (0.5, 0.6, 0.1, 0.3, 1.1)),
    "connections": (_BOTH, (2.0, 2.0, 0.4, 0.6, 0.4)),
    "cpu": (_ORACLE, (3.0, 3.0, 0.5, 1.5, 0.2)),
    "memory": (_ORACLE, (0.5, 0.3, 2.5, 0.2, 0.0)),
    "disk_wait": (_ORACLE, (0.5, 0.5, 0.3, 2.5, 0.1)),
    "load": (_ORACLE, (2.0, 2.0, 0.8, 2.0, 0.2)),
    "dropped": (_ORACLE, (0.2, 0.2, 0.0, 0.1, 2.5)),
}
_PERIOD_S: Final = 60
_DAY_ROWS: Final = 1440
_UNLABELLED: Final = -1


def _schema() -> dict[str, Any]:
    return {
        "label": "label",
        "unlabelled": _UNLABELLED,
        "period_s": _PERIOD_S,
        "simulated": True,
        "channels": {
            name: {"name": name, "modes": list(modes)} for name, (modes, _) in _CHANNELS.items()
        },
    }


def _envelope(
    rng: np.random.Generator, rows: int, share: float, lengths: tuple[int, int]
) -> Floats:
    """Return (rows,) float: 0, with bumps of random place, length and height, not overlapping."""
    out = np.zeros(rows)
    at = int(rng.integers(lengths[0], lengths[1] * 2))
    while at < rows - lengths[0]:
        length = int(rng.integers(*lengths))
        ramp = np.minimum(1.0, np.arange(1, length + 1) / 10.0)
        out[at : at + length] = (ramp * rng.uniform(0.6, 1.5))[: rows - at]
        at += length + int(rng.integers(*lengths) * (1.0 - share) / share)
    return out


def _autoregressive(rng: np.random.Generator, rows: int, columns: int, memory: float) -> Floats:
    """Return (rows, columns) noise of unit variance whose past fades by `memory` a step."""
    noise = rng.standard_normal((rows, columns)) * np.sqrt(1.0 - memory**2)
    for row in range(1, rows):
        noise[row] += memory * noise[row - 1]
    return np.asarray(noise)


def _episode(
    rng: np.random.Generator, rows: int, gain: Floats, base: Floats
) -> tuple[Floats, Ints]:
    """Return the channels (rows, channels) float32 and the labels (rows,) int8 of an episode."""
    response = np.array([weights for _, weights in _CHANNELS.values()])
    day = np.sin(2 * np.pi * (np.arange(rows) / _DAY_ROWS + rng.uniform()))
    load = 0.5 * day + 0.3 * _autoregressive(rng, rows, 1, 0.95)[:, 0]
    surge = _envelope(rng, rows, 0.10, (20, 60))
    fault = _envelope(rng, rows, 0.12, (30, 120))
    starts = np.flatnonzero((fault > 0) & (np.roll(fault, 1) == 0))
    kind = rng.integers(0, 3, size=len(starts) + 1)[np.cumsum(np.isin(np.arange(rows), starts))]
    drivers = np.stack([load, surge, *(fault * (kind == number) for number in range(3))], axis=1)
    noise = 0.8 * _autoregressive(rng, rows, len(_CHANNELS), 0.7)
    values = base + gain * (drivers @ response.T + noise)
    return values.astype(np.float32), (fault > 0).astype(np.int8)


def _tables(hosts: int, episodes: int, rows: int, seed: int) -> Iterator[pa.Table]:
    """Yield one arrow table an episode, hosts in order."""
    rng = np.random.default_rng(seed)
    for host in range(1, hosts + 1):
        gain = rng.uniform(0.8, 1.25, size=len(_CHANNELS))
        base = rng.normal(0.0, 0.3, size=len(_CHANNELS))
        for episode in range(episodes):
            values, label = _episode(rng, rows, gain, base)
            if episode == 0 and episodes > 1:
                label = np.full(rows, _UNLABELLED, dtype=np.int8)
            name = f"server-{host:02d}"
            columns = {
                "host": pa.array([name] * rows),
                "episode": pa.array([f"{name}/{episode}"] * rows),
                "t": np.arange(rows, dtype=np.int32),
            }
            columns |= {channel: values[:, at] for at, channel in enumerate(_CHANNELS)}
            yield pa.table(columns | {"label": label})


def simulate(out_dir: Path, hosts: int, episodes: int, rows: int, seed: int) -> list[Path]:
    """Write the raw file and its schema into `out_dir` and return both paths."""
    out_dir.mkdir(parents=True, exist_ok=True)
    raw, schema = out_dir / RAW_FILE, out_dir / RAW_SCHEMA_FILE
    tables = _tables(hosts, episodes, rows, seed)
    first = next(tables)
    with pq.ParquetWriter(raw, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
    schema.write_text(json.dumps(_schema(), indent=2) + "\n", encoding="utf-8")
    return [raw, schema]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.simulate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out-dir", type=Path, required=True, help="Folder to write into.")
    parser.add_argument("--hosts", type=at_least(1), default=8, help="Simulated servers.")
    parser.add_argument("--episodes", type=at_least(1), default=3, help="Episodes of each host.")
    parser.add_argument("--rows", type=at_least(200), default=1440, help="Steps of each episode.")
    parser.add_argument("--seed", type=at_least(0), default=0, help="Seed of everything.")
    args = parser.parse_args(argv)

    def work(progress: Progress) -> None:
        files = simulate(args.out_dir, args.hosts, args.episodes, args.rows, args.seed)
        rows = args.hosts * args.episodes * args.rows
        progress.result({"rows": rows, "hosts": args.hosts}, map(str, files))

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
