"""Dropout: the share that is dropped, the mean of the rest, and that scoring drops nothing."""

from __future__ import annotations

import pytest
import torch

from agent.trainer.models.layers import Dropout


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("shape", [(40, 100, 10), (123, 331)])
def test_a_share_is_dropped_and_the_mean_stays(share: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.ones(shape, requires_grad=True)
    left = Dropout(share)(values)
    assert (left == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    assert left.mean().item() == pytest.approx(1.0, abs=0.05)
    left.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert torch.equal(values.grad, left.detach())


def test_what_is_dropped_is_independent() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.5)
    kept = torch.stack([dropout(torch.ones(64)) > 0 for _ in range(4_000)]).float()
    correlation = torch.corrcoef(kept.T) - torch.eye(64)
    assert correlation.abs().max().item() < 0.08
    successive = torch.corrcoef(torch.stack([kept[:-1].flatten(), kept[1:].flatten()]))[0, 1]
    assert abs(successive.item()) < 0.01
