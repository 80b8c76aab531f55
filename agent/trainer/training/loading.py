"""What every run begins with (schema, index of windows, split), and what a training gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.trainer.common.arguments import Job
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import TransformerSslHyper
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
from agent.trainer.data.schema import FeatureSchema, sha256_of
from agent.trainer.data.splits import TEST, TRAIN, VALIDATION, Splits, split
from agent.trainer.evaluation.evaluate import Evaluation, evaluate
from agent.trainer.evaluation.metrics import Scored
from agent.trainer.models.description import WeightsFile

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

    def evaluated(self, validation: Scored, test: Scored) -> Evaluation:
        """Return the metrics of `test`, as the job asks for them."""
        asked = {name: getattr(self.job, name) for name in ("target_fpr", "n_resamples", "seed")}
        return evaluate(self.index, validation, test, self.schema.classes, **asked)

    def features(self) -> Floats:
        """Read the features that the mode may see. Raises BadInputError."""
        return load_features(self.job.summary, self.schema, self.job.mode)

    def series(self) -> Series:
        """Map the series that the mode may see into memory. Raises BadInputError."""
        return open_series(self.job.tensors, self.schema, self.job.mode)

    def scored(
        self, score: Callable[[Ints], Floats], *, probable: bool = True
    ) -> tuple[Scored, Scored]:
        """Return what a model says of validation and test; of two classes, of the positive one."""

        def of_part(windows: Ints) -> Scored:
            scores = score(windows)
            if scores.ndim == 2 and self.schema.task == "binary":
                scores = scores[:, 1]
            return Scored(windows, self.index.label[windows], scores, probable)

        return of_part(self.validation), of_part(self.test)


@dataclass(frozen=True)
class Trained:
    """A trained model: how it scores windows, and what is saved and reported of it.

    Of a pretrained network `probe` gives the classes' probabilities by the linear probe, if there
    is one, and `pretrained_on` is how many windows it was shown.
    """

    score: Callable[[Ints], Floats]
    inputs: tuple[str, ...]
    size: dict[str, Any]
    weights_file: WeightsFile
    weights: bytes
    class_weights: tuple[float, ...] | None
    training: dict[str, Any]
    probe: Callable[[Ints], Floats] | None = None
    pretrained_on: int | None = None


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
    splits = split(index, job.split_recipe, job.train_hosts, job.seed)
    loaded = Loaded(job, schema, sha256_of(job.schema), index, splits)
    # With several classes there is no normal one: only the probe is measured.
    if has_labels and (not pretrains or schema.task == "multiclass"):
        _check_classes(loaded)
    return loaded


def _check_classes(loaded: Loaded) -> None:
    present = np.unique(loaded.index.label[loaded.train])
    if len(present) < 2:
        problem = f"all windows to train on are of class {loaded.schema.classes[int(present[0])]}"
        remedy = "choose other train_hosts, seed or split_recipe"
        raise BadInputError.at(loaded.job.validation, "label", problem, remedy)


def keeper_of(loaded: Loaded, progress: Progress, interruption: Interruption) -> Keeper:
    """Return the keeper of a job's checkpoint."""
    from agent.trainer.common.checkpoint import Keeper  # imports torch

    job = loaded.job
    names = ("model", "mode", "split_recipe", "train_hosts", "seed")
    decides = {name: getattr(job, name) for name in names}
    decides |= {"hyper": job.hyper.model_dump(), "data": loaded.fingerprint}
    identity = json.dumps(decides, sort_keys=True)
    return Keeper(
        interruption,
        progress,
        job.checkpoint_dir,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        every_s=job.checkpoint_every_s,
        resume=job.resume,
    )
