"""The networks, built by name and size."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from agent.trainer.common import config
from agent.trainer.models.classifiers import Cnn, Mlp, Recurrent
from agent.trainer.models.layers import WideAndDeep
from agent.trainer.models.transformer import EncoderSize, MaskedAutoencoder, Transformer

_ENCODER: Final = tuple(field.name for field in dataclasses.fields(EncoderSize))
_SIZES: Final = {
    "mlp": ("inputs", "classes", "hidden", "layers", "dropout"),
    "cnn": ("inputs", "classes", "hidden", "layers", "kernel", "dropout"),
    "gru": ("inputs", "classes", "cell", "hidden", "layers", "dropout"),
    "lstm": ("inputs", "classes", "cell", "hidden", "layers", "dropout"),
    "transformer": (*_ENCODER, "classes"),
    "transformer_ssl": _ENCODER,
}


def size_of(
    model: str, hyper: config.Hyper, inputs: int, classes: int, steps: int
) -> dict[str, Any]:
    """Return the size of a network, as it is saved. Raises KeyError for an unknown name."""
    known = hyper.model_dump()
    known |= {"inputs": inputs, "classes": classes, "steps": steps, "cell": model}
    if "patch" in known:
        known["patch"] = min(known["patch"], steps)
    return {name: known[name] for name in _SIZES[model]}


def check_size(size: dict[str, Any]) -> None:
    """Raise ValueError for an absurd size: to build such a network alone would take hours."""
    for name, value in size.items():
        if isinstance(value, int) and not 1 <= value <= (256 if name == "layers" else 1 << 20):
            raise ValueError(f"a size of {value} {name} cannot be")


def build(model: str, size: dict[str, Any]) -> Any:
    """Return the untrained network. Raises KeyError (its name), TypeError (its size)."""
    deep: Any
    match model:
        case "mlp":
            return Mlp(**size)
        case "transformer_ssl":
            return MaskedAutoencoder(EncoderSize(**size))
        case "cnn":
            deep = Cnn(**size)
        case "gru" | "lstm":
            deep = Recurrent(**size)
        case "transformer":
            of_encoder = {name: one for name, one in size.items() if name != "classes"}
            deep = Transformer(EncoderSize(**of_encoder), size["classes"])
        case _:
            raise KeyError(model)
    return WideAndDeep(deep, deep.head[-1], size["inputs"])
