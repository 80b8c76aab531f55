"""Trains any of the supervised models and returns it in one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.trainer.common import config
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.progress import Interruption, Progress
from agent.trainer.data.features import class_weights, unweighted
from agent.trainer.training.loading import Loaded, keeper_of


@dataclass(frozen=True)
class Trained:
    """A trained model: how it scores windows, and what is saved and reported of it."""

    score: Callable[[Ints], Floats]
    inputs: tuple[str, ...]
    size: dict[str, Any]
    weights_file: str
    weights: bytes
    class_weights: tuple[float, ...] | None
    training: dict[str, Any]


def train(loaded: Loaded, progress: Progress, interruption: Interruption) -> Trained:
    """Train the job's model; its score is the classes' probabilities (n, classes)."""
    if isinstance(loaded.job.hyper, config.GbtHyper):
        # Without checkpoints: xgboost's random state can be neither saved nor set.
        return _train_gbt(loaded, loaded.job.hyper, progress)
    assert isinstance(loaded.job.hyper, config.SupervisedHyper)  # noqa: S101 - run offers no others
    return _train_network(loaded, loaded.job.hyper, progress, interruption)


def _train_gbt(loaded: Loaded, hyper: config.GbtHyper, progress: Progress) -> Trained:
    from agent.trainer.models.gbt import Part, class_probabilities, train_gbt

    features, label, job = loaded.features(), loaded.index.label, loaded.job
    classes = len(loaded.schema.classes)
    weights = class_weights(label[loaded.train], classes, hyper.class_weight)
    progress.phase("train")
    learnt, held_out = (
        Part(features[windows], label[windows], weights[label[windows]])
        for windows in (loaded.train, loaded.validation)
    )
    trees, curve = train_gbt(
        learnt, held_out, classes, hyper, threads=job.threads, seed=job.seed, progress=progress
    )
    rounds = trees.num_boosted_rounds()

    def score(windows: Ints) -> Floats:
        return unweighted(class_probabilities(trees, features[windows], job.threads), weights)

    return Trained(
        score=score,
        inputs=loaded.schema.features_of(job.mode),
        size={"inputs": features.shape[1], "classes": classes, "rounds": rounds},
        weights_file="model.ubj",
        weights=bytes(trees.save_raw("ubj")),
        class_weights=tuple(weights.tolist()),
        training={
            "device": "cpu",
            "compiled": False,
            "elsewhere": [],
            "best_epoch": rounds,
            "epochs_run": len(curve),
            "curve": curve,
        },
    )


def _train_network(
    loaded: Loaded,
    hyper: config.SupervisedHyper,
    progress: Progress,
    interruption: Interruption,
) -> Trained:
    # torch takes seconds to import; gbt and a wrong command line need not wait for it.
    from agent.trainer.common.checkpoint import weights_to_bytes
    from agent.trainer.training.batches import Batches, FeatureBatches, WindowBatches
    from agent.trainer.training.fit import fit, start_torch
    from agent.trainer.training.networks import (
        build,
        cross_entropy,
        fit_statistics,
        learner,
        probabilities,
        size_of,
    )

    job, schema, label = loaded.job, loaded.schema, loaded.index.label
    device = start_torch(job.threads, job.seed)
    batches: Batches
    if isinstance(hyper, config.MlpHyper):
        inputs = schema.features_of(job.mode)
        batches = FeatureBatches(loaded.features(), device)
    else:
        series = loaded.series()
        inputs, batches = series.channels, WindowBatches(series, loaded.index, device)
    size = size_of(job.model, hyper, len(inputs), len(schema.classes), schema.window)
    network = build(job.model, size).to(device)
    fit_statistics(network, batches, loaded.train)
    learnt = learner(network, batches)
    weights = class_weights(label[loaded.train], len(schema.classes), hyper.class_weight)
    progress.phase("train")
    fitted = fit(
        learnt,
        cross_entropy(batches, label, weights),
        loaded.train,
        loaded.validation,
        hyper=hyper,
        seed=job.seed,
        progress=progress,
        keeper=keeper_of(loaded, progress, interruption),
    )

    def score(windows: Ints) -> Floats:
        return unweighted(probabilities(learnt, batches, windows, hyper.batch_size), weights)

    return Trained(
        score=score,
        inputs=inputs,
        size=size,
        weights_file="model.safetensors",
        weights=weights_to_bytes(network.state_dict()),
        class_weights=tuple(weights.tolist()),
        training=fitted.facts(device.type),
    )
