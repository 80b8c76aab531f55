"""The hyperparameter schemas of the built-in trainers, as data: no trainer is imported for them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def builtin_trainers() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each built-in model's hyperparameters."""
    text = resources.files("coordinator.manifest").joinpath("trainers.json").read_text("utf-8")
    return {model: trainer["schema"] for model, trainer in json.loads(text).items()}
