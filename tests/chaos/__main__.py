"""Pull plugs for a while: `python -m tests.chaos --jobs 100 --broker mosquitto [--kills]`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from .campaign import Campaign
from .kills import Kills


def main() -> int:
    """Return 1 when a job was lost, doubled, trained twice at once, or its artifact is damaged."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--broker", choices=("embedded", "mosquitto"), action="append")
    parser.add_argument("--strikes", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kills", action="store_true", help="jobs of seconds, and strikes at each connection"
    )
    parser.add_argument("--deadline", type=float, default=1800.0, help="seconds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    kind, pause_s = (Kills, (0.2, 1.2)) if arguments.kills else (Campaign, (0.3, 2.5))
    good = True
    for broker in arguments.broker or ("embedded", "mosquitto"):
        with tempfile.TemporaryDirectory() as folder, kind(
            Path(folder), broker=broker, jobs=arguments.jobs, agents=arguments.agents,
            seed=arguments.seed,
        ) as campaign:  # fmt: skip
            report = campaign.run(
                strikes=arguments.strikes, pause_s=pause_s, deadline_s=arguments.deadline
            )
        sys.stdout.write("\n".join(report.lines()) + "\n\n")
        sys.stdout.flush()
        good = good and report.is_good()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
