"""Masked pretraining of a transformer, its anomaly score, and the linear probe on its encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.config import TransformerSslHyper
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.data.splits import TRAIN, VALIDATION
from agent.trainer.evaluation.evaluate import Evaluation, choose_thresholds
from agent.trainer.training.batches import Batches
from agent.trainer.training.fit import LossOf
from agent.trainer.training.loading import Loaded, Trained
from agent.trainer.training.supervised import train_network

_PROBE_ITERATIONS: Final = 2_000
_PROBE_METRICS: Final = ("auroc", "average_precision", "f1")


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
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def pretrain(
    loaded: Loaded, hyper: TransformerSslHyper, progress: Progress, interruption: Interruption
) -> Trained:
    """Train the masked autoencoder; its score (n,) grows with how odd a window is."""
    parts = _shown(loaded, TRAIN), _shown(loaded, VALIDATION)
    made = train_network(
        loaded,
        lambda batches: masked_loss(batches, hyper.mask_fraction),
        parts,
        progress,
        interruption,
    )

    def embed(windows: Ints) -> Floats:
        return made.over(windows, made.network.embed)

    probe = _fit_probe(loaded, embed)
    found = vars(probe).items() if probe is not None else ()
    tensors = {f"probe.{name}": torch.from_numpy(one) for name, one in found}
    trained = made.trained(lambda windows: made.over(windows, made.network.score), None, tensors)
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


def evaluate_pretrained(loaded: Loaded, trained: Trained) -> Evaluation:
    """Evaluate the anomaly score, and the probe beside it; with several classes the probe alone."""
    anomaly = loaded.scored(trained.score, probable=False)
    of_probe = None
    if trained.probe is not None:
        of_probe = loaded.evaluated(*loaded.scored(trained.probe))
        if loaded.schema.task == "multiclass":
            # No class of several is the normal one: every validation window sets the alarm.
            normal = replace(anomaly[0], label=np.zeros_like(anomaly[0].label))
            alarm = choose_thresholds(normal, loaded.job.target_fpr)
            return replace(of_probe, thresholds=alarm, probe=of_probe.metrics)
    evaluation = loaded.evaluated(*anomaly)
    if of_probe is None:
        return evaluation
    for name in _PROBE_METRICS:
        for ours, its in (
            (evaluation.metrics, of_probe.metrics),
            (evaluation.undefined, of_probe.undefined),
        ):
            if name in its:
                ours[f"probe_{name}"] = its[name]
    return replace(evaluation, probe=of_probe.metrics)
