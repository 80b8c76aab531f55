"""The simulation finds deliberate bugs, and makes a seed that fails small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.__main__ import run_one
from tests.simulation.mutants import MUTANTS, Mutant, seeds_until_found, switched_on
from tests.simulation.scenario import draw
from tests.simulation.shrink import breaks, shrink


@pytest.mark.parametrize(
    "name", ["the attempt does not grow", "hash not checked", "names not synced"]
)
def test_a_deliberate_bug_is_found(name: str) -> None:
    """Some of them; the slow test looks for all."""
    mutant = next(one for one in MUTANTS if one.name == name)
    assert seeds_until_found(mutant) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_bug_is_found(mutant: Mutant) -> None:
    assert seeds_until_found(mutant) is not None


def test_a_failing_seed_is_made_small() -> None:
    mutant = next(one for one in MUTANTS if one.name == "hash not checked")
    with switched_on(mutant):
        seed = next(s for s in range(100) if run_one(draw(s)).violation is not None)
        scenario = draw(seed)
        violation = run_one(scenario).violation
        assert violation is not None
        small = shrink(scenario, breaks(violation.rule), most_runs=120)
        assert breaks(violation.rule)(small)
    assert len(small.jobs) + len(small.faults) < len(scenario.jobs) + len(scenario.faults)
    assert run_one(replace(small)).violation is None, "without the bug, nothing is broken"
