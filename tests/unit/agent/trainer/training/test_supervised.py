"""What a classifier is trained on: windows as they are, or as if they were of other hosts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agent.trainer.models.layers import Standardise
from agent.trainer.training.batches import ArrayBatches
from agent.trainer.training.supervised import as_of_another_host, cross_entropy

WINDOWS = 2_000


def _standardise() -> Standardise:
    standardise = Standardise(2)
    standardise.fit(np.array([10.0, -4.0]), np.array([2.0, 0.5]))
    return standardise


def test_augmented_windows_have_other_levels_and_the_same_course() -> None:
    steps = torch.linspace(0, 1, 30)[None, :, None].expand(WINDOWS, 30, 2)
    changed = as_of_another_host(steps, _standardise(), torch.Generator().manual_seed(0))
    assert changed.shape == steps.shape
    course = changed - changed[:, :1]
    is_flat = (course == 0).all(dim=1)
    assert 0.08 < is_flat.float().mean() < 0.12
    as_before = (steps - steps[:, :1]).transpose(1, 2)[~is_flat]
    torch.testing.assert_close(course.transpose(1, 2)[~is_flat], as_before)
    level = changed[:, 0].masked_fill(is_flat, float("nan")).numpy()
    np.testing.assert_allclose(np.nanstd(level, axis=0), [0.6, 0.15], rtol=0.1)
    np.testing.assert_allclose(np.nanmean(level, axis=0), [0.0, 0.0], atol=0.06)
    flat = changed[:, 0].masked_fill(~is_flat, float("nan")).numpy()
    np.testing.assert_allclose(np.nanmean(flat, axis=0), [10.0, -4.0], atol=0.2)


def test_validation_sees_the_windows_as_they_are() -> None:
    class Reads(torch.nn.Linear):
        standardise = _standardise()

        def forward(self, inputs: Tensor) -> Tensor:
            read.append(inputs)
            return super().forward(inputs)

    read: list[Tensor] = []
    inputs = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    batches = ArrayBatches(inputs, torch.device("cpu"))
    loss_of = cross_entropy(batches, np.zeros(8, np.int64), np.ones(2), augment=True)
    for network in (Reads(2, 2).train(), Reads(2, 2).eval()):
        loss_of(network, torch.arange(8), torch.Generator().manual_seed(0))
    assert not torch.equal(read[0], torch.from_numpy(inputs))
    assert torch.equal(read[1], torch.from_numpy(inputs))
