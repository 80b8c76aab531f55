"""Loads what every run begins with: the schema, the index of windows, and their split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agent.trainer.common.arguments import Job
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.errors import BadInputError
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.data.dataset import (
    Series,
    WindowIndex,
    load_features,
    load_index,
    load_schema,
    open_series,
)
from agent.trainer.data.schema import (
    FeatureSchema,
    sha256_of,
)
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION, Splits, split
from agent.trainer.evaluation.evaluate import Protocol
from agent.trainer.evaluation.metrics import Scored

if TYPE_CHECKING:
    from agent.trainer.common.checkpoint import Keeper


@dataclass(frozen=True)
class Loaded:
    """A job with its schema, index and split; features and series are read on demand."""

    job: Job
    schema: FeatureSchema
    fingerprint: str
    index: WindowIndex
    splits: Splits

    @property
    def train(self) -> Ints:
        """Return the labelled windows to train on."""
        return self.splits.windows(TRAIN)

    @property
    def validation(self) -> Ints:
        """Return the labelled windows to stop and to choose thresholds by."""
        return self.splits.windows(VALIDATION)

    @property
    def test(self) -> Ints:
        """Return the labelled windows to evaluate on."""
        return self.splits.windows(TEST)

    @property
    def protocol(self) -> Protocol:
        """Return how to evaluate."""
        job = self.job
        return Protocol(self.schema.classes, job.target_fpr, job.n_resamples, job.seed)

    def features(self) -> Floats:
        """Read the features that the mode may see. Raises BadInputError."""
        return load_features(self.job.summary, self.schema, self.job.mode)

    def series(self) -> Series:
        """Map the series that the mode may see into memory. Raises BadInputError."""
        return open_series(self.job.tensors, self.schema, self.job.mode)

    def scored(
        self, score: Callable[[Ints], Floats], *, probable: bool = True
    ) -> tuple[Scored, Scored]:
        """Return what a model says of the validation and of the test windows.

        Of the probabilities of two classes the positive one's are kept.
        """
        validation, test = (
            self._scored(windows, score(windows), probable=probable)
            for windows in (self.validation, self.test)
        )
        return validation, test

    def _scored(self, windows: Ints, score: Floats, *, probable: bool) -> Scored:
        if score.ndim == 2 and self.schema.task == "binary":
            score = score[:, 1]
        return Scored(windows, self.index.label[windows], score, probable)


def load(job: Job) -> Loaded:
    """Read and split what `job` names. Raises BadInputError."""
    schema = load_schema(job.schema)
    if not schema.channels_of(job.mode):
        raise BadInputError.at(
            job.schema, "channels", f"none may be seen in mode {job.mode}", "choose another mode"
        )
    index = load_index(job.validation, schema)
    splits = split(index, job.split_recipe, job.train_hosts, job.seed)
    return Loaded(job, schema, sha256_of(job.schema), index, splits)


def load_supervised(job: Job) -> Loaded:
    """Load a job that learns from labels. Raises BadInputError where there are too few."""
    loaded = load(job)
    if not loaded.index.labelled.any():
        remedy = "use transformer_ssl, or label every row of some windows"
        raise BadInputError.at(job.schema, "task", "no window has a label", remedy)
    _check_classes(loaded)
    return loaded


def _check_classes(loaded: Loaded) -> None:
    present = np.unique(loaded.index.label[loaded.train])
    if len(present) < 2:
        only = loaded.schema.classes[int(present[0])]
        raise BadInputError.at(
            loaded.job.validation,
            "label",
            f"all windows to train on are of class {only}",
            "choose other train_hosts, seed or split_recipe",
        )


def load_self_supervised(job: Job) -> Loaded:
    """Load a job that needs no labels; where no window has one, every window is normal.

    Raises BadInputError for a multiclass task with one class to train on: there is neither a
    normal class nor a probe, so nothing could be measured.
    """
    loaded = load(job)
    if loaded.index.labelled.any():
        if loaded.schema.task == "multiclass":
            _check_classes(loaded)
        return loaded
    index = replace(loaded.index, label=np.zeros(len(loaded.index), dtype=np.int64))
    told = {"task": "unlabelled", "classes": ("normal", "anomaly")}
    schema = loaded.schema.model_copy(update=told)
    splits = split(index, job.split_recipe, job.train_hosts, job.seed)
    return replace(loaded, index=index, schema=schema, splits=splits)


def keeper_of(loaded: Loaded, progress: Progress, interruption: Interruption) -> Keeper:
    """Return the keeper of a job's checkpoint."""
    from agent.trainer.common.checkpoint import Keeper  # imports torch

    job = loaded.job
    identity = json.dumps({**job.identity(), "data": loaded.fingerprint}, sort_keys=True)
    return Keeper(
        interruption,
        progress,
        job.checkpoint_dir,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        every_s=job.checkpoint_every_s,
        resume=job.resume,
    )
