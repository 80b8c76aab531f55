"""`python -m coordinator.cli`, and the script `fleet`."""

from __future__ import annotations

import sys

from coordinator.cli import main


def run() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
