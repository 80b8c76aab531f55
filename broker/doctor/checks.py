"""Checks of the machine that an agent and a coordinator have in common; none changes anything."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from broker.clock import Now
from broker.doctor.findings import Finding, fail, ok, warn
from broker.figures import span
from broker.system.deadline import within
from broker.system.files import holder
from broker.system.machine import system_clock

STEP_S: Final = 5.0  # that a broker, or a disk, is waited for
GIB: Final = 1024**3
FREE_DISK_WARN_BYTES: Final = 5 * GIB
FREE_DISK_FAIL_BYTES: Final = GIB // 2
FREE_RAM_WARN_BYTES: Final = GIB
FAR_S: Final = 30.0  # between two clocks; a signed command is taken for 60 s
LOOK_AT_DISK: Final = "look at the system's log for it, and at its cable or network"
_SET_IT: Final = "set it, and keep it by NTP: certificates are judged by it"


def check_machine() -> Iterator[Finding]:
    """Check what every program needs, and the memory for jobs."""
    yield check_python()
    yield check_memory()
    yield check_clock(system_clock())


def check_python() -> Finding:
    """Tell which Python runs."""
    return ok("python", f"{platform.python_version()} ({sys.executable})")


def check_memory() -> Finding:
    """Tell how much memory is free."""
    memory = psutil.virtual_memory()
    text = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB are free"
    if memory.available < FREE_RAM_WARN_BYTES:
        return warn("memory", text, "end what needs it, or jobs will be refused")
    return ok("memory", text)


def check_state(state: Path, timeout_s: float = STEP_S) -> Iterator[Finding]:
    """Check that the state folder, or its nearest parent, can be written to, and its free space."""
    place = state

    def look() -> int:
        nonlocal place
        place = next(one for one in (state, *state.parents) if one.exists())
        _write(place)
        return shutil.disk_usage(place).free

    try:
        free_bytes = within(timeout_s, look)
    except TimeoutError:
        yield fail("state", f"{place}: the disk has not answered in {timeout_s:g} s", LOOK_AT_DISK)
        return
    except OSError as error:
        who = f"user {os.getuid()}" if hasattr(os, "getuid") else "this user"
        yield fail(
            "state", f"{place}: {error.strerror or error}", f"let {who} write there, or set `state`"
        )
        return
    yield ok("state", str(state) if place == state else f"{state} (will be made)")
    text = f"{free_bytes / GIB:.1f} GiB are free in {place}"
    if free_bytes < FREE_DISK_FAIL_BYTES:
        yield fail("disk", text, "free at least 5 GiB, or set `state` to a larger disk")
    elif free_bytes < FREE_DISK_WARN_BYTES:
        yield warn("disk", text, "free at least 5 GiB: results and checkpoints wait there")
    else:
        yield ok("disk", text)


def _write(folder: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix=".fleet-doctor-", dir=folder) as file:
        file.write(b"?")
        file.flush()
        os.fsync(file.fileno())


def check_lock(state: Path, who: str) -> tuple[Finding, bool]:
    """Tell whether a program of this kind works on the state folder already."""
    try:
        process = within(STEP_S, lambda: holder(state))
    except OSError as error:
        remedy = f"run this as the user that runs the {who}"
        return warn("lock", f"{state / 'lock'}: {error.strerror or error}", remedy), False
    if process is None:
        return ok("lock", f"no other {who} uses {state}"), False
    return ok("lock", f"the {who} of this host runs (process {process})"), True


def check_clock(now: Now) -> Finding:
    """Check that the clock is not before this program: a board without a battery starts so."""
    text = datetime.fromtimestamp(now.wall_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now.wall_s < Path(__file__).stat().st_mtime - 86_400:
        return fail("clock", f"{text} is before this program was installed", _SET_IT)
    return ok("clock", text)


def check_apart(theirs: str, whose: str, asked_s: float, answered_s: float) -> Iterator[Finding]:
    """Compare this clock with another, which read `theirs` between `asked_s` and `answered_s`."""
    try:
        theirs_s = datetime.fromisoformat(theirs).timestamp()
    except ValueError:
        return
    ahead_s, behind_s = asked_s - theirs_s, theirs_s - answered_s
    if max(ahead_s, behind_s) > FAR_S:
        how = f"{span(max(ahead_s, behind_s))} {'ahead of' if ahead_s > 0 else 'behind'}"
        yield warn("clock", f"it is {how} that of {whose}", f"where it is wrong, {_SET_IT}")
