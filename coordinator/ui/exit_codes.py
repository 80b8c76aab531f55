"""Exit codes of `fleet`; docs/cli.md explains them."""

from __future__ import annotations

from typing import Final

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_NOTHING_RAN: Final = 5  # 4 is of `fleet plan --detailed-exitcode`
EXIT_INTERRUPTED: Final = 130
