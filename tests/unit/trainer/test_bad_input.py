"""Whatever is wrong with what a program was given: one line that names it, and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer.common import config
from agent.trainer.common.progress import MESSAGE_LIMIT
from agent.trainer.prepare import prepare
from agent.trainer.simulate import simulate
from tests.harness import forked

RUN, RUN_SSL, PREPARE = config.RUN_MODULE, config.RUN_SSL_MODULE, "agent.trainer.prepare"
PREDICT = "agent.trainer.predict"


@dataclass
class World:
    """Raw telemetry in a folder, what is made of it, and what is said on the command line."""

    folder: Path
    flags: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> Path:
        return self.folder / "raw.parquet"

    @property
    def schema(self) -> Path:
        return self.folder / "raw.schema.json"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def columns(self) -> dict[str, Any]:
        """Return the raw columns, to be spoilt."""
        table = pq.read_table(self.raw)
        return {name: table[name].to_pylist() for name in table.column_names}

    def rewrite(self, columns: dict[str, Any]) -> None:
        """Write the raw columns, and prepare them if they were prepared before."""
        pq.write_table(pa.table(columns), self.raw)
        if self.data.exists():
            shutil.rmtree(self.data)
            self.prepare()

    def prepare(self) -> None:
        """Cut the raw telemetry into windows."""
        prepare(self.raw, self.schema, self.data, window=30, stride=10, log=lambda _: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four small simulated hosts."""
    made = simulate(tmp_path, hosts=4, episodes=2, rows=300, seed=0)
    for path in made:
        path.rename(tmp_path / ("raw" + "".join(path.suffixes)))
    return World(tmp_path)


def _truncated(world: World) -> None:
    world.raw.write_bytes(world.raw.read_bytes()[:1000])


def _empty(world: World) -> None:
    world.raw.write_bytes(b"")


def _without_rows(world: World) -> None:
    pq.write_table(pq.read_table(world.raw).slice(0, 0), world.raw)


def _with_nan(world: World) -> None:
    columns = world.columns()
    columns["cpu"][17] = float("nan")
    world.rewrite(columns)


def _with_words(world: World) -> None:
    columns = world.columns()
    columns["cpu"] = ["much"] * len(columns["cpu"])
    world.rewrite(columns)


def _of_one_class(world: World) -> None:
    columns = world.columns()
    columns["label"] = [min(one, 0) for one in columns["label"]]
    world.rewrite(columns)


def _of_one_host(world: World) -> None:
    columns = world.columns()
    columns["host"] = ["alone"] * len(columns["host"])
    world.rewrite(columns)


def _schema_is_no_json(world: World) -> None:
    world.schema.write_text("{not json")


def _schema_lacks_channels(world: World) -> None:
    told = json.loads(world.schema.read_text())
    del told["channels"]
    world.schema.write_text(json.dumps(told))


def _label_is_a_channel(world: World) -> None:
    told = json.loads(world.schema.read_text())
    told["channels"]["label"] = {"name": "the answer", "modes": ["oracle"]}
    world.schema.write_text(json.dumps(told))


def _window_too_long(world: World) -> None:
    world.flags["--window"] = "5000"


def _series_with_infinity(world: World) -> None:
    path = world.data / "tensor_window_v1" / "series_oracle_realistic.npy"
    series = np.load(path)
    series[40:50] = np.inf
    np.save(path, series)


def _features_truncated(world: World) -> None:
    path = world.data / "features_window_v1.parquet"
    path.write_bytes(path.read_bytes()[:1000])


def _index_gone(world: World) -> None:
    (world.data / "validation_v1.parquet").unlink()


def _flag(name: str, value: str) -> Callable[[World], None]:
    def spoil(world: World) -> None:
        world.flags[name] = value

    return spoil


def _out_is_a_file(world: World) -> None:
    (world.folder / "made").write_text("in the way")


def _out_is_not_for_writing(world: World) -> None:
    if os.geteuid() == 0:
        world.flags["--out-dir"] = "/proc/self"  # nobody may, not even root
    else:
        (world.folder / "made").mkdir(mode=0o555)


def _nothing(_: World) -> None:
    """Leave the raw file as it is."""


