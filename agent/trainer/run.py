"""Train one model, evaluate it on what it was not trained on, and save it.

    python -m agent.trainer.run --model gbt --mode realistic --data DIR --out-dir DIR

Standard output has JSON lines alone (see `agent.trainer.common.progress`), standard error
whatever libraries print. Exit codes: 0 done, 1 failed, 2 bad input, 75 interrupted by SIGTERM, 130
by Ctrl-C.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent.trainer.common.arguments import Job, parse_job
from agent.trainer.common.config import RUN_MODULE
from agent.trainer.common.progress import Progress, leave, program


def run(job: Job, progress: Progress) -> None:
    """Train, evaluate and save what `job` says. Raises TrainerError."""
    from agent.trainer.common.files import check_folders
    from agent.trainer.training.loading import load
    from agent.trainer.training.report import results, save
    from agent.trainer.training.testing import fold_figures, tested
    from agent.trainer.training.train import train

    progress.phase("load")
    check_folders(job.out_dir, job.reports_dir, job.checkpoint_dir)
    loaded = load(job)
    progress.log(f"labelled windows: {loaded.splits.sizes()}")
    folds = list(loaded.folds())
    tests, figures = [], []
    for number, one in enumerate(folds):
        progress.part = (number, len(folds) + 1)
        trained = train(one, progress)
        tests.append(tested(one, trained))
        figures.append(fold_figures(one, trained, tests[-1]))
    progress.part = (len(folds), len(folds) + 1)
    trained = train(loaded, progress)

    progress.phase("evaluate")
    tests = tests or [tested(loaded, trained)]
    found = results(loaded, trained, tests, figures)

    progress.phase("save")
    files = save(loaded, trained, found, tests)
    marks = [mark.code for mark in found.told["marks"]]
    progress.result(found.told["metrics"] | ({"marks": marks} if marks else {}), files)


def bind_threads(threads: int) -> None:
    """Tell libraries that are yet to be loaded how many threads they may use."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    # cuBLAS is deterministic only with a workspace of a fixed size.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def main(argv: Sequence[str] | None = None, module: str = RUN_MODULE) -> int:
    """Run the command line of `module` and return the exit code."""
    job = parse_job(argv, module)
    bind_threads(job.threads)
    return program(lambda progress: run(job, progress))


if __name__ == "__main__":
    leave(main())
