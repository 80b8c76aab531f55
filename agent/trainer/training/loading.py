"""What every run begins with (schema, index of windows, split), and what a training gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from agent.trainer.common.arguments import Job
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import TransformerSslHyper
from agent.trainer.common.errors import BadInputError
from agent.trainer.data.dataset import (
    Series,
    WindowIndex,
    load_features,
    load_index,
    load_schema,
    open_series,
)
from agent.trainer.data.schema import FeatureSchema, sha256_of
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION, Splits, fold_hosts, split, split_fold
from agent.trainer.evaluation.metrics import Scored
from agent.trainer.models.description import WeightsFile

LEAST_WINDOWS: Final = 10  # of a part


@dataclass(frozen=True)
class Loaded:
    """A job with its schema, index and split; features and series are read on demand."""

    job: Job
    schema: FeatureSchema
    fingerprint: str
    index: WindowIndex
    splits: Splits

    @property
    def has_labels(self) -> bool:
        """Whether the data has labels; without any, every window counts as normal."""
        return self.schema.task != "unlabelled"

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

    @cached_property
    def features(self) -> Floats:
        """Read the features that the mode may see, once. Raises BadInputError."""
        return load_features(self.job.summary, self.schema, self.job.mode)

    def series(self) -> Series:
        """Map the series that the mode may see into memory. Raises BadInputError."""
        return open_series(self.job.tensors, self.schema, self.job.mode)

    def fold_hosts(self) -> list[Ints]:
        """Return the hosts of each fold, by number."""
        job = self.job
        return fold_hosts(self.index, job.train_hosts, job.folds, job.seed)

    def folds(self) -> Iterator[Loaded]:
        """Yield the job once for each of its folds, if it is to train all of them."""
        job = self.job
        if job.split_recipe != "folds" or job.fold:
            return
        for fold in range(1, len(self.fold_hosts()) + 1):
            place = job.checkpoint_dir and job.checkpoint_dir / f"fold_{fold}"
            one = replace(job, fold=fold, checkpoint_dir=place)
            yield checked(replace(self, job=one, splits=_split(one, self.index)))

    def scored_on(
        self, windows: Ints, score: Callable[[Ints], Floats], *, probable: bool = True
    ) -> Scored:
        """Return what a model says of `windows` (n,); of two classes, of the positive one."""
        scores = self.of_positive(score(windows))
        return Scored(windows, self.index.label[windows], scores, probable)

    def of_positive(self, scores: Floats) -> Floats:
        """Return the positive class's column (n,) of two classes' probabilities, or as it is."""
        return scores[:, 1] if scores.ndim == 2 and self.schema.task == "binary" else scores


@dataclass
class Fitted:
    """How the training went; `elsewhere` has the environments of earlier processes."""

    best_epoch: int = 0
    best_loss: float = math.inf
    curve: list[tuple[float, float]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    compiled: bool = False

    def facts(self, device: str) -> dict[str, Any]:
        """Return what the report says of the training."""
        return {
            "device": device,
            "compiled": self.compiled,
            "elsewhere": self.elsewhere,
            "best_epoch": self.best_epoch,
            "epochs_run": len(self.curve),
            "curve": self.curve,
        }


@dataclass(frozen=True)
class Trained:
    """A trained model: how it scores windows, and what is saved and reported of it.

    `gather` returns what it reads of windows, (n, ..., inputs); `of_inputs` scores such. `gain` is
    each input's share of what all splits of trees gain.

    Of a pretrained network `probe` gives the classes' probabilities by the linear probe, if there
    is one, and `pretrained_on` is how many windows it was shown.
    """

    score: Callable[[Ints], Floats]
    gather: Callable[[Ints], Floats]
    of_inputs: Callable[[Floats], Floats]
    inputs: tuple[str, ...]
    size: dict[str, Any]
    weights_file: WeightsFile
    weights: bytes
    class_weights: tuple[float, ...] | None
    training: dict[str, Any]
    probe: Callable[[Ints], Floats] | None = None
    pretrained_on: int | None = None
    gain: dict[str, float] | None = None


def load(job: Job) -> Loaded:
    """Read and split what `job` names. Raises BadInputError, also where there are too few labels.

    To pretrain none is needed: where no window has one, every window is normal.
    """
    schema = load_schema(job.schema)
    if not schema.channels_of(job.mode):
        problem = f"none may be seen in mode {job.mode}"
        raise BadInputError.at(job.schema, "channels", problem, "choose another mode")
    index = load_index(job.validation, schema)
    pretrains = isinstance(job.hyper, TransformerSslHyper)
    has_labels = bool(index.labelled.any())
    if not has_labels:
        if not pretrains:
            remedy = "use transformer_ssl, or label every row of some windows"
            raise BadInputError.at(job.schema, "task", "no window has a label", remedy)
        index = replace(index, label=np.zeros(len(index), dtype=np.int64))
        told = {"task": "unlabelled", "classes": ("normal", "anomaly")}
        schema = schema.model_copy(update=told)
    return checked(Loaded(job, schema, sha256_of(job.schema), index, _split(job, index)))


def _split(job: Job, index: WindowIndex) -> Splits:
    if job.split_recipe == "folds":
        return split_fold(index, job.train_hosts, job.folds, job.fold, job.seed)
    return split(index, job.split_recipe, job.train_hosts, job.seed)


def checked(loaded: Loaded) -> Loaded:
    """Return what was loaded. Raises BadInputError where its labels are too few, or of one kind."""
    job, label = loaded.job, loaded.index.label
    parts = {"training": loaded.train, "validation": loaded.validation, "test": loaded.test}
    if job.split_recipe == "folds":
        del parts["test"]  # those of all folds are measured together
    whose = f" of fold {job.fold}" if job.fold else ""
    what = "labelled windows" if loaded.has_labels else "windows"
    for name, its in parts.items():
        if len(its) < LEAST_WINDOWS:
            problem = f"the {name} part{whose} has {len(its)} {what}; {LEAST_WINDOWS} are the least"
            more = "more hosts" if job.split_recipe in {"host", "folds"} else "longer episodes"
            remedy = f"give {more}, or prepare a smaller --window or --stride"
            raise BadInputError.at(job.validation, "window", problem, remedy)
    present = np.unique(label[loaded.train])
    # With several classes there is no normal one: only the probe is measured.
    pretrains = isinstance(job.hyper, TransformerSslHyper) and loaded.schema.task != "multiclass"
    if loaded.has_labels and not pretrains and len(present) < 2:
        problem = f"all windows to train on are of class {loaded.schema.classes[int(present[0])]}"
        remedy = "choose other train_hosts, seed or split_recipe"
        raise BadInputError.at(job.validation, "label", problem, remedy)
    return loaded
