"""How fast stored models score, in batches and row by row, beside the bare library: two tables.

    python -m benchmarks.predict [--models gbt,mlp,gru] [--rows 40000]

Batch: windows a second out of a file, and out of an array in memory. Stream: milliseconds from a
row that completes a window to its score. Bare: xgboost's or torch's own call on inputs that are
ready, a batch of 512, or one window.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from agent.trainer.common import config
from agent.trainer.common.arguments import parse_job
from agent.trainer.common.progress import Progress
from agent.trainer.data.features import summarise
from agent.trainer.inference.scoring import predict
from agent.trainer.inference.stored_model import StoredModel, load_model
from agent.trainer.inference.stream import Stream
from agent.trainer.run import run
from benchmarks.common import machine, percentile, prepared, table, words

BATCH = 512
ROUNDS = 5


def trained(model: str, data: Path, out: Path) -> Path:
    """Train a model for two epochs: how it scores does not depend on how well."""
    argv = ["--model", model, "--mode", "oracle", "--data", str(data), "--out-dir", str(out)]
    argv += ["--threads", "1", "--n-resamples", "0", "--epochs", "50" if model == "gbt" else "2"]
    with (out.parent / "events").open("w") as events:
        run(parse_job(argv, config.TRAINERS[model].module), Progress(events))
    return out


def bare(folder: Path, model: StoredModel, windows: np.ndarray) -> Callable[[int], object]:
    """Return what calls the library itself on the first of `windows`, whose inputs are ready."""
    inputs = windows.transpose(0, 2, 1).copy()
    if model.description.takes_features:
        inputs = summarise(windows).reshape(len(windows), -1)
    if model.description.model == "gbt":
        import xgboost as xgb

        trees = xgb.Booster({"nthread": 1}, model_file=folder / "model.ubj")
        return lambda count: trees.inplace_predict(inputs[:count])
    import torch
    from safetensors.torch import load_file

    from agent.trainer.training.networks import build

    network = build(model.description.model, model.description.size).eval()
    network.load_state_dict(load_file(folder / "model.safetensors"))
    tensor = torch.from_numpy(inputs)

    def call(count: int) -> object:
        with torch.no_grad():
            return network(tensor[:count])

    return call


def seconds(work: Callable[[], object]) -> float:
    """Return the least wall time of some rounds."""
    took = []
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun_s)
    return min(took)


def latencies_ms(model: StoredModel, rows: list[dict[str, object]]) -> list[float]:
    """Return the milliseconds of each row that completes a window."""
    stream, found = Stream(model), []
    for row in rows:
        begun_s = time.perf_counter()
        line = stream.push(json.loads(json.dumps(row)))
        if line is not None:
            json.dumps(line)
            found.append(1000 * (time.perf_counter() - begun_s))
    return found[len(found) // 10 :]  # the first ones warm up


def measured(model: StoredModel, folder: Path, raw: Path) -> list[object]:
    """Return the row of a model."""
    told = model.description
    values = pq.read_table(raw, columns=list(told.channels))
    array = np.column_stack([values[name].to_numpy() for name in told.channels])
    windows = np.lib.stride_tricks.sliding_window_view(array, told.window, axis=0)[:BATCH]
    windows = np.ascontiguousarray(windows, dtype=np.float32)
    count = sum(len(one) for one in predict(model, raw))
    file_s = seconds(lambda: list(predict(model, raw)))
    library = bare(folder, model, windows)
    rows = pq.read_table(raw, columns=["host", "episode", "t", *told.channels]).to_pylist()
    stream_ms = latencies_ms(model, rows[:10_000])
    one_ms = []
    for _ in range(500):
        begun_s = time.perf_counter()
        library(1)
        one_ms.append(1000 * (time.perf_counter() - begun_s))
    return [
        told.model,
        f"{count / file_s:,.0f}",
        f"{BATCH / seconds(lambda: model.score(windows)):,.0f}",
        f"{BATCH / seconds(lambda: library(BATCH)):,.0f}",
        f"{percentile(stream_ms, 50):.2f} / {percentile(stream_ms, 99):.2f}",
        f"{percentile(one_ms, 50):.2f} / {percentile(one_ms, 99):.2f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=words, default=["gbt", "mlp", "gru"])
    arguments = parser.parse_args()
    print(machine("xgboost", "torch", "pyarrow"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepared(folder, hosts=8, episodes=3, rows=1440)
        (raw,) = (folder / "raw").glob("*.parquet")
        rows = []
        for kind in arguments.models:
            place = trained(kind, data, folder / kind)
            rows.append(measured(load_model(place, 1), place, raw))
    head = ("model", "file, windows/s", "array", "bare", "stream, ms p50 / p99", "bare, one window")
    print(table(head, rows))


if __name__ == "__main__":
    main()
