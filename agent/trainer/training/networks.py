"""The supervised networks: built by name, with their loss and their probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from agent.trainer.common import config
from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.data.features import STATISTICS
from agent.trainer.models.cnn import Cnn, CnnSize
from agent.trainer.models.layers import WideAndDeep, summary
from agent.trainer.models.mlp import Mlp, MlpSize
from agent.trainer.models.recurrent import Recurrent, RecurrentSize
from agent.trainer.models.transformer import EncoderSize, MaskedAutoencoder, Transformer
from agent.trainer.training.batches import Batches, FeatureBatches, mean_and_deviation
from agent.trainer.training.fit import LossOf, over_batches

_CHUNK_WINDOWS: Final = 128


@dataclass(frozen=True)
class Built:
    """A network that standardises its inputs itself, and its size as it is saved."""

    network: Mlp | WideAndDeep
    size: dict[str, Any]

    def fit_statistics(self, batches: Batches, windows: Ints) -> None:
        """Have the network standardise by the statistics of `windows` (n,)."""
        network = self.network
        of_a_unit = 1 if isinstance(network, WideAndDeep) else len(STATISTICS)
        network.standardise.fit(*batches.statistics(windows), of_a_unit)
        if isinstance(network, WideAndDeep):
            standardise = network.standardise

            def summaries() -> Iterator[Floats]:
                for at in range(0, len(windows), _CHUNK_WINDOWS):
                    chunk = batches.gather(torch.from_numpy(windows[at : at + _CHUNK_WINDOWS]))
                    yield summary(standardise.deviations(chunk)).cpu().numpy()

            network.level.fit(*mean_and_deviation(summaries))


def build(model: str, hyper: config.Hyper, inputs: int, classes: int, steps: int) -> Built:
    """Return the untrained network called `model`. Raises KeyError for a name that is none."""
    if isinstance(hyper, config.MlpHyper):
        of_mlp = MlpSize(inputs, classes, hyper.hidden, hyper.layers, hyper.dropout)
        return Built(Mlp(of_mlp), asdict(of_mlp))
    if isinstance(hyper, config.CnnHyper):
        size = CnnSize(inputs, classes, hyper.hidden, hyper.layers, hyper.kernel, hyper.dropout)
        cnn = Cnn(size)
        return Built(_wide(cnn, cnn.head, inputs), asdict(size))
    if isinstance(hyper, config.GruHyper):
        cell: Literal["gru", "lstm"] = "lstm" if isinstance(hyper, config.LstmHyper) else "gru"
        shape = RecurrentSize(inputs, classes, cell, hyper.hidden, hyper.layers, hyper.dropout)
        recurrent = Recurrent(shape)
        return Built(_wide(recurrent, recurrent.head, inputs), asdict(shape))
    if isinstance(hyper, config.TransformerHyper):
        encoder = encoder_size(hyper, inputs, steps)
        transformer = Transformer(encoder, classes)
        told = asdict(encoder) | {"classes": classes}
        return Built(_wide(transformer, transformer.head, inputs), told)
    raise KeyError(model)


def learner(network: nn.Module, batches: Batches) -> nn.Module:
    """Return what is to be trained of a network: all of it, or its layers.

    Features that lie in memory are standardised there, once, not anew in each batch.
    """
    if isinstance(batches, FeatureBatches) and isinstance(network, Mlp):
        batches.standardise(network.standardise)
        return network.layers
    return network


def check_size(size: dict[str, Any]) -> None:
    """Raise ValueError for a size that no network of ours has: building it alone would take hours.

    Its weights are another matter: they have to be there.
    """
    for name, value in size.items():
        if isinstance(value, int) and not 1 <= value <= (256 if name == "layers" else 1 << 20):
            raise ValueError(f"a size of {value} {name} cannot be")


def restore(model: str, size: dict[str, Any]) -> nn.Module:
    """Return the network called `model` of a saved size, its weights yet to be loaded.

    Raises KeyError for a name that is none, TypeError for a size that is not the model's.
    """
    match model:
        case "mlp":
            return Mlp(MlpSize(**size))
        case "cnn":
            cnn = Cnn(CnnSize(**size))
            return _wide(cnn, cnn.head, size["inputs"])
        case "gru" | "lstm":
            recurrent = Recurrent(RecurrentSize(**size))
            return _wide(recurrent, recurrent.head, size["inputs"])
        case "transformer":
            of_encoder = {name: one for name, one in size.items() if name != "classes"}
            transformer = Transformer(EncoderSize(**of_encoder), size["classes"])
            return _wide(transformer, transformer.head, size["inputs"])
        case "transformer_ssl":
            return MaskedAutoencoder(EncoderSize(**size))
    raise KeyError(model)


def _wide(deep: nn.Module, head: nn.Sequential, inputs: int) -> WideAndDeep:
    last = head[-1]
    assert isinstance(last, nn.Linear)  # noqa: S101 - all of them end so
    return WideAndDeep(deep, last, inputs)


def encoder_size(
    hyper: config.TransformerHyper | config.TransformerSslHyper, inputs: int, steps: int
) -> EncoderSize:
    """Return the encoder's size; a patch is no longer than the window."""
    return EncoderSize(
        inputs=inputs,
        steps=steps,
        patch=min(hyper.patch, steps),
        heads=hyper.heads,
        head_width=hyper.head_width,
        layers=hyper.layers,
        dropout=hyper.dropout,
    )


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
