"""Put single folds, trained as jobs of their own, together into the report of all of them.

    python -m agent.trainer.combine --out-dir DIR FOLDER FOLDER ...

Each FOLDER is the result of a job with `--split-recipe folds --fold N`, as `fleet get` brings it;
each fold has to be there once. The report is that of one job that trains all folds, but for the
model of all hosts, which that job stores besides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from agent.trainer.common.errors import BadInputError
from agent.trainer.common.files import check_folders
from agent.trainer.common.progress import Progress, program, rounded
from agent.trainer.data.schema import read_json, readable
from agent.trainer.evaluation.evaluate import plain_figures
from agent.trainer.evaluation.report_schema import FoldFigures, HostParts, Parts, Report, Thresholds
from agent.trainer.evaluation.results import Stored, results_of
from agent.trainer.evaluation.stored_scores import SCORES_FILE, Meta, joined, read_scores
from agent.trainer.training.report import write_report

# What all folds must have in common; not what a report says of its own fold.
_SAME: Final = (
    "model", "mode", "task", "classes", "data", "hyper", "seed", "target_fpr",
    "split.recipe", "split.folds", "split.train_hosts",
)  # fmt: skip
_REMEDY: Final = "give the results of jobs with split_recipe folds and a fold, of one sweep"


@dataclass(frozen=True)
class _Fold:
    """The result of one fold."""

    path: Path
    report: Report
    scores: tuple[pa.Table, Meta]


def read_fold(folder: Path) -> _Fold:
    """Return the result in a folder. Raises BadInputError."""
    path = next(iter(sorted(folder.glob("*_train.json"))), folder / "MODEL_MODE_train.json")
    report = read_json(path, Report)
    if report.split.fold is None:
        raise BadInputError.at(path, "split.fold", "is no single fold", _REMEDY)
    with readable(folder / SCORES_FILE, _REMEDY):
        return _Fold(path, report, read_scores((folder / SCORES_FILE).read_bytes()))


def combine(folds: Sequence[_Fold], out_dir: Path) -> tuple[dict[str, Any], list[str]]:
    """Write the report of these folds; return its metrics and the files. Raises BadInputError."""
    first = folds[0].report
    _check(folds)
    if out_dir.resolve() in {one.path.parent.resolve() for one in folds}:
        problem = "is a fold's result, which would be overwritten"
        raise BadInputError.at("command line", "--out-dir", problem, "name another folder")
    folds = sorted(folds, key=lambda one: one.report.split.fold or 0)
    index, tested = joined([one.scores for one in folds])
    of_folds = [_figures(one.report) for one in folds]
    found = results_of(
        index,
        first.classes,
        tested,
        of_folds,
        n_resamples=first.bootstrap.n_resamples,
        seed=first.seed,
        stored=Stored(Thresholds(decision=None, alarm=None)),
    )
    split = first.split.model_dump(exclude_unset=True, exclude={"fold"}) | {
        "windows": Parts(
            training=0, validation=0, purged=0, test=sum(one.windows.test for one in of_folds)
        ),
        "hosts": HostParts(training=[], validation=[], test=list(index.hosts)),
    }
    told = first.model_dump(exclude_unset=True, exclude={"pretraining"})
    told |= {"split": split, "training": None, **found.told}
    if first.probe is not None:
        told["probe"] = found.probe
    report = Report.model_validate(rounded(told))
    return found.told["metrics"], [write_report(out_dir, report)]


def _figures(report: Report) -> FoldFigures:
    assert report.split.fold is not None and report.training is not None  # noqa: PT018, S101 - read_fold
    return FoldFigures(
        fold=report.split.fold,
        windows=report.split.windows,
        hosts=report.split.hosts,
        thresholds=report.thresholds,
        training=report.training,
        metrics=plain_figures(report.metrics),
    )


def _check(folds: Sequence[_Fold]) -> None:
    """Raise BadInputError for folds that do not belong together, or are not all."""
    first = folds[0].report
    for one in folds[1:]:
        differs = [of for of in _SAME if attrgetter(of)(one.report) != attrgetter(of)(first)]
        if differs:
            problem = f"differs from that of {folds[0].path.parent.name}"
            raise BadInputError.at(one.path, differs[0], problem, _REMEDY)
    there = [one.report.split.fold or 0 for one in folds]
    twice = sorted({fold for fold in there if there.count(fold) > 1})
    if twice:
        raise BadInputError.at(folds[0].path, "split.fold", f"{twice[0]} is there twice", _REMEDY)
    count = first.split.folds or 0
    if missing := sorted({*range(1, count + 1)} - {*there}):
        told = ", ".join(map(str, missing))
        problem, remedy = f"of {count}, these are missing: {told}", "give their results, too"
        raise BadInputError.at(folds[0].path, "split.fold", problem, remedy)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="agent.trainer.combine",
        description="Put single folds together into one report.",
        epilog="Example: fleet get gbt-fold-1 gbt-fold-2 -o folds && python -m "
        "agent.trainer.combine --out-dir combined folds/*",
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="A fold's result.")
    parser.add_argument("--out-dir", type=Path, required=True, help="Folder for the report.")
    args = parser.parse_args(argv)

    def work(progress: Progress) -> None:
        check_folders(args.out_dir)
        progress.phase("load")
        folds = [read_fold(folder) for folder in args.folders]
        progress.phase("evaluate")
        metrics, files = combine(folds, args.out_dir)
        progress.result(metrics, files)

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
