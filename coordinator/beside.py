"""The coordinator that runs on this machine, as its doctor sees it: how it was started."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import psutil

MODULE: Final = "coordinator.service"
_PATHS: Final = ("manifest", "ca")


def started_with(process: int) -> dict[str, Path]:
    """Return what its command line names of a plan (`manifest`) and a CA's folder (`ca`).

    Empty where it names none, or this user may not see it.
    """
    try:
        one = psutil.Process(process)
        command, folder = one.cmdline(), Path(one.cwd())
    except (OSError, psutil.Error):
        return {}
    if MODULE not in command:
        return {}
    parser = argparse.ArgumentParser(add_help=False)
    for name in _PATHS:
        parser.add_argument(f"--{name}", type=Path)
    options = vars(parser.parse_known_args(command[command.index(MODULE) + 1 :])[0])
    return {name: folder / path for name, path in options.items() if path is not None}