CASES: list[Any] = [
    (PREPARE, "", _truncated, "raw.parquet: file: "),
    (PREPARE, "", _empty, "raw.parquet: file: "),
    (PREPARE, "", _without_rows, "raw.parquet: file: holds no rows"),
    (PREPARE, "", _with_nan, "raw.parquet: cpu: value at host server-01, episode "),
    (PREPARE, "", _with_words, "raw.parquet: cpu: "),
    (PREPARE, "", _schema_is_no_json, "raw.schema.json: "),
    (PREPARE, "", _schema_lacks_channels, "raw.schema.json: channels: "),
    (PREPARE, "", _window_too_long, "--window 300 or less"),
    (PREPARE, "", _out_is_a_file, "made: folder: File exists; choose another"),
    (PREPARE, "", _label_is_a_channel, "raw.parquet: label: "),
    (RUN, "gbt", _of_one_class, "all windows to train on are of class 0"),
    (RUN, "cnn", _of_one_host, "host"),
    (RUN, "gbt", _features_truncated, "features_window_v1.parquet: file: "),
    (RUN, "mlp", _index_gone, "validation_v1.parquet: file: "),
    (RUN, "gru", _series_with_infinity, "holds values that are not finite"),
    (RUN, "gbt", _flag("--epochs", "many"), "--epochs"),
    (RUN, "gbt", _flag("--epochs", "0"), "--epochs"),
    (RUN, "lstm", _flag("--lr", "nan"), "--lr"),
    (RUN, "mlp", _flag("--seed", str(2**64)), "--seed"),
    (RUN, "transformer", _flag("--dropout", "1.5"), "--dropout"),
    (RUN, "gbt", _flag("--hidden", "5"), "--hidden"),
    (RUN, "gbt", _flag("--mode", "clairvoyant"), "--mode"),
    (RUN, "gbt", _flag("--train-hosts", "nobody"), "nobody"),
    (RUN, "gbt", _out_is_a_file, "made"),
    pytest.param(
        RUN,
        "gbt",
        _out_is_not_for_writing,
        ": folder: ",
        marks=pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's"),
    ),
    (RUN_SSL, "transformer_ssl", _flag("--mask-fraction", "2"), "--mask-fraction"),
    (PREDICT, "", _nothing, "bundle"),
    (PREDICT, "", _flag("--out", "scores.txt"), "--out: is neither .csv nor .parquet"),
]
# The same faults, told by the same code, of another model.
MORE: list[tuple[str, str, Callable[[World], None], str]] = [
    (RUN, "mlp", _of_one_class, "all windows to train on are of class 0"),
    (RUN_SSL, "transformer_ssl", _of_one_host, "host"),
    (RUN_SSL, "transformer_ssl", _series_with_infinity, "holds values that are not finite"),
]


@pytest.mark.parametrize(
    ("module", "model", "spoil", "message"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_bad_input_is_one_line_that_names_it_and_code_2(
    module: str, model: str, spoil: Callable[[World], None], message: str, world: World
) -> None:
    """No traceback, nothing that passes for a result, and no guess about what to mend."""
    if model:
        world.prepare()
        world.flags |= {"--model": model, "--mode": "oracle", "--data": str(world.data)}
        world.flags |= {"--threads": "1", "--out-dir": str(world.folder / "made")}
    elif module == PREPARE:
        world.flags |= {"--raw": str(world.raw), "--out-dir": str(world.folder / "made")}
    else:
        world.flags |= {"--raw": str(world.raw), "--bundle": str(world.folder / "bundle")}
        world.flags |= {"--out": str(world.folder / "made.csv")}
    spoil(world)
    argv = [f"{name}={value}" for name, value in world.flags.items()]
    done = forked.run(["-m", module, *argv])
    assert done.returncode == config.EXIT_BAD_INPUT, done.stderr
    said = _said(done)
    assert message in said
    assert "Traceback" not in done.stderr
    assert len(said) <= MESSAGE_LIMIT
    # Without its schema, written last, what prepare leaves is no data; a training leaves nothing.
    left = "feature_schema_v1.json" if module == PREPARE else "*.*"
    made = world.folder / "made"
    assert not made.is_dir() or not any(made.rglob(left))


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error: the last event, or for a wrong command line argparse's last line."""
    if not done.stdout:
        return done.stderr.splitlines()[-1]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (events[-1]["event"], events[-1]["kind"]) == ("error", "bad_input")
    assert sum(event["event"] == "error" for event in events) == 1
    return str(events[-1]["message"])
