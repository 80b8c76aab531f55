"""A fleet under everything that can go wrong keeps its promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.harness.plainscan import compared
from tests.simulation.__main__ import run_one
from tests.simulation.run import Outcome
from tests.simulation.scenario import draw

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 250
SLOW_SEEDS = 3000


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """What came of the first seeds."""
    return [run_one(draw(seed)) for seed in range(SEEDS)]


def _broken(outcomes: Iterable[Outcome]) -> list[str]:
    return [f"seed {one.seed}: {one.violation}" for one in outcomes if one.violation is not None]


def _seeds(first: int, seeds: int) -> Iterator[Outcome]:
    return (run_one(draw(seed)) for seed in range(first, first + seeds))


def test_nothing_is_lost_and_nothing_is_done_twice(outcomes: list[Outcome]) -> None:
    assert not _broken(outcomes)


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_done_twice_in_many_seeds() -> None:
    """Others than those of the quick test."""
    assert not _broken(_seeds(10_000, SLOW_SEEDS))


def test_every_decision_is_that_of_a_plain_scan() -> None:
    """However much goes wrong: the board has seen all that a job's host depends on."""
    with compared() as sizes:
        assert not _broken(_seeds(20_000, 30))
    assert sum(sizes) > 100


def test_a_run_meets_many_faults_and_gets_its_jobs_done(outcomes: list[Outcome]) -> None:
    """The checks would be worth nothing in a simulation in which nothing happens."""
    faults = {kind for outcome in outcomes for kind in outcome.faults}
    assert {
        "message lost", "message repeated", "message overtaken", "chunk corrupted", "broker",
        "partition", "half-open", "kill of agent", "kill of coordinator", "power cut of agent",
        "power cut of coordinator", "disk", "clock", "twin", "sleep", "operator", "owner", "rot",
        "leave", "(left off where it began)",
    } <= faults  # fmt: skip
    done = sum(outcome.jobs["completed"] for outcome in outcomes)
    assert done > 2 * len(outcomes)


def _digest(seed: int, hash_seed: str) -> str:
    program = (
        "import json, sys; from tests.simulation.__main__ import run_one;"
        "from tests.simulation.scenario import draw;"
        f"one = run_one(draw({seed}), trace=True);"
        "print(json.dumps([one.steps, one.virtual_s, sorted(one.jobs.items()), one.trace]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60, cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    return done.stdout.decode()


@pytest.mark.smoke
def test_a_seed_always_gives_the_same_run() -> None:
    first, second = _digest(7, "1"), _digest(7, "2")
    assert first == second
    steps, *_, trace = json.loads(first)
    assert steps > 1000, trace[-1]  # 0: an exception has ended it
    assert len(trace) > 100
