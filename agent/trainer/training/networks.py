"""The networks: built by name and size, with their loss and their probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from agent.trainer.common import config
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.data.features import STATISTICS
from agent.trainer.models.classifiers import Cnn, Mlp, Recurrent
from agent.trainer.models.layers import WideAndDeep, summary
from agent.trainer.models.transformer import EncoderSize, MaskedAutoencoder, Transformer
from agent.trainer.training.batches import Batches, FeatureBatches, mean_and_deviation
from agent.trainer.training.fit import LossOf, over_batches

_CHUNK_WINDOWS: Final = 128
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
    """Return the untrained network called `model`.

    Raises KeyError for an unknown name, TypeError for a size that is not the model's.
    """
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


def learner(network: nn.Module, batches: Batches) -> nn.Module:
    """Return the part of a network to train: all of it, or of an mlp its layers.

    An mlp's features are standardised once, in memory, instead of in each batch.
    """
    if isinstance(batches, FeatureBatches) and isinstance(network, Mlp):
        batches.standardise(network.standardise)
        return network.layers
    return network


def cross_entropy(batches: Batches, label: Ints, weights: Floats) -> LossOf:
    """Return the loss of a window: cross-entropy times the weight (classes,) of its class."""
    targets = torch.from_numpy(label)
    weight = torch.from_numpy(weights).float()

    def loss_of(network: nn.Module, windows: Tensor, _: torch.Generator) -> Tensor:
        logits = network(batches.gather(windows)).float()
        return nn.functional.cross_entropy(
            logits,
            targets[windows].to(logits.device),
            weight=weight.to(logits.device),
            reduction="none",
        )

    return loss_of


def probabilities(network: nn.Module, batches: Batches, windows: Ints, batch_size: int) -> Floats:
    """Return the classes' probabilities (n, classes) of `windows`."""

    def compute(batch: Tensor) -> Tensor:
        return torch.softmax(network(batches.gather(batch)).float(), dim=1)

    return over_batches(network, compute, torch.from_numpy(windows), batch_size).numpy()
