"""Writes what a run leaves behind: the model with its description, and the report.

None of the files holds a time, a path or the name of the machine.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent.trainer.common.files import write_atomically
from agent.trainer.common.progress import rounded
from agent.trainer.evaluation.evaluate import MODEL
from agent.trainer.evaluation.page import model_card
from agent.trainer.evaluation.report_schema import FoldFigures, Report
from agent.trainer.evaluation.results import Results, Stored, Tested, results_of
from agent.trainer.evaluation.stored_scores import SCORES_FILE, scores_of
from agent.trainer.models.description import Description
from agent.trainer.training.loading import Loaded, Trained
from agent.trainer.training.testing import hosts_of, procedure_of, thresholds_of


def results(
    loaded: Loaded, trained: Trained, tested: Sequence[Tested], folds: Sequence[FoldFigures]
) -> Results:
    """Return what the job has found, by the test of its model, or of each fold's."""
    job = loaded.job
    thresholds, procedure = tested[0].judged[MODEL].thresholds, tested[0].procedure
    if folds:  # the model that is kept is none of those that were tested
        thresholds = thresholds_of(loaded, trained)
        procedure = procedure_of(loaded, trained, thresholds)
    return results_of(
        loaded.index,
        loaded.schema.classes,
        tested,
        folds,
        n_resamples=job.n_resamples,
        seed=job.seed,
        stored=Stored(thresholds, procedure, trained.gain),
    )


def save(loaded: Loaded, trained: Trained, results: Results, tested: Sequence[Tested]) -> list[str]:
    """Write model and report, each whole or not at all, and return the files' paths."""
    job, schema = loaded.job, loaded.schema
    report = _report(loaded, trained, results)
    files = {
        job.out_dir / trained.weights_file: trained.weights,
        job.out_dir / "model.json": as_json(_description(loaded, trained, results.stored)),
        job.out_dir / "MODEL_CARD.md": model_card(report, schema).encode(),
    }
    if job.fold:
        (only,) = tested
        files[job.out_dir / SCORES_FILE] = scores_of(loaded.index, only)
    for path, content in files.items():
        write_atomically(path, content)
    return [*map(str, files), write_report(job.reports_dir, report)]


def write_report(folder: Path, report: Report) -> str:
    """Write a report, whole or not at all, and return the file's path."""
    path = folder / f"{report.model}_{report.mode}_train.json"
    write_atomically(path, as_json(report))
    return str(path)


def as_json(value: BaseModel) -> bytes:
    """Return the bytes of a file; what was not set is left out."""
    text = value.model_dump_json(indent=2, exclude_unset=True)
    # A list of figures is a line: a curve has hundreds. (No text of JSON has a line's end in it.)
    text = re.sub(r"\[\n([^\[\]{}\"]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    return (text + "\n").encode()


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


def _description(loaded: Loaded, trained: Trained, stored: Stored) -> Description:
    schema = loaded.schema
    return Description(
        **_shared(loaded),
        inputs=trained.inputs,
        window=schema.window,
        stride=schema.stride,
        period_s=schema.period_s,
        size=trained.size,
        thresholds=stored.thresholds,
        host_threshold=stored.procedure,
        weights=trained.weights_file,
        class_weights=trained.class_weights,
    )


def _report(loaded: Loaded, trained: Trained, results: Results) -> Report:
    job = loaded.job
    told = _shared(loaded) | {
        "label_rule": _label_rule(loaded),
        "split": _split(loaded),
        "hyper": job.hyper,
        "seed": job.seed,
        "versions": _versions(job.model),
        "training": trained.training,
        "target_fpr": job.hyper.target_fpr,
        **results.told,
    }
    if trained.pretrained_on is not None:
        told["pretraining"] = {"windows": trained.pretrained_on}
        told["probe"] = results.probe
    return Report.model_validate(rounded(told))


def _label_rule(loaded: Loaded) -> dict[str, Any]:
    rule, share = loaded.schema.label_rule, loaded.schema.label_share
    return {"rule": rule} if share is None else {"rule": rule, "share": share}


def _split(loaded: Loaded) -> dict[str, Any]:
    job = loaded.job
    told = {
        "recipe": job.split_recipe,
        "seed": job.seed,
        "train_hosts": list(job.train_hosts),
        "windows": loaded.splits.sizes(),
        "hosts": hosts_of(loaded),
    }
    if job.split_recipe == "folds":
        told["folds"] = len(loaded.fold_hosts())
    if job.fold:
        told["fold"] = job.fold
    return told


def _versions(model: str) -> dict[str, str]:
    names = ("numpy", "xgboost" if model == "gbt" else "torch")
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version()} | versions
