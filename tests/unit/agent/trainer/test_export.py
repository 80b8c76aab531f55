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


def agreeing(bundle: Path, windows: np.ndarray) -> Any:
    """Export a model; check that it scores windows (n, channels, steps) as it should."""
    out = bundle.parent / "model.onnx"
    export.export(bundle, out)
    session = onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])
    stored = load_model(bundle, 1)
    inputs = windows.transpose(0, 2, 1)
    if stored.description.takes_features:
        inputs = summarise(windows).reshape(len(windows), -1)
    scores = stored.score(windows)
    theirs = np.column_stack([scores["score"]] if "score" in scores else list(scores.values()))
    for count in (1, len(windows)):
        (found,) = session.run(None, {"inputs": np.ascontiguousarray(inputs[:count])})
        ours = found.reshape(count, -1)[:, -theirs.shape[1] :]
        assert ours == pytest.approx(theirs[:count], abs=CLOSE, rel=CLOSE)
    return session


QUICK = ("gbt", "mlp")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
         for name in config.TRAINERS]  # fmt: skip


@pytest.mark.parametrize("model", EVERY)
def test_an_exported_model_gives_the_same(model: str, telemetry: Path, trained: Any) -> None:
    bundle = trained(model)
    told = load_model(bundle, 1).description
    columns = pq.read_table(telemetry, columns=list(told.channels))
    array = np.column_stack([column.to_numpy() for column in columns]).astype(np.float32)
    windows = np.stack([array[at : at + told.window].T for at in range(0, 4000, 37)])
    session = agreeing(bundle, windows)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["model.json"])["model"] == model


@pytest.mark.parametrize("model", ["gbt", pytest.param("gru", marks=pytest.mark.slow)])
def test_several_classes(model: str, raw: Any, tmp_path: Path, run_job: Any) -> None:
    rng = np.random.default_rng(0)
    shift = {"sit": 0.0, "walk": 3.0, "turn": 6.0}

    def change(row: dict[str, Any]) -> None:
        row["hidden"] = shift[row["label"]] + float(rng.normal())

    raw.schema["unlabelled"] = None
    data = raw.of_hosts({host: np.repeat([*shift] * 4, 20).tolist() for host in "abcdef"}, change)
    run_job(model, data, tmp_path / "model", "--epochs", "3", "--n-resamples", "0")
    agreeing(tmp_path / "model", rng.normal(size=(50, 2, 10)).astype(np.float32) * 3)


def test_without_the_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "NEEDED", ("onnx", "there_is_no_such_package"))
    with pytest.raises(BadInputError, match=r"there_is_no_such_package: .* pip install"):
        export.export(tmp_path, tmp_path / "model.onnx")
