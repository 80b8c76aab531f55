"""An exported model gives under onnxruntime what the model gives itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from agent.trainer import export
from agent.trainer.common import config
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.features import summarise
from agent.trainer.inference.stored_model import load_model

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnx", reason="the extra onnx is not installed")

CLOSE = 1e-5


def exported(bundle: Path, out: Path) -> Any:
    export.export(bundle, out)
    return onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])


QUICK = ("gbt", "mlp")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
         for name in config.TRAINERS]  # fmt: skip


@pytest.mark.parametrize("model", EVERY)
def test_an_exported_model_gives_the_same(
    model: str, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    run_job(model, simulated, tmp_path / "model", "--epochs", "3", "--n-resamples", "0")
    stored = load_model(tmp_path / "model", 1)
    session = exported(tmp_path / "model", tmp_path / "model.onnx")
    (raw,) = simulated.parent.glob("*.parquet")
    told = stored.description
    columns = pq.read_table(raw, columns=list(told.channels))
    array = np.column_stack([column.to_numpy() for column in columns]).astype(np.float32)
    windows = np.stack([array[at : at + told.window].T for at in range(0, 4000, 37)])
    inputs = windows.transpose(0, 2, 1)
    if told.takes_features:
        inputs = summarise(windows).reshape(len(windows), -1)
    for count in (1, len(windows)):
        (found,) = session.run(None, {"inputs": np.ascontiguousarray(inputs[:count])})
        ours = found[:, 1] if found.ndim == 2 else found
        theirs = stored.score(windows[:count])["score"]
        assert ours == pytest.approx(theirs, abs=CLOSE, rel=CLOSE)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["model.json"])["model"] == model


@pytest.mark.parametrize("model", ["gbt", pytest.param("gru", marks=pytest.mark.slow)])
def test_several_classes(model: str, raw: Any, tmp_path: Path, run_job: Any) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for host in "abcdef":
        labels = np.repeat(rng.permutation(["sit", "walk", "turn"] * 4), 20)
        rows += raw.episode(host, host, labels.tolist())
    shift = {"sit": 0.0, "walk": 3.0, "turn": 6.0}
    for row in rows:
        row["hidden"] = shift[row["label"]] + float(rng.normal())
    raw.schema["unlabelled"] = None
    data = raw.prepare(raw.write(rows))
    run_job(model, data, tmp_path / "model", "--epochs", "3", "--n-resamples", "0")
    stored = load_model(tmp_path / "model", 1)
    session = exported(tmp_path / "model", tmp_path / "model.onnx")
    windows = rng.normal(size=(50, 2, 10)).astype(np.float32) * 3
    inputs = windows.transpose(0, 2, 1)
    if stored.description.takes_features:
        inputs = summarise(windows).reshape(len(windows), -1)
    (found,) = session.run(None, {"inputs": np.ascontiguousarray(inputs)})
    theirs = np.column_stack(list(stored.score(windows).values()))
    assert found == pytest.approx(theirs, abs=CLOSE)


def test_without_the_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "NEEDED", ("onnx", "there_is_no_such_package"))
    with pytest.raises(BadInputError, match=r"there_is_no_such_package: .* pip install"):
        export.export(tmp_path, tmp_path / "model.onnx")
