"""Run the simulation: `python -m tests.simulation --seeds 1000`, or replay one: `--replay 42`."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from .run import Outcome, Run
from .scenario import Scenario, draw
from .shrink import breaks, shrink
from .trainer_checks import Violation

AGAIN: Final = "python -m tests.simulation --replay {seed}"
BATCH: Final = 50


def main(argv: list[str] | None = None) -> int:
    """Return 1 when a promise was broken."""
    arguments = _parser().parse_args(argv)
    logging.disable(logging.CRITICAL)
    if arguments.replay is not None:
        return replay(arguments.replay, whole=arguments.whole)
    if arguments.mutants:
        from .mutants import hunt

        return hunt(arguments.only)
    return many(arguments.first, arguments.seeds, arguments.processes)


def many(first: int, seeds: int, processes: int) -> int:
    """Run many seeds; print what was seen, and the first failing seed of each rule."""
    begun_s = time.monotonic()
    steps, virtual_s = 0, 0.0
    jobs: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    broken: dict[str, list[tuple[int, str]]] = {}
    for outcome in _outcomes(first, seeds, processes):
        steps += outcome.steps
        virtual_s += outcome.virtual_s
        jobs += outcome.jobs
        faults += outcome.faults
        if outcome.violation is not None:
            found = broken.setdefault(outcome.violation.rule, [])
            found.append((outcome.seed, str(outcome.violation)))
            sys.stderr.write(f"seed {outcome.seed}: {outcome.violation}\n")
    took_s = time.monotonic() - begun_s
    _say(
        f"seeds      {seeds:,} (from {first}), {60 * seeds / took_s:,.0f} a minute, {took_s:.0f} s"
    )
    _say(f"steps      {steps:,}, {virtual_s / 86400:,.1f} days of the fleet")
    _say("jobs       " + ", ".join(f"{n:,} {name}" for name, n in jobs.most_common()))
    _say("faults     " + "\n           ".join(f"{n:>9,} {k}" for k, n in faults.most_common()))
    _say(f"violations {sum(map(len, broken.values()))}")
    for rule, found in sorted(broken.items()):
        seed, text = found[0]
        _say(f"\n{len(found)} x {rule}\n  seed {seed}: {text}\n  again: {AGAIN.format(seed=seed)}")
    return 1 if broken else 0


def replay(seed: int, *, whole: bool) -> int:
    """Run one seed again, made as small as it goes, and print what happened."""
    scenario = draw(seed)
    outcome = run_one(scenario)
    if outcome.violation is None:
        _say(f"seed {seed} breaks nothing")
        return 0
    if not whole:
        scenario = shrink(scenario, breaks(outcome.violation.rule))
    outcome = run_one(scenario, trace=True)
    _say(_describe(scenario))
    about = "" if whole or outcome.violation is None else outcome.violation.job_id
    name = next((j.spec.name for j in scenario.jobs if j.spec.job_id == about), "")
    for line in outcome.trace:
        if name in line or "job_id=" not in line:
            _say(line[:200])
    return 1


def run_one(scenario: Scenario, *, trace: bool = False) -> Outcome:
    """Run one scenario; an exception that escapes is a broken promise too."""
    run = Run(scenario, trace=trace)
    try:
        return run.go()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        rule = f"no exception escapes ({type(error).__name__} in {last.name})"
        violation = Violation(rule, f"{error} at {last.filename}:{last.lineno}")
        return Outcome(scenario.seed, violation, 0, 0.0, Counter(), Counter(), run.lines)
    finally:
        run.close()


def _outcomes(first: int, seeds: int, processes: int) -> Iterator[Outcome]:
    batches = [range(a, min(a + BATCH, first + seeds)) for a in range(first, first + seeds, BATCH)]
    with ProcessPoolExecutor(processes) as pool:
        for number, outcomes in enumerate(pool.map(_batch, batches)):
            yield from outcomes
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{(number + 1) * BATCH:,} of {seeds:,} ")


def _batch(seeds: range) -> list[Outcome]:
    logging.disable(logging.CRITICAL)
    gc.disable()
    outcomes = []
    for seed in seeds:
        outcomes.append(run_one(draw(seed)))
        gc.collect(0)  # all that is left over is of this seed, and young
    return outcomes


def _describe(scenario: Scenario) -> str:
    hosts = ", ".join(
        f"{h.name} ({'CUDA, ' if h.cuda else ''}{h.ram_gib:g} GiB, {h.slots} slots)"
        for h in scenario.hosts
    )
    jobs = "\n".join(
        f"  {j.spec.name}: {j.duration_s:.0f} s, {j.behaviour}, {j.size_bytes} B, "
        f"priority {j.spec.priority}, {j.spec.needs.model_dump(exclude_defaults=True) or ''}"
        for j in scenario.jobs
    )
    faults = "\n".join(
        f"  {f.at_s:.1f} s: {f.kind} {' '.join(f.who)} for {f.for_s:.1f} s {f.detail or ''}"
        for f in scenario.faults
    )
    return (
        f"seed {scenario.seed}\nhosts: {hosts}\njobs:\n{jobs}\n"
        f"faults:\n{faults}\n{scenario.weather}\n{scenario.quirks}\n"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=1, help="on how many cores")
    parser.add_argument("--replay", type=int, metavar="SEED", help="trace one, shrunk")
    parser.add_argument("--whole", action="store_true", help="with --replay: all of it, unshrunk")
    parser.add_argument("--mutants", action="store_true", help="are deliberate bugs found?")
    parser.add_argument("--only", help="with --mutants: this one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
