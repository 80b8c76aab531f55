"""Terminal output of the verbs and `fleet top`, and the columns that the page shares.

Here are the exit codes of `fleet`; docs/reference/cli.md explains them.
"""

from typing import Final

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_NOTHING_RAN: Final = 5  # 4 is of `fleet plan --detailed-exitcode`
EXIT_INTERRUPTED: Final = 130
