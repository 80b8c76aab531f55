"""A training takes no more memory for longer episodes, and no more cores than its slot has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer.common import config
from agent.trainer.prepare import prepare

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

CHANNELS, WINDOW, STRIDE = 32, 60, 30
# The real program; what is its own is looked at as it learns: pages of mapped files are not.
WATCHED = """
import importlib, re, sys, time
from agent.trainer.common import checkpoint as keeper
step, peaks, clocks = keeper.Keeper.step, [], []
def watching(self, capture):
    status = open("/proc/self/status").read()
    peaks.append(int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))
    clocks.append((time.process_time(), time.perf_counter()))
    step(self, capture)
keeper.Keeper.step = watching
code = importlib.import_module(sys.argv[1]).main(sys.argv[2:])
cpu_s, wall_s = (last - first for first, last in zip(clocks[0], clocks[-1]))
print(max(peaks), cpu_s / wall_s, file=sys.stderr)
sys.exit(code)
"""


def _prepared(folder: Path, rows: int) -> Path:
    """Make four hosts of one episode each, `rows` in all."""
    folder.mkdir()
    random = np.random.default_rng(0)
    host = np.repeat(np.array(["a", "b", "c", "d"]), rows // 4)
    label = (np.arange(rows) // 500 % 4 == 0).astype(np.int8)
    names = [f"c{number:02d}" for number in range(CHANNELS)]
    columns = {"host": host, "episode": host, "t": np.tile(np.arange(rows // 4), 4)}
    columns |= {name: random.random(rows, dtype=np.float32) + label for name in names}
    pq.write_table(pa.table(columns | {"label": label}), folder / "raw.parquet")
    modes = ["realistic", "oracle"]
    schema = {
        "label": "label", "unlabelled": -1, "period_s": 60,
        "channels": {name: {"name": name, "modes": modes} for name in names},
    }  # fmt: skip
    (folder / "raw.schema.json").write_text(json.dumps(schema))
    prepare(
        folder / "raw.parquet", folder / "raw.schema.json", folder / "data",
        window=WINDOW, stride=STRIDE, log=lambda _: None,
    )  # fmt: skip
    return folder / "data"


def _watched(model: str, data: Path, out: Path, *flags: str) -> tuple[float, float]:
    """Train, and return (MiB of its own at most, cores in use on average)."""
    argv = [
        f"--model={model}", "--mode=oracle", f"--data={data}", f"--out-dir={out}",
        "--threads=1", "--epochs=1", "--n-resamples=10", *flags,
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, config.TRAINERS[model].module, *argv],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    peak_kib, cores = done.stderr.splitlines()[-1].split()
    return int(peak_kib) / 1024, float(cores)


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("cnn", ("--hidden=4", "--layers=1", "--kernel=3")),
        ("transformer_ssl", ("--heads=1", "--head-width=4", "--layers=1")),
    ],
)
def test_memory_does_not_grow_with_the_telemetry(
    model: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Of what eight times the rows would take as stored windows, it takes a quarter at most.

    The allocator alone moves a peak by 6 MiB, and stored windows would take 137 MiB.
    """
    rows = 100_000
    found = []
    for times in (1, 8):
        data = _prepared(tmp_path / str(times), times * rows)
        found.append(_watched(model, data, tmp_path / f"out{times}", *flags)[0])
    stored_mib = 7 * rows / STRIDE * WINDOW * CHANNELS * 4 / 2**20 * 0.8
    assert found[1] - found[0] < stored_mib / 4


def test_a_training_keeps_to_the_threads_of_its_slot(tmp_path: Path) -> None:
    data = _prepared(tmp_path / "data", 60_000)
    assert _watched("cnn", data, tmp_path / "out")[1] < 1.1
