"""Masked pretraining of a transformer, its anomaly score, and the linear probe on its encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import TransformerSslHyper
from agent.trainer.common.progress import Progress
from agent.trainer.data.splits import TRAIN, VALIDATION
from agent.trainer.evaluation.logistic import Logistic, fit_logistic
from agent.trainer.training.batches import Batches
from agent.trainer.training.fit import LossOf
from agent.trainer.training.loading import Loaded, Trained
from agent.trainer.training.supervised import train_network

_PROBE_ITERATIONS: Final = 2_000


@dataclass(frozen=True)
class Probe:
    """A logistic regression on standardised embeddings (n, width)."""

    mean: Floats
    scale: Floats
    weight: Floats
    bias: Floats

    def score(self, embeddings: Floats) -> Floats:
        """Return the classes' probabilities (n, classes)."""
        standardised = (embeddings - self.mean) / self.scale
        return Logistic(self.weight, self.bias).probabilities(standardised)


def pretrain(loaded: Loaded, hyper: TransformerSslHyper, progress: Progress) -> Trained:
    """Train the masked autoencoder; its score (n,) grows with how odd a window is."""
    parts = _shown(loaded, TRAIN), _shown(loaded, VALIDATION)
    made = train_network(
        loaded, lambda batches: masked_loss(batches, hyper.mask_fraction), parts, progress
    )

    def embed(windows: Ints) -> Floats:
        return made.over(windows, made.network.embed)

    probe = _fit_probe(loaded, embed)
    found = vars(probe).items() if probe is not None else ()
    tensors = {f"probe.{name}": torch.from_numpy(one) for name, one in found}
    trained = made.trained(made.network.score, more=tensors)
    if probe is not None:
        trained = replace(trained, probe=lambda windows: probe.score(embed(windows)))
    return replace(trained, pretrained_on=len(parts[0]))


def _fit_probe(loaded: Loaded, embed: Callable[[Ints], Floats]) -> Probe | None:
    """Fit the probe on labelled training windows, or return None where they show one class."""
    label = loaded.index.label[loaded.train]
    if len(np.unique(label)) < 2:
        return None
    embeddings = embed(loaded.train)
    mean, scale = embeddings.mean(axis=0), np.maximum(embeddings.std(axis=0), 1e-6)
    model = fit_logistic(
        (embeddings - mean) / scale,
        label,
        len(loaded.schema.classes),
        iterations=_PROBE_ITERATIONS,
        balanced=True,
    )
    return Probe(mean, scale, model.weight, model.bias)


def _shown(loaded: Loaded, part: int) -> Ints:
    """Return the unlabelled windows of a part, or if there are none, the labelled."""
    unlabelled = loaded.splits.unlabelled(part)
    return unlabelled if len(unlabelled) else loaded.splits.windows(part)


def masked_error(
    network: Any, series: Tensor, fraction: float, generator: torch.Generator
) -> Tensor:
    """Return how badly a random `fraction` of each window's tokens is filled in: (batch,)."""
    tokens = network.encoder.size.tokens
    hidden = min(max(1, round(fraction * tokens)), max(1, tokens - 1))
    order = torch.rand(len(series), tokens, generator=generator).argsort(dim=1)
    error: Tensor = network(series, (order < hidden).to(series.device))
    return error


def masked_loss(batches: Batches, fraction: float) -> LossOf:
    """Return the loss of a window, whose masks are drawn anew each time."""
    return lambda network, windows, generator: masked_error(
        network, batches.gather(windows), fraction, generator
    )
