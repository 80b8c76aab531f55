"""Permutation importance: how much worse a model gets without the truth about one channel.

After Breiman, "Random Forests", 2001, section 10: a channel's values are exchanged between windows,
whole windows at a time, and the area under the ROC curve falls. All inputs that are made of a
channel are exchanged together. How many windows are scored is limited, whatever the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats, Ints
from agent.trainer.evaluation.auroc import auroc

SCORED: Final = 20_000  # windows at most, over all channels, unless there are hundreds of these
_LEAST: Final = 64  # windows a channel
_MOST: Final = 1_000


def sample(label: Ints, channels: int, seed: int) -> Ints:
    """Return places in `label` (n,), drawn by the seed: as many as `channels` allow, ascending."""
    size = min(len(label), _MOST, max(_LEAST, SCORED // max(1, channels)))
    return np.sort(np.random.default_rng(seed).choice(len(label), size, replace=False))


def permutation_importance(
    inputs: Floats,
    label: Ints,
    columns: Mapping[str, Ints],
    score: Callable[[Floats], Floats],
    seed: int,
) -> dict[str, float]:
    """Return the fall of the AUROC by channel, the largest first; empty if it is not defined.

    `inputs` (n, ..., inputs) are what `score` takes, `columns` the places of each channel in the
    last dimension.
    """
    if len(np.unique(label)) < 2:
        return {}
    rng = np.random.default_rng(seed)
    whole, found = mean_area(label, score(inputs)), {}
    for name, places in columns.items():
        changed = inputs.copy()
        changed[..., places] = inputs[rng.permutation(len(inputs))][..., places]
        found[name] = whole - mean_area(label, score(changed))
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def channel_columns(inputs: Sequence[str]) -> dict[str, Ints]:
    """Return the places of each channel in `inputs`: channels, or features named after one."""
    channels = np.array([name.partition("__")[0] for name in inputs])
    return {name: np.flatnonzero(channels == name) for name in dict.fromkeys(channels.tolist())}


def mean_area(label: Ints, score: Floats) -> float:
    """Return the AUROC: of several classes one against the rest, averaged over those present."""
    if score.ndim == 1:
        return auroc(label == 1, score)
    areas = [auroc(label == k, score[:, k]) for k in np.unique(label)]
    return float(np.mean(areas))
