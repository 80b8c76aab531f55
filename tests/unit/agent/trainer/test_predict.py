"""A stored model scores telemetry as it did when it was evaluated, and trusts no bundle."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import zstandard
from sklearn.metrics import average_precision_score, roc_auc_score

from agent.trainer import predict
from agent.trainer.common import config
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.features import STATISTICS
from agent.trainer.inference import bundle_files
from agent.trainer.inference.bundle_files import read_model_files
from agent.trainer.inference.scoring import predict as scored
from agent.trainer.inference.stored_model import load_model
from tests.harness import forked
from tests.harness.trainers import report_in

PROGRAM = ("-m", "agent.trainer.predict")
QUICK = ("--epochs", "2", "--n-resamples", "0")


def scores(model: Path, raw: Path, out: Path) -> pa.Table:
    predict.write(scored(load_model(model, 1), raw), out)
    return pq.read_table(out) if out.suffix == ".parquet" else pa_csv.read_csv(out)


@pytest.mark.parametrize("model", config.TRAINERS)
@pytest.mark.parametrize("mode", config.MODES)
def test_the_scores_are_those_of_the_report(
    model: str, mode: str, simulated: Path, telemetry: Path, tmp_path: Path, run_job: Any
) -> None:
    run_job(model, simulated, tmp_path / "model", *QUICK, mode=mode)
    report = report_in(tmp_path / "model")
    found = scores(tmp_path / "model", telemetry, tmp_path / "scores.parquet")
    index = pq.read_table(simulated / "validation_v1.parquet")
    for name in ("host", "episode", "start"):
        assert found[name].to_pylist() == index[name].to_pylist()
    label = index["label"].to_numpy()
    held_out = np.isin(index["host"].to_pylist(), report["split"]["hosts"]["test"]) & (label >= 0)
    score = found["score"].to_numpy()[held_out]
    metrics = report["metrics"]
    truth = label[held_out]
    assert roc_auc_score(truth, score) == pytest.approx(metrics["auroc"], abs=2e-5)
    assert average_precision_score(truth, score) == pytest.approx(
        metrics["average_precision"], abs=2e-4
    )
    alarms = found["alarm"].to_numpy(zero_copy_only=False)[held_out]
    assert alarms[truth == 0].mean() == pytest.approx(metrics["fpr_realised"], abs=2e-3)


def test_new_telemetry_needs_neither_labels_nor_what_the_model_does_not_see(
    simulated: Path, telemetry: Path, tmp_path: Path, run_job: Any
) -> None:
    run_job("gbt", simulated, tmp_path / "model", *QUICK, mode="realistic")
    table = pq.read_table(telemetry)
    channels = load_model(tmp_path / "model", 1).description.channels
    bare = table.select(["host", "episode", "t", *channels])
    more = bare.append_column("mood", pa.array(["good"] * len(bare)))
    pq.write_table(bare, tmp_path / "bare.parquet")
    pa_csv.write_csv(more, tmp_path / "more.csv")
    first = scores(tmp_path / "model", tmp_path / "bare.parquet", tmp_path / "a.csv")
    second = scores(tmp_path / "model", tmp_path / "more.csv", tmp_path / "b.csv")
    assert first.column_names == [
        "host", "episode", "start", "score", "called", "alarm", "host_threshold", "host_alarm",
    ]  # fmt: skip
    assert set(first["called"].to_pylist()) <= {"normal", "anomaly"}
    assert first["score"].to_pylist() == pytest.approx(second["score"].to_pylist(), abs=1e-5)

    lacking = bare.drop_columns([channels[1]])
    pq.write_table(lacking, tmp_path / "lacking.parquet")
    with pytest.raises(BadInputError, match=f"{channels[1]}: .* missing; add it: the model"):
        scores(tmp_path / "model", tmp_path / "lacking.parquet", tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()


def test_telemetry_of_another_period_is_refused(
    trained: Any, telemetry: Path, tmp_path: Path
) -> None:
    """Where a schema lies beside it: a window would span another time than in training."""
    raw = Path(shutil.copy(telemetry, tmp_path / "new.parquet"))
    schema = json.loads(telemetry.with_suffix(".schema.json").read_text())
    beside = raw.with_suffix(".schema.json")
    beside.write_text(json.dumps(schema))
    assert len(scores(trained("gbt"), raw, tmp_path / "a.csv"))
    beside.write_text(json.dumps({"period_s": 10}))
    with pytest.raises(BadInputError) as refused:
        scores(trained("gbt"), raw, tmp_path / "b.csv")
    for word in ("new.schema.json: period_s: ", "a row every 10 s", f"{schema['period_s']:g} s; "):
        assert word in str(refused.value)
    assert not (tmp_path / "b.csv").exists()


def archive(path: Path, *entries: tuple[str, bytes, bytes]) -> Path:
    """A bundle of (name, content, type)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type = len(content), kind
            tar.addfile(entry, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor().compress(plain.getvalue()))
    return path


