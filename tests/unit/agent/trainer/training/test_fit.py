"""The training loop that all networks share: best weights, early end, divergence, repetition."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agent.trainer.common.checkpoint import (
    Keeper,
    tensors_from_bytes,
    weights_to_bytes,
)
from agent.trainer.common.config import TRAINERS, TorchHyper
from agent.trainer.common.errors import DivergedError
from agent.trainer.common.progress import Progress
from agent.trainer.data.features import class_weights
from agent.trainer.models.transformer import EncoderSize, MaskedAutoencoder
from agent.trainer.training.adamw import AdamW
from agent.trainer.training.fit import fit, mean_loss, start_torch
from agent.trainer.training.networks import build, size_of

WINDOWS = np.arange(64)
SUPERVISED = ("mlp", "cnn", "gru", "lstm", "transformer")


def _squares(network: nn.Module, windows: Tensor, _: torch.Generator) -> Tensor:
    """Return the error of predicting each window's number from its parity."""
    inputs = (windows % 2).float()[:, None]
    return (network(inputs)[:, 0] - inputs[:, 0]).square()


def _quiet() -> Keeper:
    return Keeper(Progress(io.StringIO()))


def _line(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(1, 1)


def test_the_best_weights_are_restored() -> None:
    network, held_out = _line(), torch.arange(64, 80)
    hyper = TorchHyper(epochs=12, batch_size=8, lr=0.9, patience=12, weight_decay=0)
    fitted = fit(network, _squares, WINDOWS, held_out.numpy(), hyper=hyper, seed=0, keeper=_quiet())
    losses = [validation for _, validation in fitted.curve]
    assert fitted.best_epoch == int(np.argmin(losses)) + 1
    assert mean_loss(network, _squares, held_out, 8, 0) == pytest.approx(min(losses))
    assert min(losses) < losses[0]


def test_training_ends_when_validation_gets_no_better() -> None:
    hyper = TorchHyper(epochs=50, batch_size=64, lr=1e-9, patience=3, weight_decay=0)

    def worse(network: nn.Module, windows: Tensor, _: torch.Generator) -> Tensor:
        if not network.training:
            worse.calls += 1  # type: ignore[attr-defined]
        return network(torch.ones(len(windows), 1))[:, 0] * 0 + worse.calls  # type: ignore[attr-defined]

    worse.calls = 0  # type: ignore[attr-defined]
    fitted = fit(_line(), worse, WINDOWS, WINDOWS, hyper=hyper, seed=0, keeper=_quiet())
    assert (fitted.best_epoch, len(fitted.curve)) == (1, 4)


def test_a_loss_that_is_not_finite_is_reported_as_divergence() -> None:
    def nan(network: nn.Module, windows: Tensor, _: torch.Generator) -> Tensor:
        return network(torch.ones(len(windows), 1))[:, 0] * float("nan")

    with pytest.raises(DivergedError, match=r"not finite in epoch 1 .*lower --lr"):
        fit(_line(), nan, WINDOWS, WINDOWS, hyper=TorchHyper(), seed=0, keeper=_quiet())


@pytest.mark.parametrize("model", SUPERVISED)
@pytest.mark.parametrize("steps", [2, 30])
def test_every_network_survives_saving(model: str, steps: int) -> None:
    inputs = torch.rand((5, 3) if model == "mlp" else (5, steps, 3))
    size = size_of(model, TRAINERS[model](), inputs=3, classes=4, steps=steps)
    network, other = (build(model, size).eval() for _ in range(2))
    network.standardise.fit(np.full(3, 0.5), np.array([0.3, 0.3, 0.0]))
    logits = network(inputs)
    assert logits.shape == (5, 4)
    other.load_state_dict(tensors_from_bytes(weights_to_bytes(network.state_dict())))
    assert torch.equal(other(inputs), logits)


@pytest.mark.parametrize("model", SUPERVISED)
def test_every_network_begins_undecided_and_learns_what_is_linear(model: str) -> None:
    start_torch(threads=1, seed=0)
    hyper = TRAINERS[model].model_validate(
        {"epochs": 4, "lr": 0.03, "dropout": 0.0, "batch_size": 32}
    )
    assert isinstance(hyper, TorchHyper)
    label = np.arange(256) % 2
    inputs = torch.randn(256, *(() if model == "mlp" else (12,)), 3)
    inputs += torch.from_numpy(label).float().reshape(-1, *[1] * (inputs.ndim - 1))
    network = build(model, size_of(model, hyper, inputs=3, classes=2, steps=12))
    assert torch.equal(network.eval()(inputs), torch.zeros(256, 2))

    def loss(network: nn.Module, windows: Tensor, _: torch.Generator) -> Tensor:
        return nn.functional.cross_entropy(
            network(inputs[windows]), torch.from_numpy(label)[windows], reduction="none"
        )

    fit(network, loss, np.arange(256), np.arange(256), hyper=hyper, seed=0, keeper=_quiet())
    called = network.eval()(inputs).argmax(1).numpy()
    assert (called == label).mean() > (0.75 if model == "mlp" else 0.95)


def test_what_is_masked_is_not_seen() -> None:
    """The masked autoencoder fills in from the rest alone: the hidden value changes no token."""
    size = EncoderSize(inputs=2, steps=12, patch=3, heads=2, head_width=4, layers=1, dropout=0)
    encoder = MaskedAutoencoder(size).eval().encoder
    patches = torch.rand(1, 4, 6)
    masked = torch.tensor([[False, True, False, False]])
    changed = patches.clone()
    changed[0, 1] += 5
    assert torch.equal(encoder.encode(patches, masked), encoder.encode(changed, masked))
    assert not torch.equal(encoder.encode(patches), encoder.encode(changed))


def test_an_odd_window_scores_higher_once_the_rest_is_learnt() -> None:
    """The score is the error of filling in, every token hidden once."""
    size = EncoderSize(inputs=1, steps=8, patch=2, heads=1, head_width=4, layers=1, dropout=0)
    network = MaskedAutoencoder(size).eval()
    calm = torch.zeros(1, 8, 1)
    burst = calm.clone()
    burst[0, 3:5] = 6
    assert network.score(burst) > network.score(calm)


def test_class_weights_balance_as_far_as_they_are_told() -> None:
    label = np.array([0] * 90 + [1] * 10)
    full, none = class_weights(label, 2, 1.0), class_weights(label, 2, 0.0)
    assert full[0] * 90 == pytest.approx(full[1] * 10)
    assert none.tolist() == [1, 1]
    assert full[label].mean() == pytest.approx(1)


def test_the_optimiser_is_that_of_torch() -> None:
    ours, theirs = ([nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))] for _ in "ab")
    mine, other = AdamW(ours, 0.1), torch.optim.AdamW(theirs, weight_decay=0.1, fused=True)
    for step in range(1, 6):
        for parameters in (ours, theirs):
            generator = torch.Generator().manual_seed(step)
            parameters[0].grad = torch.randn(3, 2, generator=generator)
        if step == 3:
            state = {name: one.clone() for name, one in mine.state().items()}
            mine = AdamW(ours, 0.1)
            mine.restore(state)
        mine.step(0.1 / step)
        other.param_groups[0]["lr"] = 0.1 / step
        other.step()
    assert all(torch.equal(one, like) for one, like in zip(ours, theirs))
