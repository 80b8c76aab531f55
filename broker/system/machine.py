"""This machine: clocks, name, boot id, and new ids."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import time
import uuid
from pathlib import Path
from typing import Final

from broker.clock import Now

_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID_FILE: Final = Path("/etc/machine-id")


def system_clock() -> Now:
    """Read both clocks."""
    return Now(time.monotonic(), time.time())


def new_id() -> str:
    """Return an id that nobody else will ever have."""
    return uuid.uuid4().hex


@functools.cache
def boot_id() -> str:
    """Return an id that changes when this machine boots."""
    try:
        return re.sub(r"[^A-Za-z0-9]", "", _BOOT_ID_FILE.read_text("ascii"))[:32] or "-"
    except OSError:
        import psutil  # which takes its time, and is seldom needed

        booted_s = round(psutil.boot_time() / 10)
        return hashlib.sha256(f"{platform.node()} {booted_s}".encode()).hexdigest()[:32]


def machine_id() -> str:
    """Return what tells this machine from others of the same name."""
    try:
        return _MACHINE_ID_FILE.read_text("ascii").strip() or f"{uuid.getnode():x}"
    except (OSError, ValueError):
        return f"{uuid.getnode():x}"


def machine_name() -> str:
    """Return this machine's name, as people know it."""
    return platform.node() or "localhost"
