"""Bad input ends a program with one line that names the fault, and with exit code 2."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.trainer.common import config
from agent.trainer.common.progress import MESSAGE_LIMIT
from agent.trainer.prepare import prepare
from agent.trainer.simulate import RAW_FILE, RAW_SCHEMA_FILE, simulate
from tests.harness import forked

PREPARE, PREDICT = "agent.trainer.prepare", "agent.trainer.predict"
Flags = dict[str, str]
Spoil = Callable[[Path, Flags], object]


def _nothing(_: Path, __: Flags) -> None:
    """Leave all as it is."""


def _flag(name: str, value: str) -> Spoil:
    return lambda _, flags: flags.update({name: value})


def _words_in_a_channel(folder: Path, _: Flags) -> None:
    table = pq.read_table(folder / RAW_FILE).drop_columns(["cpu"])
    pq.write_table(table.append_column("cpu", pa.array(["much"] * len(table))), folder / RAW_FILE)


def _schema_gone(folder: Path, _: Flags) -> None:
    (folder / "data" / "feature_schema_v1.json").unlink()


def _out_is_a_file(folder: Path, _: Flags) -> None:
    (folder / "made").write_text("in the way")


def _out_is_not_for_writing(folder: Path, flags: Flags) -> None:
    if os.geteuid() == 0:
        flags["--out-dir"] = "/proc/self"  # nobody may, not even root
    else:
        (folder / "made").mkdir(mode=0o555)


@pytest.mark.parametrize(
    ("program", "spoil", "message"),
    [
        (PREPARE, _words_in_a_channel, "simulated.parquet: cpu: "),
        (PREPARE, _flag("--window", "5000"), "--window 300 or less"),
        (PREPARE, _out_is_a_file, "made: folder: "),
        ("transformer_ssl", _flag("--train-hosts", "pi"), "train_hosts: pi: no such host"),
        ("gbt", _schema_gone, "make it: python -m agent.trainer.prepare"),
        pytest.param(
            "gbt",
            _out_is_not_for_writing,
            ": folder: ",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's"),
        ),
        (PREDICT, _nothing, "bundle"),
        (PREDICT, _flag("--out", "scores.txt"), "--out: is neither .csv nor .parquet"),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_code_2(
    program: str, spoil: Spoil, message: str, tmp_path: Path
) -> None:
    simulate(tmp_path, hosts=4, episodes=2, rows=300, seed=0)
    raw, made = tmp_path / RAW_FILE, tmp_path / "made"
    if program == PREPARE:
        module, flags = program, {"--raw": str(raw), "--out-dir": str(made)}
    elif program == PREDICT:
        flags = {"--raw": str(raw), "--bundle": str(tmp_path / "bundle"), "--out": f"{made}.csv"}
        module = program
    else:
        schema = tmp_path / RAW_SCHEMA_FILE
        prepare(raw, schema, tmp_path / "data", window=30, stride=10, log=lambda _: None)
        module = config.TRAINERS[program].module
        flags = {"--model": program, "--mode": "oracle", "--data": str(tmp_path / "data")}
        flags |= {"--threads": "1", "--out-dir": str(made)}
    spoil(tmp_path, flags)
    done = forked.run(["-m", module, *(f"{name}={value}" for name, value in flags.items())])
    assert done.returncode == config.EXIT_BAD_INPUT, done.stderr
    assert "Traceback" not in done.stderr
    errors = [one for one in map(json.loads, done.stdout.splitlines()) if one["event"] == "error"]
    assert [one["kind"] for one in errors] == ["bad_input"]
    assert message in errors[0]["message"]
    assert len(errors[0]["message"]) <= MESSAGE_LIMIT
    # prepare writes its schema last: data without it is no data.
    assert not made.is_dir() or not any(
        made.rglob("feature_schema_v1.json" if program == PREPARE else "*.*")
    )
