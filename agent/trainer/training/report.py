"""Writes what a run leaves behind: the model with its description, and the report.

`model.json` beside the weights: version, model, mode, task, classes, inputs (features or channels,
in the model's order), window, stride, period_s, size, thresholds, weights (the file's name),
class_weights (divide the model's probabilities by them and normalise; null: trained without) and
the fingerprint of the data.

`<model>_<mode>_train.json` is the report: `agent.trainer.evaluation.report_schema`,
report.schema.json. The HTML page beside it is for people. None of them holds a time, a path or
the name of the machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from dataclasses import asdict
from typing import Any

import numpy as np

from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import rounded
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION
from agent.trainer.evaluation.evaluate import Evaluation
from agent.trainer.evaluation.report_schema import Report
from agent.trainer.training.loading import Loaded
from agent.trainer.training.supervised import Trained


def save(
    loaded: Loaded, trained: Trained, evaluation: Evaluation, extra: dict[str, Any] | None = None
) -> list[str]:
    """Write model and report, each whole or not at all, and return the files' paths."""
    from agent.trainer.evaluation.page import render  # matplotlib takes a second to import

    job = loaded.job
    report = _report(loaded, trained, evaluation, extra or {})
    name = f"{job.model}_{job.mode}_train"
    files = {
        job.out_dir / trained.weights_file: trained.weights,
        job.out_dir / "model.json": _json(_description(loaded, trained, evaluation)),
        job.reports_dir / f"{name}.json": _json(report.model_dump(mode="json", exclude_unset=True)),
        job.reports_dir / f"{name}.html": render(report, evaluation).encode(),
    }
    for path, content in files.items():
        write_atomically(path, content)
    return [str(path) for path in files]


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _description(loaded: Loaded, trained: Trained, evaluation: Evaluation) -> dict[str, Any]:
    job, schema = loaded.job, loaded.schema
    return {
        "version": 1,
        "model": job.model,
        "mode": job.mode,
        "task": schema.task,
        "classes": list(schema.classes),
        "inputs": list(trained.inputs),
        "window": schema.window,
        "stride": schema.stride,
        "period_s": schema.period_s,
        "size": trained.size,
        "thresholds": asdict(evaluation.thresholds),
        "weights": trained.weights_file,
        "class_weights": trained.class_weights,
        "data": loaded.fingerprint,
        "simulated": schema.simulated,
    }


def _report(
    loaded: Loaded, trained: Trained, evaluation: Evaluation, extra: dict[str, Any]
) -> Report:
    job, schema = loaded.job, loaded.schema
    told = {
        "version": 1,
        "model": job.model,
        "mode": job.mode,
        "task": schema.task,
        "classes": list(schema.classes),
        "simulated": schema.simulated,
        "data": loaded.fingerprint,
        "split": _split(loaded),
        "hyper": job.hyper.model_dump(),
        "seed": job.seed,
        "threads": job.threads,
        "versions": _versions(job.model),
        "training": trained.training,
        "metrics": evaluation.metrics,
        "undefined": evaluation.undefined,
        "thresholds": asdict(evaluation.thresholds),
        "target_fpr": job.target_fpr,
        "bootstrap": {"n_resamples": job.n_resamples, "group": evaluation.resampled_by},
        "confusion": evaluation.confusion,
        "per_host": evaluation.per_host,
        **extra,
    }
    return Report.model_validate(rounded(told))


def _split(loaded: Loaded) -> dict[str, Any]:
    job, index, splits = loaded.job, loaded.index, loaded.splits
    hosts = {
        name: [index.hosts[host] for host in np.unique(index.host[splits.windows(part)])]
        for part, name in ((TRAIN, "training"), (VALIDATION, "validation"), (TEST, "test"))
    }
    return {
        "recipe": job.split_recipe,
        "seed": job.seed,
        "train_hosts": list(job.train_hosts),
        "windows": splits.sizes(),
        "hosts": hosts,
    }


def _versions(model: str) -> dict[str, str]:
    names = ("matplotlib", "numpy", "scikit-learn", "xgboost" if model == "gbt" else "torch")
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version()} | versions
