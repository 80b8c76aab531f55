"""The built-in trainers, as data: no trainer is imported for them."""

from __future__ import annotations

import json
from importlib import resources

from broker.programs.datasets import PREPARED
from broker.protocol.messages import TrainerInfo


def builtin_trainers() -> dict[str, TrainerInfo]:
    """Return what is known of the trainer of each built-in model."""
    text = resources.files("coordinator.manifest").joinpath("trainers.json").read_text("utf-8")
    return {
        model: TrainerInfo(hyper_schema=trainer["schema"], data=(PREPARED,))
        for model, trainer in json.loads(text).items()
    }
