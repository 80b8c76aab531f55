"""Pull plugs for a while: `python -m tests.chaos --jobs 100 --broker mosquitto`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .campaign import Campaign


def main() -> int:
    """Return 1 when a job was lost or doubled, or an artifact is not whole."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--broker", choices=("embedded", "mosquitto"), action="append")
    parser.add_argument("--strikes", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=1800.0, help="seconds")
    arguments = parser.parse_args()
    good = True
    for broker in arguments.broker or ("embedded", "mosquitto"):
        with tempfile.TemporaryDirectory() as folder, Campaign(
            Path(folder), broker=broker, jobs=arguments.jobs, agents=arguments.agents,
            seed=arguments.seed,
        ) as campaign:  # fmt: skip
            report = campaign.run(
                strikes=arguments.strikes, pause_s=(0.3, 2.5), deadline_s=arguments.deadline
            )
        sys.stdout.write("\n".join(report.lines()) + "\n\n")
        sys.stdout.flush()
        good = good and report.is_good()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
