"""Makes a failing scenario small: fewer faults, jobs, hosts, calmer weather; same rule broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from .network import Quirks, Weather
from .run import Run
from .scenario import Scenario

Fails = Callable[[Scenario], bool]


def breaks(rule: str) -> Fails:
    """Return a test: does a scenario break `rule`?"""

    def fails(scenario: Scenario) -> bool:
        with closing(Run(scenario)) as run:
            violation = run.go().violation
        return violation is not None and violation.rule == rule

    return fails


def shrink(scenario: Scenario, fails: Fails, most_runs: int = 600) -> Scenario:
    """Return a scenario that still fails, from which nothing more could be taken away."""
    runs = 0
    smaller = True
    while smaller and runs < most_runs:
        smaller = False
        for candidate in _candidates(scenario):
            runs += 1
            if fails(candidate):
                scenario, smaller = candidate, True
                break
            if runs >= most_runs:
                break
    return scenario


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
    for name in ("faults", "jobs", "hosts"):
        for parts in _without(getattr(scenario, name)):
            if parts or name == "faults":
                yield replace(scenario, **{name: parts})
    calm = Weather(latency_s=scenario.weather.latency_s)
    for key in ("loss", "repeat", "reorder", "corrupt_chunk"):
        if getattr(scenario.weather, key):
            yield replace(scenario, weather=replace(scenario.weather, **{key: 0.0}))
    if scenario.weather.latency_s != 0.01:
        yield replace(scenario, weather=replace(calm, latency_s=0.01))
    if scenario.quirks != Quirks():
        yield replace(scenario, quirks=Quirks())


def _without(parts: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Leave out large pieces first, then smaller ones (delta debugging, Zeller 1999)."""
    size = len(parts) // 2
    while size >= 1:
        for start in range(0, len(parts), size):
            yield parts[:start] + parts[start + size :]
        size //= 2
    if len(parts) == 1:
        yield ()
