"""Run the benchmarks, one after the other: `python -m benchmarks [NAME …]`, or `make bench`.

Each is a program of its own with options of its own (`python -m benchmarks.NAME --help`); what they
measured last stands in README.md beside this file. They want the machine for themselves.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

BENCHMARKS = {
    "broker_embedded": "the embedded broker beside stock amqtt",
    "stream": "artifacts on their way home, beside the bare limit",
    "footprint": "memory and processor of an idle fleet, and how long commands take",
    "ledger": "decisions, commits, reloads and starts with up to 100,000 pending jobs",
    "overhead": "the same training by hand and as a job",
    "coverage": "how often the intervals of a report hold the truth",
    "compiled": "a training step compiled by torch beside the plain one",
    "jobs": "what a job costs besides its training, beside other queues",
    "small": "small trainings, beside warm processes and other queues",
    "programs": "from a command to a program's first line, beside uv run",
    "scale": "ten thousand simulated hosts on mosquitto",
    "predict": "how fast stored models score, in batches and row by row",
    "dashboard": "the web page with a large fleet, in a browser",
}


def main() -> int:
    """Run those that are named, or all; return how many failed."""
    names = "\n".join(f"  {name:18}{what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "").splitlines()[0],
        epilog=f"benchmarks:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them, if none is named")
    chosen = parser.parse_args().names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    failed = []
    for name in chosen:
        print(f"\n## {name}: {BENCHMARKS[name]}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
