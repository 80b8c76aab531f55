"""Pretrain a transformer on masked windows without labels, and set an alarm by its errors.

    python -m agent.trainer.run_ssl --model transformer_ssl --mode oracle --data DIR --out-dir DIR

The network learns to fill in hidden parts of the unlabelled windows of the training hosts (of all
training windows where none is unlabelled). The error of filling in a window is its anomaly score;
the alarm threshold aims at `--target-fpr` on normal validation windows. Where labels exist, a
linear probe on the frozen encoder measures the representation: with several classes its metrics are
the run's, with two they stand beside the alarm's as `probe_*`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from agent.trainer.common.arguments import Job
from agent.trainer.common.config import RUN_SSL_MODULE
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.run import main as run_main

_PROBE_METRICS: Final = ("auroc", "average_precision", "f1")


def run(job: Job, progress: Progress, interruption: Interruption) -> None:
    """Pretrain, evaluate and save what `job` says. Raises TrainerError."""
    from agent.trainer.common.files import check_folders
    from agent.trainer.evaluation.evaluate import Evaluation, choose_thresholds, evaluate
    from agent.trainer.training.loading import load_self_supervised
    from agent.trainer.training.pretrain import fit_probe, pretrain
    from agent.trainer.training.report import save

    progress.phase("load")
    check_folders(job.out_dir, job.reports_dir, job.checkpoint_dir)
    loaded = load_self_supervised(job)
    progress.log(f"labelled windows: {loaded.splits.sizes()}")
    pretrained = pretrain(loaded, progress, interruption)

    progress.phase("evaluate")
    anomaly = loaded.scored(pretrained.trained.score, probable=False)
    probe = fit_probe(loaded, pretrained)
    of_probe: Evaluation | None = None
    if probe is not None:
        pretrained = pretrained.with_probe(probe)
        parts = loaded.scored(lambda windows: probe.score(pretrained.embed(windows)))
        of_probe = evaluate(loaded.index, *parts, loaded.protocol)
    if loaded.schema.task == "multiclass" and of_probe is not None:
        # No class of several is the normal one: every validation window sets the alarm.
        alarm = choose_thresholds(anomaly[0].as_normal(), job.target_fpr)
        evaluation = replace(of_probe, thresholds=alarm)
    else:
        evaluation = evaluate(loaded.index, *anomaly, loaded.protocol)
        if of_probe is not None:
            _add_probe(evaluation.metrics, of_probe.metrics)
            _add_probe(evaluation.undefined, of_probe.undefined)

    progress.phase("save")
    extra = {
        "pretraining": {"windows": pretrained.windows},
        "probe": of_probe.metrics if of_probe else None,
    }
    files = save(loaded, pretrained.trained, evaluation, extra)
    progress.result(evaluation.metrics, files)


def _add_probe(found: dict[str, Any], of_probe: dict[str, Any]) -> None:
    names = [name for name in _PROBE_METRICS if name in of_probe]
    found.update({f"probe_{name}": of_probe[name] for name in names})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run_main(argv, RUN_SSL_MODULE, run)


if __name__ == "__main__":
    sys.exit(main())
