"""95 % intervals of figures, from their resamples.

A percentile interval over few hosts is too short (benchmarks/coverage.py). So the interval is that
of Student's t, with as many degrees of freedom as there are hosts (or, where hosts are not
resampled, groups) less one. The resamples give its centre, the figure less the bias that they
show, and its scale, their deviation times sqrt(n / (n - 1)) (Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993, sections 10.3 and 12.2; Hesterberg, "What Teachers Should Know About the
Bootstrap", 2015, on narrowness bias). It is taken on the scale of arcsin(sqrt(x)), on which the
spread of a rate depends little on the rate (Anscombe 1948); so its ends are possible values.

A rate of 0 of n or n of n does not vary in resamples. Its interval is exact (Clopper and Pearson
1934), where n counts the groups that hold such windows: the mean of a group's rate cannot exceed
the chance that the rate is not 0.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats

LEVEL: Final = 0.95
_TAIL: Final = (1 - LEVEL) / 2
_HALVINGS: Final = 60
_LEAST_VALID: Final = 0.5  # share of resamples that must define a metric


def interval(draws: Floats, units: int, most: float = 1.0) -> list[float] | None:
    """Return the interval of the first of `draws` from the others, or None where few are defined.

    `units` is how many hosts or groups were drawn from; the figure lies between 0 and `most`.
    """
    angles = np.arcsin(np.sqrt(np.clip(draws / most, 0.0, 1.0)))
    angle, resampled = angles[0], angles[1:]
    defined = resampled[np.isfinite(resampled)]
    if units < 2 or not len(defined) or len(defined) < _LEAST_VALID * len(resampled):
        return None
    scale = np.std(defined) * (units / (units - 1)) ** 0.5
    half = student(units - 1) * scale
    centre = 2 * angle - np.mean(defined)
    ends = min(angle, centre - half), max(angle, centre + half)
    low, high = most * np.sin(np.clip(ends, 0.0, np.pi / 2)) ** 2
    # The figure itself, where rounding would leave it outside.
    return [float(min(low, draws[0])), float(max(high, draws[0]))]


@cache
def student(freedom: int) -> float:
    """Return what the size of Student's t exceeds with probability 1 - LEVEL.

    By the series in cos(atan(t / sqrt(freedom))) (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
    """
    powers = np.arange(freedom % 2, freedom - 1, 2)
    shares = np.cumprod(np.append(1.0, (powers + 1) / (powers + 2)))[:-1]
    low, high = 0.0, np.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        inside = np.sin(angle) * (shares * np.cos(angle) ** powers).sum()
        if freedom % 2:
            inside = (inside + angle) * 2 / np.pi
        low, high = (angle, high) if inside < LEVEL else (low, angle)
    return float(freedom**0.5 * np.tan(low))


def exact_interval(value: float, groups: int) -> list[float] | None:
    """Return the interval of a rate that is 0 or 1 in each of so many groups; None for others."""
    if value not in {0.0, 1.0} or not groups:
        return None
    bound = _TAIL ** (1 / groups)
    return [0.0, 1 - bound] if value == 0 else [bound, 1.0]
