"""What trainers leave behind where no keeper has ended it: found by identity, never by name.

Two things tell a process of ours: the keeper that is on record in its work folder, by process id
and birth, or is above it; and that folder's path in its environment, which grandchildren inherit
wherever they have gone. Neither is needed unless the keeper was killed or stopped, or the system
has no subreaper.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final, Literal

import psutil

from broker.errors import plain
from broker.system.files import RealDisk, write_atomically
from broker.system.machine import boot_id

log = logging.getLogger("fleet.agent")

IDENTITY_FILE: Final = "process.json"
MARK: Final = "TRAINER_WORK_FOLDER"
WAIT_S: Final = 3.0
_POLL_S: Final = 0.05


def end_orphan(work: Path) -> bool:
    """End what an earlier agent's trainer has left in a work folder; tell whether there was any.

    Its attempt is over, so that nothing is asked for: SIGKILL.
    """
    leader = _recorded(work)
    found = [] if leader is None else _family(leader)
    for process in found:  # who is above them last: until then it takes them in
        _kill(process)
    if leader is not None:
        signal_group(leader.pid, "end")
    found += end_marked(work)
    deadline_s = time.monotonic() + WAIT_S
    for process in found:
        if _has_ended(process, deadline_s):
            log.info("ended process %d, which an earlier agent left behind", process.pid)
        else:
            log.warning("process %d, of an earlier agent, does not end", process.pid)
    return bool(found)


def end_marked(work: Path) -> list[psutil.Process]:
    """Send SIGKILL to every process that bears a work folder's mark; return them."""
    mark = mark_of(work)
    found = []
    for process in psutil.process_iter():
        # What is not ours does not show its environment, or has ended meanwhile.
        with contextlib.suppress(OSError, psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
                found.append(process)
    return found


def mark_of(work: Path) -> str:
    """Return the value of `MARK` in the environment of a work folder's processes."""
    return str(work.resolve())


def record(work: Path, pid: int) -> None:
    """Put on record what runs; a disk that refuses it leaves the mark."""
    try:
        data = json.dumps({"pid": pid, "born": _born(pid)}).encode()
        write_atomically(RealDisk(), work / IDENTITY_FILE, data, durable=False)
    except OSError as error:
        log.warning(
            "%s: %s; the trainer can be found by its mark alone", IDENTITY_FILE, plain(error)
        )


def signal_group(pid: int, what: Literal["ask", "wake", "end"]) -> None:
    """Ask a process and what it has started to end, or go on, or end them; nothing if none is."""
    if sys.platform != "win32":
        numbers = {"ask": signal.SIGTERM, "wake": signal.SIGCONT, "end": signal.SIGKILL}
        with contextlib.suppress(OSError):
            os.killpg(pid, numbers[what])
    elif what != "wake":
        with contextlib.suppress(OSError, psutil.Error):
            for one in _family(psutil.Process(pid)):
                one.kill() if what == "end" else one.terminate()


def _family(process: psutil.Process) -> list[psutil.Process]:
    """Return what has come of a process, and then itself."""
    with contextlib.suppress(OSError, psutil.Error):
        return [*process.children(recursive=True), process]
    return [process]


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(OSError, psutil.Error):
        process.kill()


def runs_in(work: Path) -> bool:
    """Whether the trainer of a work folder runs now."""
    return _recorded(work) is not None


def _recorded(work: Path) -> psutil.Process | None:
    """Return the process that is on record, if it runs and its id is not another's by now."""
    try:
        identity = json.loads((work / IDENTITY_FILE).read_bytes())
        pid = int(identity["pid"])
        process = psutil.Process(pid)
        is_it = identity["born"] == _born(pid) and not _is_over(process)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, psutil.Error):
        return None  # none, or torn: by a power cut, and nothing runs, or else the mark tells
    return process if is_it else None


def _born(pid: int) -> str:
    """Return what tells a process from all others that had its id, or will have it.

    On Linux: the boot, and the clock ticks from it. The wall clock of a machine without a battery
    is set long after the boot, and moves every start time that is counted by it. Raises OSError.
    """
    if sys.platform == "linux":
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        born = f"{boot_id()} {int(stat.rpartition(b')')[2].split()[19])}"
    else:
        try:
            born = f"{psutil.Process(pid).create_time():.3f}"
        except psutil.Error as error:
            raise OSError(plain(error)) from error
    return born


def _has_ended(process: psutil.Process, deadline_s: float) -> bool:
    """Wait for the end of a process that is not our child; nobody may have reaped it yet."""
    while not _is_over(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