def test_a_bundle_is_read_and_not_unpacked(
    trained: Any, telemetry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained("mlp")
    good = [(path.name, path.read_bytes(), tarfile.REGTYPE) for path in model.iterdir()]
    evil = [("../../model.json", b"{}", tarfile.REGTYPE), ("model.json", b"", tarfile.SYMTYPE)]
    bundle = archive(tmp_path / "bundle.tar.zst", *evil, *good)
    assert set(read_model_files(bundle)) == {"model.json", "model.safetensors"}
    table = scores(bundle, telemetry, tmp_path / "a.parquet")
    unpacked = scores(model, telemetry, tmp_path / "b.parquet")
    assert table["score"].to_pylist() == unpacked["score"].to_pylist()
    monkeypatch.setattr(bundle_files, "MAX_BYTES", 5000)
    bomb = archive(tmp_path / "bomb.tar.zst", ("x", bytes(100_000), tarfile.REGTYPE), *good)
    with pytest.raises(BadInputError, match="unpacks to more"):
        read_model_files(bomb)


def _file(name: str, content: bytes | None) -> Callable[[Path], object]:
    """Replace a file of the model, or take it away."""

    def spoil(model: Path) -> None:
        path = model / name
        path.unlink() if content is None else path.write_bytes(content)

    return spoil


def _told(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def spoil(model: Path) -> None:
        told = json.loads((model / "model.json").read_text())
        change(told)
        (model / "model.json").write_text(json.dumps(told))

    return spoil


def _no_patch(told: dict[str, Any]) -> None:
    size = {"inputs": len(told["inputs"]), "steps": 30, "patch": 0, "heads": 1, "head_width": 4}
    told |= {"model": "transformer", "size": size | {"layers": 1, "dropout": 0.0, "classes": 2}}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_file("model.json", b"{"), "model.json: file: is not JSON"),
        (_file("model.json", None), "model.json: is missing"),
        (_file("model.safetensors", b"junk"), "model.safetensors: file: "),
        (_told(lambda told: told["inputs"].extend(f"x__{one}" for one in STATISTICS)), "size"),
        (_told(lambda told: told["classes"].append("2")), "size.classes"),
        (_told(_no_patch), "fetch it anew"),
    ],
)
def test_a_model_that_is_damaged_or_does_not_fit_is_refused(
    spoil: Callable[[Path], object], words: str, trained: Any, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(trained("mlp"), tmp_path / "model"))
    spoil(model)
    with pytest.raises(BadInputError) as found:
        load_model(model, 1)
    assert words in str(found.value)


def test_the_folder_above_a_model_is_told_from_it(trained: Any, tmp_path: Path) -> None:
    """Where `fleet get JOB -o DIR` has put it is easily mistaken."""
    shutil.copytree(trained("gbt"), tmp_path / "models" / "gbt-oracle")
    with pytest.raises(BadInputError, match=r"did you mean .*models.gbt-oracle\?"):
        load_model(tmp_path / "models", 1)


def test_the_program_says_what_it_did(
    trained: Any, simulated: Path, telemetry: Path, tmp_path: Path
) -> None:
    out, raw = f"--out={tmp_path / 'scores.csv'}", f"--raw={telemetry}"
    done = forked.run([*PROGRAM, f"--bundle={trained('gbt')}", raw, out])
    event = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, event["event"]) == (0, "result")
    assert event["metrics"]["windows"] == len(pq.read_table(simulated / "validation_v1.parquet"))


@pytest.mark.system
@pytest.mark.posix  # a terminal of the test's own is a pty
def test_at_a_terminal_it_speaks_in_words(
    trained: Any, simulated: Path, telemetry: Path, tmp_path: Path
) -> None:
    def run(*more: str) -> tuple[int, str]:
        ours, theirs = os.openpty()
        out = tmp_path / "scores.csv"
        done = subprocess.run(
            [
                sys.executable, *PROGRAM, f"--bundle={trained('gbt')}",
                f"--raw={telemetry}", f"--out={out}", *more,
            ],
            stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
        os.close(theirs)
        said = os.read(ours, 65_536).decode().replace("\r\n", "\n")
        os.close(ours)
        return done.returncode, said

    count = len(pq.read_table(simulated / "validation_v1.parquet"))
    assert run() == (0, f"{count:,} windows scored: {tmp_path / 'scores.csv'}\n")
    code, said = run(f"--bundle={tmp_path / 'nope'}")
    assert code == config.EXIT_BAD_INPUT
    assert said.startswith("error: nope: ")
    assert len(said.splitlines()) == 1
    _, said = run("--json")
    assert json.loads(said.splitlines()[-1])["event"] == "result"


def test_scores_never_replace_the_telemetry(trained: Any, telemetry: Path, tmp_path: Path) -> None:
    """The same file named twice, in whatever way, is a slip, and the telemetry may be the only."""
    raw = Path(shutil.copy(telemetry, tmp_path / "raw.parquet"))
    before = raw.read_bytes()
    for out in (raw, tmp_path / ".." / tmp_path.name / raw.name):
        ran = forked.run([*PROGRAM, f"--bundle={trained('gbt')}", f"--raw={raw}", f"--out={out}"])
        assert ran.returncode == config.EXIT_BAD_INPUT, ran.stdout
        assert "--out: is the telemetry; choose another" in ran.stdout
        assert raw.read_bytes() == before
