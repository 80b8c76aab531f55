"""Masked pretraining of a transformer, its anomaly score, and the linear probe on its encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.checkpoint import weights_to_bytes
from agent.trainer.common.config import TransformerSslHyper
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.data.splits import TRAIN, VALIDATION
from agent.trainer.models.transformer import MaskedAutoencoder
from agent.trainer.training.batches import WindowBatches
from agent.trainer.training.fit import LossOf, fit, over_batches, start_torch
from agent.trainer.training.loading import Loaded, keeper_of
from agent.trainer.training.networks import build, fit_statistics, size_of
from agent.trainer.training.supervised import Trained

_PROBE_ITERATIONS = 2_000


@dataclass(frozen=True)
class Probe:
    """A logistic regression on standardised embeddings (n, width)."""

    mean: Floats
    scale: Floats
    weight: Floats
    bias: Floats

    def score(self, embeddings: Floats) -> Floats:
        """Return the classes' probabilities (n, classes)."""
        logits = ((embeddings - self.mean) / self.scale) @ self.weight.T + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def tensors(self) -> dict[str, Tensor]:
        """Return what is saved beside the network's weights."""
        return {f"probe.{name}": torch.from_numpy(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Pretrained:
    """The network, how it embeds windows (n, width), and how many windows it was shown."""

    network: nn.Module
    trained: Trained
    embed: Callable[[Ints], Floats]
    windows: int

    def with_probe(self, probe: Probe) -> Pretrained:
        """Return the same with the probe among what is saved."""
        weights = weights_to_bytes(self.network.state_dict() | probe.tensors())
        return replace(self, trained=replace(self.trained, weights=weights))


def pretrain(loaded: Loaded, progress: Progress, interruption: Interruption) -> Pretrained:
    """Train the masked autoencoder; its score (n,) grows with how odd a window is."""
    job, hyper = loaded.job, loaded.job.hyper
    assert isinstance(hyper, TransformerSslHyper)  # noqa: S101 - run_ssl offers no other
    device = start_torch(job.threads, job.seed)
    series = loaded.series()
    batches = WindowBatches(series, loaded.index, device)
    steps, classes = loaded.schema.window, len(loaded.schema.classes)
    size = size_of(job.model, hyper, len(series.channels), classes, steps)
    network: MaskedAutoencoder = build(job.model, size).to(device)
    train, validation = (_shown(loaded, part) for part in (TRAIN, VALIDATION))
    fit_statistics(network, batches, train)

    progress.phase("train")
    fitted = fit(
        network,
        masked_loss(batches, hyper.mask_fraction),
        train,
        validation,
        hyper=hyper,
        seed=job.seed,
        progress=progress,
        keeper=keeper_of(loaded, progress, interruption),
    )

    def over(compute: Callable[[Tensor], Tensor]) -> Callable[[Ints], Floats]:
        def of_windows(windows: Ints) -> Floats:
            chosen = torch.from_numpy(windows)
            return over_batches(network, compute, chosen, hyper.batch_size).numpy()

        return of_windows

    trained = Trained(
        score=over(lambda batch: network.score(batches.gather(batch))),
        inputs=series.channels,
        size=size,
        weights_file="model.safetensors",
        weights=weights_to_bytes(network.state_dict()),
        class_weights=None,
        training=fitted.facts(device.type),
    )
    embed = over(lambda batch: network.embed(batches.gather(batch)))
    return Pretrained(network, trained, embed, len(train))


def fit_probe(loaded: Loaded, pretrained: Pretrained) -> Probe | None:
    """Fit the probe on labelled training windows, or return None where they show one class."""
    label = loaded.index.label[loaded.train]
    if len(np.unique(label)) < 2:
        return None
    embeddings = pretrained.embed(loaded.train)
    mean, scale = embeddings.mean(axis=0), np.maximum(embeddings.std(axis=0), 1e-6)
    model = LogisticRegression(max_iter=_PROBE_ITERATIONS, class_weight="balanced")
    model.fit((embeddings - mean) / scale, label)
    # Of two classes sklearn keeps one row; a class that training never showed gets no odds.
    rows = len(loaded.schema.classes)
    weight, bias = np.zeros((rows, len(mean))), np.full(rows, -1e9)
    bias[model.classes_] = 0.0
    shown = model.classes_[1:] if len(model.coef_) == 1 else model.classes_
    weight[shown], bias[shown] = model.coef_, model.intercept_
    return Probe(mean, scale, weight, bias)


def _shown(loaded: Loaded, part: int) -> Ints:
    """Return the unlabelled windows of a part, or if there are none, the labelled."""
    unlabelled = loaded.splits.unlabelled(part)
    return unlabelled if len(unlabelled) else loaded.splits.windows(part)


def masked_error(
    network: MaskedAutoencoder, series: Tensor, fraction: float, generator: torch.Generator
) -> Tensor:
    """Return how badly a random `fraction` of each window's tokens is filled in: (batch,)."""
    tokens = network.encoder.size.tokens
    hidden = min(max(1, round(fraction * tokens)), max(1, tokens - 1))
    order = torch.rand(len(series), tokens, generator=generator).argsort(dim=1)
    error: Tensor = network(series, (order < hidden).to(series.device))
    return error


def masked_loss(batches: WindowBatches, fraction: float) -> LossOf:
    """Return the loss of a window: how badly a random `fraction` of it is filled in."""

    def loss_of(network: nn.Module, windows: Tensor, generator: torch.Generator) -> Tensor:
        # It may be wrapped in a class of torch.compile.
        autoencoder = cast("MaskedAutoencoder", network)
        return masked_error(autoencoder, batches.gather(windows), fraction, generator)

    return loss_of
