"""Every built-in model beside two honest floors, on one prepared data set: a table in Markdown.

    python -m benchmarks.models DATA [--recipe host] [--seeds 0,1,2,3] [--models gbt,cnn]
        [--out FOLDER]

Each seed is another split; figures are means over the splits, and so are the ends of the 95 %
intervals. The floors go through the same split, the same validation and the same evaluation as the
models:

- `threshold`: the single summary feature, and its direction, that ranks the training windows best.
- `logistic`: a logistic regression on the standardised summary features, its penalty chosen on
  validation.

Models run by their command line with their defaults, one after the other. Reports that are in the
output folder already are not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from agent.trainer.common.arguments import parse_job
from agent.trainer.common.config import MODES, RUN_MODULE, TRAINERS
from agent.trainer.data.dataset import load_features
from agent.trainer.evaluation.metrics import Metrics
from agent.trainer.training.loading import Loaded, load
from benchmarks.common import line, numbers, table, words

PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
Scores = Callable[[np.ndarray], np.ndarray]
Found = tuple[str, str, Metrics, float]


def loaded_for(arguments: argparse.Namespace, mode: str, seed: int) -> Loaded:
    """Load the data as a model would."""
    argv = ["--model=gbt", f"--mode={mode}", f"--data={arguments.data}", "--out-dir=unused"]
    argv += [f"--split-recipe={arguments.recipe}", f"--seed={seed}"]
    return load(parse_job(argv, RUN_MODULE))


def threshold_floor(loaded: Loaded, features: np.ndarray) -> tuple[Scores, bool]:
    """Return the score of the feature that ranks the training windows best."""
    train, label = loaded.train, loaded.index.label
    classes = len(loaded.schema.classes)
    if classes > 2:
        return _nearest_means(loaded, features), True
    areas = np.array([
        roc_auc_score(label[train], features[train, at]) for at in range(features.shape[1])
    ])  # fmt: skip
    best = int(np.argmax(np.abs(areas - 0.5)))
    sign = 1.0 if areas[best] >= 0.5 else -1.0
    return lambda windows: sign * features[windows, best], False


def _nearest_means(loaded: Loaded, features: np.ndarray) -> Scores:
    """Of several classes: the feature whose class means, as a classifier, are right most often."""
    train, label = loaded.train, loaded.index.label
    classes = np.arange(len(loaded.schema.classes))
    means = np.stack([features[train][label[train] == k].mean(axis=0) for k in classes])

    def score(windows: np.ndarray, at: int) -> np.ndarray:
        gaps = -np.abs(features[windows, at, None] - means[:, at])
        odds = np.exp((gaps - gaps.max(axis=1, keepdims=True)) / (np.ptp(means[:, at]) + 1e-9))
        return odds / odds.sum(axis=1, keepdims=True)

    right = [
        np.mean([(score(train, at).argmax(axis=1) == k)[label[train] == k].mean() for k in classes])
        for at in range(features.shape[1])
    ]
    best = int(np.argmax(right))
    return lambda windows: score(windows, best)


def logistic_floor(loaded: Loaded, features: np.ndarray) -> tuple[Scores, bool]:
    """Return the probabilities of the logistic regression that validates best."""
    train, validation, label = loaded.train, loaded.validation, loaded.index.label
    mean = features[train].mean(axis=0)
    inputs = (features - mean) / np.maximum(features[train].std(axis=0), 1e-6)
    best, found = np.inf, LogisticRegression()
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=2000)
        model.fit(inputs[train], label[train])
        classes = np.arange(len(loaded.schema.classes))
        loss = log_loss(label[validation], model.predict_proba(inputs[validation]), labels=classes)
        if loss < best:
            best, found = loss, model
    return lambda windows: found.predict_proba(inputs[windows]), True


def floors(arguments: argparse.Namespace, seed: int) -> Iterator[Found]:
    """Yield (name, mode, metrics, seconds) of each floor."""
    for mode in MODES:
        loaded = loaded_for(arguments, mode, seed)
        job = loaded.job
        features = load_features(job.summary, loaded.schema, mode).astype(float)
        for name, floor in (("threshold", threshold_floor), ("logistic", logistic_floor)):
            begun_s = time.perf_counter()
            score, probable = floor(loaded, features)
            parts = loaded.scored(score, probable=probable)
            found = loaded.evaluated(*parts)
            yield name, mode, found.metrics, time.perf_counter() - begun_s


def trained(arguments: argparse.Namespace, model: str, seed: int) -> Iterator[Found]:
    """Yield (name, mode, metrics, seconds) of a model, trained by its own program."""
    for mode in MODES:
        out = arguments.out / f"{model}_{mode}_{seed}"
        report, took = out / f"{model}_{mode}_train.json", out / "seconds"
        if not report.exists():
            begun_s = time.perf_counter()
            subprocess.run(
                [
                    sys.executable, "-m", TRAINERS[model].module, f"--model={model}",
                    f"--mode={mode}", f"--data={arguments.data}", f"--out-dir={out}",
                    f"--split-recipe={arguments.recipe}", f"--seed={seed}",
                ],
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            took.write_text(str(time.perf_counter() - begun_s), "utf-8")
        metrics = json.loads(report.read_text("utf-8"))["metrics"]
        yield model, mode, metrics, float(took.read_text("utf-8"))


def over_splits(found: Iterable[Found]) -> Iterator[Found]:
    """Yield for each (name, mode) the means over the splits; what a split lacks is left out."""
    groups: dict[tuple[str, str], list[tuple[Metrics, float]]] = {}
    for name, mode, metrics, seconds in found:
        groups.setdefault((name, mode), []).append((metrics, seconds))
    for (name, mode), runs in groups.items():
        values: Metrics = {}
        for key in runs[0][0]:
            known = [metrics[key] for metrics, _ in runs if metrics.get(key) is not None]
            values[key] = np.mean(known, axis=0).tolist() if known else None
        yield name, mode, values, float(np.mean([seconds for _, seconds in runs]))


def row(name: str, mode: str, metrics: Metrics, seconds: float) -> str:
    """Return a line of the table."""
    f1 = "f1" if "f1" in metrics else "macro_f1"
    cells = [
        name, mode, *(_with_interval(metrics, key) for key in ("auroc", "average_precision", f1)),
        *(_plain(metrics, key) for key in ("balanced_accuracy", "brier", "calibration_error")),
        _plain(metrics, "fpr_realised"), f"{seconds:.0f}",
    ]  # fmt: skip
    return line(cells)


def _with_interval(metrics: Metrics, name: str) -> str:
    interval = metrics.get(f"{name}_ci")
    if metrics.get(name) is None or not interval:
        return _plain(metrics, name)
    low, high = (_short(one) for one in interval)
    return f"{_short(metrics[name])} [{low}, {high}]"


def _plain(metrics: Metrics, name: str) -> str:
    value: Any = metrics.get(name)
    return "" if value is None else _short(value)


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if 0 <= value < 1 else f"{value:.3f}"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder that prepare wrote")
    parser.add_argument("--recipe", default="host")
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2, 3])
    parser.add_argument("--models", type=words, default=list(TRAINERS))
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "fleet-models")
    arguments = parser.parse_args()
    heads = ("model", "mode", "AUROC", "AP", "F1", "bal. acc.", "Brier", "ECE", "FPR", "s")
    print(table(heads, ()), flush=True)
    sources: list[Callable[[int], Iterator[Found]]] = [partial(floors, arguments)]
    sources += [partial(trained, arguments, model) for model in arguments.models]
    for source in sources:
        runs = itertools.chain.from_iterable(source(seed) for seed in arguments.seeds)
        for found in over_splits(runs):
            print(row(*found), flush=True)


if __name__ == "__main__":
    main()
