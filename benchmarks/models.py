"""Every built-in model beside two honest floors, on one prepared data set: a table in Markdown.

    python -m benchmarks.models DATA [--recipe folds --folds 5] [--seeds 0] [--models gbt,cnn]
        [--jobs 2] [--out FOLDER]

With as many folds as there are hosts each host is tested by a model of all the others; `unseen` is
then the mean AUROC over the hosts that `benchmarks/search.py` leaves out, less those that have too
few windows of a class for one. Each seed is another split; figures are means over the splits, and
so are the ends of the 95 % intervals. The floors are trained on the same windows as the models
(`agent/trainer/evaluation/floors.py`).

Models run by their command line with their defaults, each fold on its own. Reports that are in the
output folder already are not made again. A model that cannot be trained has a row without figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from agent.trainer.common.config import DEFAULT_FOLDS, MODES, SPLIT_RECIPES, TRAINERS
from agent.trainer.evaluation.floors import FLOORS
from agent.trainer.evaluation.metrics import Metrics
from agent.trainer.evaluation.page_tables import rule_in_words
from agent.trainer.evaluation.report_schema import LabelRule
from benchmarks.common import numbers, table, words
from benchmarks.search import left_out

NONE: Final = "none"
# Head, metric, whether its interval is shown; a column without any figure is left out.
COLUMNS: Final = (
    ("AUROC", "auroc", True),
    ("better floor", "floor_auroc", False),
    ("AP", "average_precision", False),
    ("accuracy", "accuracy", True),
    ("F1", "f1", False),
    ("macro F1", "macro_f1", False),
    ("Brier", "brier", False),
    ("FPR", "fpr_realised", False),
)


@dataclass(frozen=True)
class Run:
    """A report of one split, the day that it was made on, and the reports of its folds."""

    path: Path
    report: dict[str, Any]
    day: date
    folds: list[dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """What the table says of a model or a floor."""

    name: str
    mode: str
    metrics: Metrics
    unseen: float | None = None
    near_target: str = ""
    marks: str = ""


def run_of(arguments: argparse.Namespace, model: str, mode: str, seed: int) -> Run | None:
    """Return a run, made by the model's own program if it is not there; None where that fails."""
    out = arguments.out / f"{model}_{mode}_{arguments.recipe}_{seed}"
    name = f"{model}_{mode}_train.json"
    flags = [
        f"--model={model}", f"--mode={mode}", f"--data={arguments.data}", f"--seed={seed}",
        f"--split-recipe={arguments.recipe}", f"--train-hosts={arguments.hosts}",
        f"--threads={max(1, (os.cpu_count() or 1) // arguments.jobs)}",
    ]  # fmt: skip
    folders = []
    if arguments.recipe == "folds":
        folders = [out / str(fold) for fold in range(1, arguments.folds + 1)]
        flags += [f"--folds={arguments.folds}"]

    def train(folder: Path) -> bool:
        more = [f"--fold={folder.name}"] if folders else []
        told = [TRAINERS[model].module, *flags, *more, f"--out-dir={folder}"]
        return (folder / name).exists() or works(told, f"{model}, {mode}, seed {seed}")

    if not (out / name).exists():
        with ThreadPoolExecutor(arguments.jobs) as pool:
            done = all(list(pool.map(train, folders or [out])))
        together = ["agent.trainer.combine", f"--out-dir={out}", *map(str, folders)]
        if not done or (folders and not works(together, f"{model}, {mode}: folds")):
            return None
    day = datetime.fromtimestamp((out / name).stat().st_mtime, UTC).date()
    report, *folds = (
        json.loads(path.read_text("utf-8"))
        for path in (out / name, *(folder / name for folder in folders))
        if path.exists()
    )
    return Run(out / name, report, day, folds)


