"""Finds processes of trainers that no keeper has ended: by a mark, never by name.

The mark is the path of the work folder in a variable of the environment, which grandchildren
inherit in whatever group and session. It is needed where a keeper was killed or stopped, or the
system has no subreaper.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

log = logging.getLogger("fleet.agent")

MARK: Final = "TRAINER_WORK_FOLDER"
WAIT_S: Final = 3.0


def end_orphans(works: Iterable[Path]) -> None:
    """End what an earlier agent's trainers have left in work folders.

    Their attempts are over, so that nothing is asked for: SIGKILL.
    """
    ended, alive = psutil.wait_procs(end_marked(works), WAIT_S)
    for process in ended:
        log.info("ended process %d, which an earlier agent left behind", process.pid)
    for process in alive:
        log.warning("process %d, of an earlier agent, does not end", process.pid)


def end_marked(works: Iterable[Path]) -> list[psutil.Process]:
    """Send SIGKILL to every process that bears the mark of a work folder; return them."""
    marks = {mark_of(work) for work in works}
    found = []
    for process in psutil.process_iter() if marks else ():
        # What is not ours does not show its environment, or has ended meanwhile.
        with contextlib.suppress(OSError, psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) in marks:
                process.kill()
                found.append(process)
    return found


def mark_of(work: Path) -> str:
    """Return the value of `MARK` in the environment of a work folder's processes."""
    return str(work.resolve())
