"""Pretrain a transformer on masked windows without labels, and set an alarm by its errors.

    python -m agent.trainer.run_ssl --model transformer_ssl --mode oracle --data DIR --out-dir DIR

The error of filling in a window is its anomaly score. Where labels exist, a linear probe on the
frozen encoder measures the representation: with several classes its metrics are the run's, with two
they stand beside the alarm's as `probe_*`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.trainer.common.config import RUN_SSL_MODULE
from agent.trainer.common.progress import leave
from agent.trainer.run import main as run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run_main(argv, RUN_SSL_MODULE)


if __name__ == "__main__":
    leave(main())
