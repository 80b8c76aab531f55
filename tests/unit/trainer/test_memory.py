"""A training takes no more memory, threads or time to load where the episodes are longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer import config
from agent.trainer.prepare import prepare

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

CHANNELS, WINDOW, STRIDE = 16, 60, 30
# The real program; what is its own is looked at as it learns: pages of mapped files are not.
WATCHED = """
import importlib, re, sys
from agent.trainer import keeper
step, found = keeper.Keeper.step, {"RssAnon": 0, "Threads": 0}
def watching(self, capture):
    status = open("/proc/self/status").read()
    for name in found:
        found[name] = max(found[name], int(re.search(name + r":\\s+(\\d+)", status)[1]))
    step(self, capture)
keeper.Keeper.step = watching
code = importlib.import_module(sys.argv[1]).main(sys.argv[2:])
print(found["RssAnon"], found["Threads"], file=sys.stderr)
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


def _watched(model: str, data: Path, out: Path, threads: int, *flags: str) -> tuple[float, int]:
    """Train, and return (MiB of its own at most, threads at most)."""
    argv = [
        f"--model={model}", "--mode=oracle", f"--data={data}", f"--out-dir={out}",
        f"--threads={threads}", "--epochs=1", "--n-resamples=10", *flags,
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, config.TRAINERS[model].module, *argv],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    peak_kib, most = done.stderr.splitlines()[-1].split()
    return int(peak_kib) / 1024, int(most)


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
    """Eight times the rows: windows stored would take 170 MiB more, and take a tenth of it."""
    rows = 100_000
    found = []
    for times in (1, 8):
        data = _prepared(tmp_path / str(times), times * rows)
        found.append(_watched(model, data, tmp_path / f"out{times}", 1, *flags)[0])
    stored_mib = 7 * rows / STRIDE * WINDOW * CHANNELS * 4 / 2**20 * 0.8
    assert found[1] - found[0] < stored_mib / 8


def test_a_training_starts_no_more_threads_than_its_slot_has(tmp_path: Path) -> None:
    """Torch would take every core of the machine; with one thread more there is one more."""
    data = _prepared(tmp_path / "data", 20_000)
    one, two = (_watched("cnn", data, tmp_path / str(n), n, "--hidden=8")[1] for n in (1, 2))
    assert two - one <= 1
    assert one <= 4
