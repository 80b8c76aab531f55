"""Dropout: how much is dropped, what is left of the mean, and that scoring drops nothing."""

from __future__ import annotations

import pytest
import torch

from agent.trainer.models.layers import Dropout


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(40_000,), (40, 100, 10), (123, 331)])
def test_a_share_is_dropped_and_the_mean_stays(share: float, shape: tuple[int, ...]) -> None:
    """To the nearest 256th; what is left is scaled up."""
    torch.manual_seed(0)
    left = Dropout(share)(torch.ones(shape))
    assert left.shape == shape
    assert (left == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    assert left.mean().item() == pytest.approx(1.0, abs=0.05)


def test_what_is_dropped_is_independent() -> None:
    """Neither by place, nor from one call to the next."""
    torch.manual_seed(0)
    dropout = Dropout(0.5)
    kept = torch.stack([dropout(torch.ones(64)) > 0 for _ in range(4_000)]).float()
    correlation = torch.corrcoef(kept.T) - torch.eye(64)
    assert correlation.abs().max().item() < 0.08
    successive = torch.corrcoef(torch.stack([kept[:-1].flatten(), kept[1:].flatten()]))[0, 1]
    assert abs(successive.item()) < 0.01


def test_scoring_drops_nothing_and_a_seed_gives_the_same() -> None:
    """In eval all of it passes; in training the seed of torch decides."""
    values = torch.rand(10, 7)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    once, again, other = (
        Dropout(0.5)(values) for seed in (1, 1, 2) if torch.manual_seed(seed) is not None
    )
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_gradients_pass_where_values_do() -> None:
    """The gradient of a dropped value is nought, of another the scale."""
    torch.manual_seed(0)
    values = torch.ones(1_000, requires_grad=True)
    left = Dropout(0.25)(values)
    left.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert torch.equal(values.grad, left.detach())
