"""Fuzz every decoder and both cores: `python -m tests.fuzz --messages 1000000`."""

from __future__ import annotations

import argparse
import sys

from .fuzzer import Fuzzer


def main() -> int:
    """Print a table; return 1 when something escaped, or garbage changed something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    fuzzer.run(arguments.messages)
    write = sys.stdout.write
    write(
        f"{'target':28} {'messages':>10} {'refused':>10} {'accepted':>10} {'seconds':>8}  faults\n"
    )
    for name, tally in sorted(fuzzer.tallies.items()):
        accepted = tally.sent - tally.refused
        write(
            f"{name:28} {tally.sent:>10,} {tally.refused:>10,} {accepted:>10,} "
            f"{tally.seconds:>8.1f}  {len(tally.faults)}\n"
        )
        for fault in tally.faults[:5]:
            write(f"    {fault}\n")
    total = sum(tally.sent for tally in fuzzer.tallies.values())
    write(f"{total:,} messages; drawn: {dict(fuzzer.kinds)}\n")
    return 1 if any(tally.faults for tally in fuzzer.tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