def works(command: Sequence[str], what: str) -> bool:
    """Run a module's command line; whether it ended well. If not, its last line is printed."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    if done.returncode:
        last = "".join(done.stdout.splitlines()[-1:])
        print(f"{what}: {last}", file=sys.stderr, flush=True)
    return done.returncode == 0


def unseen(run: Run, floor: str = "") -> list[float]:
    """Return the AUROC of a model, or of a floor, on each host that no default was chosen on."""
    hosts = left_out(run.report["per_host"])
    found = [
        (fold["floors"][floor] if floor else fold["metrics"])["auroc"]
        for fold in run.folds
        if len(fold["per_host"]) == 1 and next(iter(fold["per_host"])) in hosts
    ]
    return [one for one in found if one is not None]  # none: too few of a class


def check_alike(runs: Sequence[Run], folds: int) -> None:
    """End the program where reports cannot stand in one table: of other data, or other folds."""
    for run in runs:
        split = run.report["split"]
        asked = min(folds, run.report["bootstrap"]["hosts"])
        if split["recipe"] == "folds" and split["folds"] != asked:
            problem = f"{split['folds']}, not {asked}; give another --folds or --out"
            sys.exit(f"{run.path}: split.folds: {problem}")
        for key in ("data", "label_rule", "task"):
            if run.report[key] != runs[0].report[key]:
                sys.exit(f"{run.path}: {key}: differs from {runs[0].path}; give another --out")


def preface(runs: Sequence[Run]) -> str:
    """Return what a reader of the table has to know."""
    report = runs[0].report
    split, resampled = report["split"], report["bootstrap"]
    counts = np.sum([one["counts"] for one in report["per_host"].values()], axis=0)
    shares = ", ".join(
        f"{name} {share:.1%}" for name, share in zip(report["classes"], counts / counts.sum())
    )
    told = f"{split['recipe']} split"
    if split["recipe"] == "folds":
        told = f"{split['folds']} folds over {resampled['hosts']} hosts"
        told += ", one left out at a time" if split["folds"] == resampled["hosts"] else ""
    scope = f"the {resampled['hosts']} hosts are resampled, and within each every {{}}"
    if resampled["these_hosts_only"]:
        scope = f"on these {resampled['hosts']} hosts only; within each is resampled every {{}}"
    days = sorted({run.day.isoformat() for run in runs})
    versions = {name: one for run in runs for name, one in run.report["versions"].items()}
    # Of folds that were put together no model of all hosts is there.
    trainings = [run.report["training"] or run.report["folds"][0]["training"] for run in runs]
    devices = sorted({training["device"] for training in trainings})
    with_what = ", ".join([*devices, *(f"{name} {one}" for name, one in sorted(versions.items()))])
    lines = (
        f"{told[0].upper()}{told[1:]}; {counts.sum():,} windows tested: {shares}.",
        f"A window's label: {rule_in_words(LabelRule(**report['label_rule']))}.",
        f"95 % intervals: {scope.format(resampled['group'])}.",
        f"Trained {' to '.join(dict.fromkeys((days[0], days[-1])))}; {with_what}.",
    )
    return "\n".join(lines)


def rows_of(
    arguments: argparse.Namespace, found: dict[tuple[str, str], list[Run]]
) -> Iterator[Row]:
    """Yield the rows of the floors, by the first model that was trained, and of the models."""
    for mode in MODES:
        known = [runs for (_, one), runs in found.items() if one == mode and runs]
        for name in FLOORS if known else ():
            metrics = means(run.report["floors"].get(name, {}) for run in known[0])
            yield Row(
                name, mode, metrics, mean(one for run in known[0] for one in unseen(run, name))
            )
    for (model, mode), runs in found.items():
        codes = {mark["code"]: None for run in runs for mark in run.report["marks"]}
        marks = [code.replace("_", " ") for code in codes]
        if len(runs) < len(arguments.seeds):
            marks.append(f"{len(arguments.seeds) - len(runs)} of {len(arguments.seeds)} failed")
        metrics = means(run.report["metrics"] for run in runs)
        elsewhere = mean(one for run in runs for one in unseen(run))
        yield Row(model, mode, metrics, elsewhere, near_target(runs), ", ".join(marks))


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of values; None if there is none."""
    known = list(values)
    return float(np.mean(known)) if known else None


def near_target(runs: Sequence[Run]) -> str:
    """Return on how many hosts the false-positive rate is half to twice its target.

    Once by the threshold of each host's own, once by that of all hosts.
    """
    counts = []
    for key in ("fpr", "fpr_pooled"):
        ratios = [
            one[key] / run.report["target_fpr"]
            for run in runs
            if run.report["host_thresholds"] is not None
            for one in run.report["host_thresholds"]["per_host"].values()
            if one[key] is not None
        ]
        if ratios:
            counts.append(f"{sum(0.5 <= ratio <= 2 for ratio in ratios)}/{len(ratios)}")
    return ", ".join(counts)


def means(splits: Iterable[Metrics]) -> Metrics:
    """Return the means of each metric over the splits that define it."""
    values: dict[str, list[Any]] = {}
    for metrics in splits:
        for name, value in metrics.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    return {name: np.mean(known, axis=0).tolist() for name, known in values.items() if known}


def table_of(rows: Sequence[Row]) -> str:
    """Return the table; a figure that a model lacks is a dash."""
    shown = [one for one in COLUMNS if any(one[1] in row.metrics for row in rows)]
    thresholds = any(row.near_target for row in rows)
    cells = [
        (
            row.name,
            row.mode,
            *(cell(row.metrics, key, with_interval) for _, key, with_interval in shown),
            *([row.near_target] if thresholds else []),
            NONE if row.unseen is None else short(row.unseen),
            row.marks,
        )
        for row in rows
    ]
    near = ["FPR near target: own, pooled"] if thresholds else []
    return table(("model", "mode", *(head for head, *_ in shown), *near, "unseen", "mark"), cells)


def cell(metrics: Metrics, name: str, with_interval: bool) -> str:
    """Return a metric, with its interval if it has one and that is asked for."""
    if name not in metrics:
        return NONE
    interval = metrics.get(f"{name}_ci") if with_interval else None
    return short(metrics[name]) + (f" [{', '.join(map(short, interval))}]" if interval else "")


def short(value: float) -> str:
    """Return a figure in three decimals, without the zero before them."""
    return f"{value:.3f}".removeprefix("0")


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is not there, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder that prepare wrote")
    parser.add_argument("--recipe", choices=SPLIT_RECIPES, default="folds")
    parser.add_argument("--folds", type=int, default=DEFAULT_FOLDS)
    parser.add_argument("--hosts", default="", help="only these, as --train-hosts takes them")
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument("--models", type=words, default=list(TRAINERS))
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "fleet-models")
    arguments = parser.parse_args(argv)
    found = {}
    for model in arguments.models:
        for mode in MODES:
            runs = (run_of(arguments, model, mode, seed) for seed in arguments.seeds)
            found[model, mode] = [run for run in runs if run is not None]
    every = [run for runs in found.values() for run in runs]
    if not every:
        sys.exit("no model could be trained")
    check_alike(every, arguments.folds)
    print(preface(every), table_of(list(rows_of(arguments, found))), sep="\n\n")


if __name__ == "__main__":
    main()
