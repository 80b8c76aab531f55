"""Train one supervised model, evaluate it on what it was not trained on, and save it.

    python -m agent.trainer.run --model gbt --mode realistic --data DIR --out-dir DIR

Standard output carries JSON lines alone (see `agent.trainer.common.progress`), standard error
whatever libraries say. Exit codes: 0 done, 1 failed, 2 bad input, 75 interrupted by SIGTERM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from agent.trainer.common.arguments import Job, parse_job
from agent.trainer.common.config import RUN_MODULE
from agent.trainer.common.progress import Progress, claim_stdout, run_reported
from agent.trainer.common.signals import Interruption


def run(job: Job, progress: Progress, interruption: Interruption) -> None:
    """Train, evaluate and save what `job` says. Raises TrainerError."""
    from agent.trainer.common.files import check_folders
    from agent.trainer.evaluation.evaluate import evaluate
    from agent.trainer.training.loading import keeper_of, load_supervised
    from agent.trainer.training.report import save
    from agent.trainer.training.supervised import train

    progress.phase("load")
    check_folders(job.out_dir, job.reports_dir, job.checkpoint_dir)
    loaded = load_supervised(job)
    progress.log(f"windows: {loaded.splits.sizes()}")
    trained = train(loaded, progress, keeper_of(loaded, progress, interruption))

    progress.phase("evaluate")
    validation, test = (
        loaded.scored(windows, trained.score(windows))
        for windows in (loaded.validation, loaded.test)
    )
    if loaded.schema.task == "binary":
        validation, test = validation.of_positive(), test.of_positive()
    evaluation = evaluate(loaded.index, validation, test, loaded.protocol)

    progress.phase("save")
    files = save(loaded, trained, evaluation)
    progress.result(evaluation.metrics, files)


def bind_threads(threads: int) -> None:
    """Tell libraries that are yet to be loaded how many threads they may use."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    # cuBLAS is deterministic only with a workspace of a fixed size.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    job = parse_job(argv, RUN_MODULE)
    bind_threads(job.threads)
    progress = Progress(claim_stdout())
    return run_reported(progress, lambda interruption: run(job, progress, interruption))


if __name__ == "__main__":
    sys.exit(main())
