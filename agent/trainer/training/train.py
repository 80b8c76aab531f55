"""Trains any model and returns it in one shape."""

from __future__ import annotations

from typing import Any

from agent.trainer.common import config
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.common.progress import Progress
from agent.trainer.data.features import class_weights, unweighted
from agent.trainer.models.description import TREES_FILE
from agent.trainer.training.loading import Fitted, Loaded, Trained


def train(loaded: Loaded, progress: Progress) -> Trained:
    """Train the job's model. Raises DivergedError, InterruptedBySignalError."""
    # torch takes seconds to import; gbt and a wrong command line need not wait for it.
    match loaded.job.hyper:
        case config.GbtHyper() as hyper:
            # Without checkpoints: xgboost's random state can be neither saved nor set.
            return _train_gbt(loaded, hyper, progress)
        case config.SupervisedHyper() as hyper:
            from agent.trainer.training.supervised import train_supervised

            return train_supervised(loaded, hyper, progress)
        case config.TransformerSslHyper() as hyper:
            from agent.trainer.training.pretrain import pretrain

            return pretrain(loaded, hyper, progress)
    raise TypeError(loaded.job.model)


def _train_gbt(loaded: Loaded, hyper: config.GbtHyper, progress: Progress) -> Trained:
    from agent.trainer.models.gbt import bins, class_probabilities, gain, train_gbt

    features, label, job = loaded.features, loaded.index.label, loaded.job
    classes = len(loaded.schema.classes)
    weights = class_weights(label[loaded.train], classes, hyper.class_weight)
    progress.phase("train")

    def binned(windows: Ints, like: Any = None) -> Any:
        its_label = label[windows]
        return bins(features[windows], its_label, weights[its_label], job.threads, like)

    learnt = binned(loaded.train)
    held_out = binned(loaded.validation, learnt)
    trees, curve = train_gbt(
        learnt, held_out, classes, hyper, threads=job.threads, seed=job.seed, progress=progress
    )
    rounds = trees.num_boosted_rounds()

    def of_inputs(inputs: Floats) -> Floats:
        return unweighted(class_probabilities(trees, inputs, job.threads), weights)

    inputs = loaded.schema.features_of(job.mode)
    return Trained(
        score=lambda windows: of_inputs(features[windows]),
        gather=lambda windows: features[windows],
        of_inputs=of_inputs,
        gain=gain(trees, inputs),
        inputs=inputs,
        size={"inputs": features.shape[1], "classes": classes, "rounds": rounds},
        weights_file=TREES_FILE,
        weights=bytes(trees.save_raw("ubj")),
        class_weights=tuple(weights.tolist()),
        training=Fitted(best_epoch=rounds, curve=curve).facts("cpu"),
    )
