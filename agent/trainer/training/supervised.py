"""Trains any of the supervised models and returns it in one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agent.trainer.common import config
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.checkpoint import Keeper
from agent.trainer.common.progress import Progress
from agent.trainer.data.weighting import class_weights, unweighted
from agent.trainer.training.loading import Loaded


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


def train(loaded: Loaded, progress: Progress, keeper: Keeper) -> Trained:
    """Train the job's model; its score is the classes' probabilities (n, classes)."""
    if isinstance(loaded.job.hyper, config.GbtHyper):
        # xgboost's random state can be neither saved nor set: trees are grown anew, and soon.
        return _train_gbt(loaded, loaded.job.hyper, progress)
    assert isinstance(loaded.job.hyper, config.SupervisedHyper)  # noqa: S101 - run offers no others
    return _train_network(loaded, loaded.job.hyper, progress, keeper)


def _train_gbt(loaded: Loaded, hyper: config.GbtHyper, progress: Progress) -> Trained:
    from agent.trainer.models.gbt import Part, train_gbt

    features, label = loaded.features(), loaded.index.label
    classes = len(loaded.schema.classes)
    weights = class_weights(label[loaded.train], classes, hyper.class_weight)
    progress.phase("train")
    parts = [
        Part(features[windows], label[windows], weights[label[windows]])
        for windows in (loaded.train, loaded.validation)
    ]
    trees = train_gbt(
        parts[0],
        parts[1],
        classes,
        hyper,
        threads=loaded.job.threads,
        seed=loaded.job.seed,
        progress=progress,
    )
    return Trained(
        score=lambda windows: unweighted(trees.probabilities(features[windows]), weights),
        inputs=loaded.schema.features_of(loaded.job.mode),
        size=asdict(trees.size),
        weights_file="model.ubj",
        weights=trees.to_bytes(),
        class_weights=tuple(weights.tolist()),
        training={
            "device": "cpu",
            "compiled": False,
            "elsewhere": [],
            "best_epoch": trees.size.rounds,
            "epochs_run": len(trees.curve),
            "curve": trees.curve,
        },
    )


def _train_network(
    loaded: Loaded, hyper: config.SupervisedHyper, progress: Progress, keeper: Keeper
) -> Trained:
    # torch takes seconds to import; gbt and a wrong command line need not wait for it.
    from agent.trainer.common.checkpoint import weights_to_bytes
    from agent.trainer.training.batches import Batches, FeatureBatches, WindowBatches
    from agent.trainer.training.fit import fit, start_torch
    from agent.trainer.training.networks import build, cross_entropy, learner, probabilities

    job, schema, label = loaded.job, loaded.schema, loaded.index.label
    device = start_torch(job.threads, job.seed)
    batches: Batches
    if isinstance(hyper, config.MlpHyper):
        inputs = schema.features_of(job.mode)
        batches = FeatureBatches(loaded.features(), device)
    else:
        series = loaded.series()
        inputs, batches = series.channels, WindowBatches(series, loaded.index, device)
    classes = len(schema.classes)
    built = build(job.model, hyper, len(inputs), classes, schema.window)
    built.network.to(device)
    built.fit_statistics(batches, loaded.train)
    network = learner(built.network, batches)
    weights = class_weights(label[loaded.train], classes, hyper.class_weight)
    progress.phase("train")
    fitted = fit(
        network,
        cross_entropy(batches, label, weights),
        loaded.train,
        loaded.validation,
        hyper=hyper,
        seed=job.seed,
        progress=progress,
        keeper=keeper,
    )
    return Trained(
        score=lambda windows: unweighted(
            probabilities(network, batches, windows, hyper.batch_size), weights
        ),
        inputs=inputs,
        size=built.size,
        weights_file="model.safetensors",
        weights=weights_to_bytes(built.network.state_dict()),
        class_weights=tuple(weights.tolist()),
        training=fitted.facts(device.type),
    )
