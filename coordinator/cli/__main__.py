"""`python -m coordinator.cli`, and the script `fleet`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Final, NoReturn

from coordinator.cli import main

_NEW_OBJECTS: Final = 200_000  # between two collections: loading modules makes no garbage


def _open_what_is_closed() -> None:
    """Open the standard streams that are closed: the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free is its own.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def run() -> NoReturn:
    """Run the command line and exit at once: the interpreter's own clean-up is slow."""
    gc.set_threshold(_NEW_OBJECTS)
    _open_what_is_closed()
    if os.name == "nt":
        os.environ["PYTHONUTF8"] = "1"  # of programs that we start
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
