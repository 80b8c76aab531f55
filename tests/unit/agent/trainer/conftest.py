"""A small world of telemetry for the trainers' tests, and jobs run in this process."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer import run
from agent.trainer.common import config
from agent.trainer.common.arguments import parse_job
from agent.trainer.common.progress import Progress
from agent.trainer.prepare import prepare
from agent.trainer.simulate import RAW_FILE, simulate

Row = dict[str, Any]
SCHEMA: dict[str, Any] = {
    "label": "label",
    "unlabelled": -1,
    "period_s": 60,
    "channels": {
        "seen": {"name": "seen", "modes": ["realistic", "oracle"]},
        "hidden": {"name": "hidden", "modes": ["oracle"]},
    },
}


def episode(host: str, name: str, labels: Sequence[Any], t: int = 0) -> list[Row]:
    """Return the rows of an episode whose channels are plain functions of t, and of its name."""
    own = zlib.crc32(f"{host} {name}".encode()) % 997 / 1e6
    return [
        {
            "host": host,
            "episode": name,
            "t": t + at,
            "seen": float(at % 7) + own,
            "hidden": float(at) / 10,
            "label": label,
        }
        for at, label in enumerate(labels)
    ]


class Raw:
    """A raw file and its schema in a folder, to be written, spoilt and prepared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schema: dict[str, Any] = json.loads(json.dumps(SCHEMA))
        self.out = folder / "data"
        self.episode = episode

    def write(self, rows: list[Row], suffix: str = ".parquet") -> Path:
        path = self.folder / f"raw{suffix}"
        columns = list(rows[0])
        if suffix == ".csv":
            lines = [",".join(columns)]
            lines += [",".join("" if r[c] is None else str(r[c]) for c in columns) for r in rows]
            path.write_text("\n".join(lines) + "\n")
        else:
            table = pa.table({column: [row[column] for row in rows] for column in columns})
            pq.write_table(table, path, row_group_size=50)
        return path

    def of_hosts(
        self, labels: Mapping[str, Sequence[Any]], change: Callable[[Row], object] = id
    ) -> Path:
        """Prepare an episode of each host, with these labels of its rows; `change` each row."""
        rows = [row for host, its in labels.items() for row in episode(host, "1", its)]
        for row in rows:
            change(row)
        return self.prepare(self.write(rows))

    def prepare(self, path: Path, window: int = 10, stride: int = 5, **more: Any) -> Path:
        schema_path = self.folder / "raw.schema.json"
        schema_path.write_text(json.dumps(self.schema))
        told = {"window": window, "stride": stride, "log": lambda _: None} | more
        prepare(path, schema_path, self.out, **told)
        return self.out


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data of five simulated hosts; tests only read it."""
    folder = tmp_path_factory.mktemp("simulated")
    raw_path, schema_path = simulate(folder, hosts=5, episodes=3, rows=500, seed=0)
    prepare(raw_path, schema_path, folder / "data", window=30, stride=10, log=lambda _: None)
    return folder / "data"


@pytest.fixture(scope="session")
def telemetry(simulated: Path) -> Path:
    """The raw file that the prepared data was made of."""
    return simulated.parent / RAW_FILE


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a trainer's standard output; every line must be one."""
    return [json.loads(line) for line in text.splitlines()]


RunJob = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def run_job() -> RunJob:
    """Run a trainer in this process and return its events; errors are raised."""

    def work(model: str, data: Path, out: Path, *flags: str, mode: str = "oracle") -> Any:
        module = config.TRAINERS[model].module
        argv = ["--model", model, "--mode", mode, "--data", str(data), "--out-dir", str(out)]
        job = parse_job([*argv, "--threads", "1", *flags], module)
        stream = io.StringIO()
        run.run(job, Progress(stream))
        return events_of(stream.getvalue())

    return work


@pytest.fixture(scope="session")
def trained(
    simulated: Path, tmp_path_factory: pytest.TempPathFactory, run_job: RunJob
) -> Callable[[str], Path]:
    """Return the folder of a model that was trained in two epochs; tests only read it."""
    folder = tmp_path_factory.mktemp("trained")

    @cache
    def train(model: str) -> Path:
        run_job(model, simulated, folder / model, "--epochs=2", "--n-resamples=0")
        return folder / model

    return train
