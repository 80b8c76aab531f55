"""Trains a network on a job's windows; and with the labels as targets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.checkpoint import Keeper, weights_to_bytes
from agent.trainer.common.config import SupervisedHyper, TorchHyper
from agent.trainer.common.progress import Progress
from agent.trainer.data.features import STATISTICS, class_weights, unweighted
from agent.trainer.models.classifiers import Mlp
from agent.trainer.models.description import TENSORS_FILE
from agent.trainer.models.layers import WideAndDeep, summary
from agent.trainer.training.batches import (
    ArrayBatches,
    Batches,
    WindowBatches,
    mean_and_deviation,
)
from agent.trainer.training.fit import LossOf, fit, over_batches, start_torch
from agent.trainer.training.loading import Fitted, Loaded, Trained
from agent.trainer.training.networks import build, size_of

_CHUNK_WINDOWS: Final = 128
_MOVED: Final = 0.3  # deviations by which augmentation moves the level of an input
_FLAT: Final = 0.1  # share of the inputs that it leaves without a signal


@dataclass(frozen=True)
class TrainedNetwork:
    """A network, where its inputs come from, and how its training went."""

    network: Any
    batches: Batches
    inputs: tuple[str, ...]
    size: dict[str, Any]
    batch_size: int
    fitted: Fitted

    def over(self, windows: Ints, compute: Callable[[Tensor], Tensor]) -> Floats:
        """Return what `compute` makes of the inputs of `windows` (n,)."""

        def of_batch(batch: Tensor) -> Tensor:
            return compute(self.batches.gather(batch))

        chosen = torch.from_numpy(windows)
        return over_batches(self.network, of_batch, chosen, self.batch_size).numpy()

    def gather(self, windows: Ints) -> Floats:
        """Return the network's inputs (n, ..., inputs) of `windows` (n,)."""
        return self.batches.gather(torch.from_numpy(windows)).cpu().numpy()

    def trained(
        self,
        compute: Callable[[Tensor], Tensor],
        finish: Callable[[Floats], Floats] = np.asarray,
        class_weights: tuple[float, ...] | None = None,
        more: Mapping[str, Tensor] | None = None,
    ) -> Trained:
        """Return the same in the shape of every model, whose score is `finish(compute(inputs))`.

        `more` is saved beside the weights.
        """
        device = next(self.network.parameters()).device

        def of_inputs(inputs: Floats) -> Floats:
            given = replace(self, batches=ArrayBatches(inputs, device))
            return finish(given.over(np.arange(len(inputs)), compute))

        return Trained(
            score=lambda windows: finish(self.over(windows, compute)),
            gather=self.gather,
            of_inputs=of_inputs,
            inputs=self.inputs,
            size=self.size,
            weights_file=TENSORS_FILE,
            weights=weights_to_bytes(self.network.state_dict() | (more or {})),
            class_weights=class_weights,
            training=self.fitted.facts(device.type),
        )


def train_supervised(loaded: Loaded, hyper: SupervisedHyper, progress: Progress) -> Trained:
    """Train a classifier; its score is the classes' probabilities (n, classes)."""
    label = loaded.index.label
    weights = class_weights(label[loaded.train], len(loaded.schema.classes), hyper.class_weight)
    made = train_network(
        loaded,
        lambda batches: cross_entropy(batches, label, weights, augment=hyper.augment),
        (loaded.train, loaded.validation),
        progress,
    )

    def chances(inputs: Tensor) -> Tensor:
        return torch.softmax(made.network(inputs).float(), dim=1)

    return made.trained(chances, lambda found: unweighted(found, weights), tuple(weights.tolist()))


def train_network(
    loaded: Loaded,
    loss: Callable[[Batches], LossOf],
    parts: tuple[Ints, Ints],
    progress: Progress,
) -> TrainedNetwork:
    """Train the job's network on the windows of the first of `parts`, validated on the second."""
    job, schema, hyper = loaded.job, loaded.schema, loaded.job.hyper
    assert isinstance(hyper, TorchHyper)  # noqa: S101 - the trees have another way
    device = start_torch(job.threads, job.seed)
    batches: Batches
    if job.model == "mlp":
        inputs, batches = schema.features_of(job.mode), ArrayBatches(loaded.features, device)
    else:
        series = loaded.series()
        inputs, batches = series.channels, WindowBatches(series, loaded.index, device)
    size = size_of(job.model, hyper, len(inputs), len(schema.classes), schema.window)
    network = build(job.model, size).to(device)
    fit_statistics(network, batches, parts[0])
    progress.phase("train")
    keeper = keeper_of(loaded, progress)
    fitted = fit(network, loss(batches), *parts, hyper=hyper, seed=job.seed, keeper=keeper)
    return TrainedNetwork(network, batches, inputs, size, hyper.batch_size, fitted)


def keeper_of(loaded: Loaded, progress: Progress) -> Keeper:
    """Return the keeper of a job's checkpoint."""
    job = loaded.job
    names = ("model", "mode", "split_recipe", "folds", "fold", "train_hosts", "seed")
    decides = {name: getattr(job, name) for name in names}
    decides |= {"hyper": job.hyper.model_dump(), "data": loaded.fingerprint}
    identity = json.dumps(decides, sort_keys=True)
    return Keeper(
        progress,
        job.checkpoint_dir,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        every_s=job.checkpoint_every_s,
        resume=job.resume,
    )


def fit_statistics(network: Any, batches: Batches, windows: Ints) -> None:
    """Have the network standardise by the statistics of `windows` (n,)."""
    of_a_unit = len(STATISTICS) if isinstance(network, Mlp) else 1
    network.standardise.fit(*batches.statistics(windows), of_a_unit)
    if not isinstance(network, WideAndDeep):
        return

    def summaries() -> Iterator[Floats]:
        for at in range(0, len(windows), _CHUNK_WINDOWS):
            chunk = batches.gather(torch.from_numpy(windows[at : at + _CHUNK_WINDOWS]))
            yield summary(network.standardise.deviations(chunk)).cpu().numpy()

    network.level.fit(*mean_and_deviation(summaries))


def cross_entropy(
    batches: Batches, label: Ints, weights: Floats, *, augment: bool = False
) -> LossOf:
    """Return the loss of a window: cross-entropy times the weight (classes,) of its class."""
    targets = torch.from_numpy(label)
    weight = torch.from_numpy(weights).float()

    def loss_of(network: nn.Module, windows: Tensor, generator: torch.Generator) -> Tensor:
        inputs = batches.gather(windows)
        if augment and network.training:
            inputs = as_of_another_host(inputs, network.standardise, generator)
        logits = network(inputs).float()
        return nn.functional.cross_entropy(
            logits,
            targets[windows].to(logits.device),
            weight=weight.to(logits.device),
            reduction="none",
        )

    return loss_of


def as_of_another_host(inputs: Tensor, standardise: Any, generator: torch.Generator) -> Tensor:
    """Return `inputs` (batch, ..., inputs) with other levels, and some of them without a signal.

    First a share of a window's inputs is set to the mean; each then moves by normal deviations.
    """
    shape = (len(inputs), *[1] * (inputs.dim() - 2), inputs.shape[-1])
    moved = _MOVED * torch.randn(shape, generator=generator)
    is_kept = torch.rand(shape, generator=generator) >= _FLAT
    kept = torch.where(is_kept.to(inputs.device), inputs, standardise.mean)
    changed: Tensor = kept + moved.to(inputs.device) * standardise.scale
    return changed
