"""Pretrain a transformer on masked windows without labels, and set an alarm by its errors.

    python -m agent.trainer.run_ssl --model transformer_ssl --mode oracle --data DIR --out-dir DIR

The network learns to fill in hidden parts of the unlabelled windows of the training hosts (of all
training windows where none is unlabelled). How badly it fills in a window is how anomalous the
window is; the alarm threshold aims at `--target-fpr` on normal validation windows. Where labels
exist, a linear probe on the frozen encoder says what the representation is worth: of several
classes its metrics are the run's, of two they stand beside the alarm's as `probe_*`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agent.trainer.common.arguments import Job, parse_job
from agent.trainer.common.config import RUN_SSL_MODULE
from agent.trainer.common.progress import Progress, claim_stdout, run_reported
from agent.trainer.common.signals import Interruption
from agent.trainer.run import bind_threads

_PROBE_METRICS: Final = ("auroc", "average_precision", "f1")


def run(job: Job, progress: Progress, interruption: Interruption) -> None:
    """Pretrain, evaluate and save what `job` says. Raises TrainerError."""
    from agent.trainer.common.files import check_folders
    from agent.trainer.evaluation.evaluate import Evaluation, choose_thresholds, evaluate
    from agent.trainer.training.loading import keeper_of, load_self_supervised
    from agent.trainer.training.pretrain import fit_probe, pretrain
    from agent.trainer.training.report import save

    progress.phase("load")
    check_folders(job.out_dir, job.reports_dir, job.checkpoint_dir)
    loaded = load_self_supervised(job)
    progress.log(f"labelled windows: {loaded.splits.sizes()}")
    pretrained = pretrain(loaded, progress, keeper_of(loaded, progress, interruption))

    progress.phase("evaluate")
    parts = (loaded.validation, loaded.test)
    anomaly = [
        loaded.scored(windows, pretrained.trained.score(windows), probable=False)
        for windows in parts
    ]
    probe = fit_probe(loaded, pretrained)
    of_probe: Evaluation | None = None
    if probe is not None:
        pretrained = pretrained.with_probe(probe)
        scored = [loaded.scored(part, probe.score(pretrained.embed(part))) for part in parts]
        if loaded.schema.task == "binary":
            scored = [part.of_positive() for part in scored]
        of_probe = evaluate(loaded.index, scored[0], scored[1], loaded.protocol)
    if loaded.schema.task == "multiclass" and of_probe is not None:
        # No class of several is the normal one: every validation window sets the alarm.
        alarm = choose_thresholds(anomaly[0].as_normal(), job.target_fpr)
        evaluation = replace(of_probe, thresholds=alarm)
    else:
        evaluation = evaluate(loaded.index, anomaly[0], anomaly[1], loaded.protocol)
        if of_probe is not None:
            evaluation.metrics.update(
                {f"probe_{name}": of_probe.metrics[name] for name in _PROBE_METRICS}
            )
            evaluation.undefined.update(
                {f"probe_{name}": why for name, why in of_probe.undefined.items()
                 if name in _PROBE_METRICS}
            )  # fmt: skip

    progress.phase("save")
    extra = {
        "pretraining": {"windows": pretrained.windows},
        "probe": of_probe.metrics if of_probe else None,
    }
    files = save(loaded, pretrained.trained, evaluation, extra)
    progress.result(evaluation.metrics, files)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    job = parse_job(argv, RUN_SSL_MODULE)
    bind_threads(job.threads)
    progress = Progress(claim_stdout())
    return run_reported(progress, lambda interruption: run(job, progress, interruption))


if __name__ == "__main__":
    sys.exit(main())
