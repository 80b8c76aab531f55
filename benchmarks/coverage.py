"""How often the 95 % intervals of a report hold the truth, by the number of test hosts.

    python -m benchmarks.coverage [--hosts 1,2,3,5,8,23] [--runs 500] [--resamples 400] [--seed 0]

Scores are simulated: an episode is a row of blocks in which windows depend on each other, and
anomalies come in runs. Where hosts differ, each has its own level of scores, its own distance
between anomalies and the rest, and its own share of anomalies; the truth is the figure over very
many hosts. Where they do not, it is that of very many episodes. With fewer than five hosts a report
speaks of these hosts only: `own` is how often it holds the figure of the very hosts that were
drawn, over very many of their episodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.trainer.common.arrays import Floats
from agent.trainer.data.dataset import WindowIndex
from agent.trainer.evaluation.bootstrap import LEAST_HOSTS, Draws, one_group
from agent.trainer.evaluation.evaluate import Judged, draws_of, evaluate
from agent.trainer.evaluation.metrics import Metrics, Scored, called_by, measure
from agent.trainer.evaluation.report_schema import Thresholds
from benchmarks.common import line, numbers, table

METRICS: Final = ("auroc", "average_precision", "fpr_realised")
CLASSES: Final = ("0", "1")
WINDOWS: Final = 12  # of a block; they share what they depend on
BLOCKS: Final = 24  # of a host
MANY: Final = 4000  # hosts, whose figures are taken for the truth
LENGTH: Final = 60
STRIDE: Final = 10
THRESHOLD: Final = Thresholds(decision=None, alarm=1.6)


@dataclass(frozen=True)
class Population:
    """How hosts differ: deviations of the scores' level, of the distance, of the log odds."""

    level: float
    distance: float
    odds: float


ALIKE: Final = Population(0.0, 0.0, 0.0)
DIFFERENT: Final = Population(0.5, 0.5, 0.7)


def drawn_hosts(population: Population, count: int, rng: np.random.Generator) -> Floats:
    """Return (hosts, 3): level, distance and share of anomalous blocks."""
    level = population.level * rng.standard_normal(count)
    distance = 1.3 + population.distance * rng.standard_normal(count)
    odds = np.exp(-1.1 + population.odds * rng.standard_normal(count))
    return np.stack([level, distance, odds / (1 + odds)], axis=1)


def scored(hosts: Floats, blocks: int, rng: np.random.Generator) -> tuple[WindowIndex, Scored]:
    """Return windows of these hosts, `blocks` each, and their labels and scores."""
    count, n = len(hosts), len(hosts) * blocks * WINDOWS
    host = np.repeat(np.arange(count), blocks * WINDOWS)
    anomalous = rng.random((count, blocks, 1)) < hosts[:, None, None, 2]
    shared = 0.8 * rng.standard_normal((count, blocks, 1))
    score = hosts[:, None, None, 0] + hosts[:, None, None, 1] * anomalous + shared
    score = (score + 0.6 * rng.standard_normal((count, blocks, WINDOWS))).ravel()
    label = np.broadcast_to(anomalous, (count, blocks, WINDOWS)).ravel().astype(np.int64)
    start = STRIDE * np.tile(np.arange(blocks * WINDOWS), count)
    names = tuple(f"h{number:05}" for number in range(count))
    offset = STRIDE * np.arange(n)
    index = WindowIndex(names, names, host, host, offset, start, label, LENGTH, STRIDE, 60.0)
    return index, Scored(np.arange(n), label, score, probable=False)


def measured(hosts: Floats, blocks: int, rng: np.random.Generator, resamples: int) -> Metrics:
    """Return the metrics of a simulated test part, with intervals."""
    index, part = scored(hosts, blocks, rng)
    judged = [Judged(part, THRESHOLD)]
    seed = int(rng.integers(1 << 30))
    return evaluate(judged, CLASSES, draws_of(index, judged, resamples, seed)).metrics


def true_figures(hosts: Floats, blocks: int, rng: np.random.Generator) -> Metrics:
    """Return the metrics of so much data that they are taken for the truth."""
    _, part = scored(hosts, blocks, rng)
    found = measure(called_by(THRESHOLD, part), Draws(one_group(len(part.label))))
    return {name: float(draws[0]) for name, draws in found.items()}


def holds(found: Metrics, truth: Metrics, name: str) -> float:
    """Return 1 if the interval holds the truth, 0 if not, NaN if there is none."""
    between = found.get(f"{name}_ci")
    return np.nan if between is None else float(between[0] <= truth[name] <= between[1])


def coverage(
    population: Population, count: int, arguments: argparse.Namespace
) -> Iterator[tuple[str, float, float, float]]:
    """Yield (metric, coverage, coverage of the drawn hosts' own figure, mean width)."""
    rng = np.random.default_rng([arguments.seed, count])
    truth = true_figures(drawn_hosts(population, MANY, rng), BLOCKS, rng)
    of_population, of_own, widths = ({name: [] for name in METRICS} for _ in range(3))
    for _ in range(arguments.runs):
        hosts = drawn_hosts(population, count, rng)
        found = measured(hosts, BLOCKS, rng, arguments.resamples)
        own = true_figures(hosts, 40 * BLOCKS, rng) if count < LEAST_HOSTS else truth
        for name in METRICS:
            of_population[name].append(holds(found, truth, name))
            of_own[name].append(holds(found, own, name))
            widths[name].append(np.ptp(found.get(f"{name}_ci") or [np.nan]))
    for name in METRICS:
        yield name, *(float(np.nanmean(one[name])) for one in (of_population, of_own, widths))


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts = [1, 2, 3, 4, 5, 6, 8, 12, 16, 23]
    parser.add_argument("--hosts", type=numbers, default=hosts)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    heads = ["hosts", "they are"]
    for name in METRICS:
        heads += [name, "own", "width"]
    print(table(heads, ()), flush=True)
    for count in arguments.hosts:
        for words, population in (("alike", ALIKE), ("different", DIFFERENT)):
            cells = [str(count), words]
            for _, held, own, width in coverage(population, count, arguments):
                shown = f"{own:.3f}" if count < LEAST_HOSTS else ""
                cells += [f"{held:.3f}", shown, f"{width:.3f}"]
            print(line(cells), flush=True)


if __name__ == "__main__":
    main()
