"""Writes what a run leaves behind: the model with its description, the report, and its page.

None of the files holds a time, a path or the name of the machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import Any

import numpy as np
from pydantic import BaseModel

from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import rounded
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION
from agent.trainer.evaluation.evaluate import Evaluation
from agent.trainer.evaluation.report_schema import Report
from agent.trainer.models.description import Description
from agent.trainer.training.loading import Loaded, Trained


def save(loaded: Loaded, trained: Trained, evaluation: Evaluation) -> list[str]:
    """Write model and report, each whole or not at all, and return the files' paths."""
    from agent.trainer.evaluation.page import render  # matplotlib takes a second to import

    job = loaded.job
    report = _report(loaded, trained, evaluation)
    name = f"{job.model}_{job.mode}_train"
    files = {
        job.out_dir / trained.weights_file: trained.weights,
        job.out_dir / "model.json": _json(_description(loaded, trained, evaluation)),
        job.reports_dir / f"{name}.json": _json(report),
        job.reports_dir / f"{name}.html": render(report, evaluation).encode(),
    }
    for path, content in files.items():
        write_atomically(path, content)
    return [str(path) for path in files]


def _json(value: BaseModel) -> bytes:
    told = value.model_dump(mode="json", exclude_unset=True)
    return (json.dumps(told, indent=2, allow_nan=False) + "\n").encode()


def _shared(loaded: Loaded) -> dict[str, Any]:
    """Return what the description and the report both tell of a run."""
    job, schema = loaded.job, loaded.schema
    return {
        "version": 1,
        "model": job.model,
        "mode": job.mode,
        "task": schema.task,
        "classes": schema.classes,
        "data": loaded.fingerprint,
        "simulated": schema.simulated,
    }


def _description(loaded: Loaded, trained: Trained, evaluation: Evaluation) -> Description:
    schema = loaded.schema
    return Description(
        **_shared(loaded),
        inputs=trained.inputs,
        window=schema.window,
        stride=schema.stride,
        period_s=schema.period_s,
        size=trained.size,
        thresholds=evaluation.thresholds,
        weights=trained.weights_file,
        class_weights=trained.class_weights,
    )


def _report(loaded: Loaded, trained: Trained, evaluation: Evaluation) -> Report:
    job = loaded.job
    told = _shared(loaded) | {
        "split": _split(loaded),
        "hyper": job.hyper.model_dump(),
        "seed": job.seed,
        "threads": job.threads,
        "versions": _versions(job.model),
        "training": trained.training,
        "metrics": evaluation.metrics,
        "undefined": evaluation.undefined,
        "thresholds": evaluation.thresholds.model_dump(),
        "target_fpr": job.target_fpr,
        "bootstrap": {"n_resamples": job.n_resamples, "group": evaluation.resampled_by},
        "confusion": evaluation.confusion,
        "per_host": evaluation.per_host,
    }
    if trained.pretrained_on is not None:
        told |= {"pretraining": {"windows": trained.pretrained_on}, "probe": evaluation.probe}
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
