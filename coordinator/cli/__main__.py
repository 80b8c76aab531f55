"""`python -m coordinator.cli`, and the script `fleet`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Final, NoReturn

from coordinator.cli import main

_NEW_OBJECTS: Final = 50_000  # between two collections: loading modules makes no garbage


def run() -> NoReturn:
    """Run the command line and end the process with its exit code.

    It ends at once: to take apart what a command has loaded takes the interpreter longer than some
    commands take, and the system frees it all the same.
    """
    gc.set_threshold(_NEW_OBJECTS)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
