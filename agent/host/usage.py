"""Who uses this machine besides the fleet: keyboard and mouse, GPUs, load.

Nothing blocks: what has to be asked of another program has a deadline, and is asked every few
seconds at most. What cannot be known is none, and `sources` says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil

from agent.core.effects import Looked, Snooze
from agent.host.capability import said
from broker.system.files import RealDisk, write_atomically

ASK_EVERY_S: Final = 10.0
ANSWER_S: Final = 4.0
GPU_PERCENT: Final = 10.0  # a desktop that is looked at needs less of its GPU
_PROPERTIES: Final = ("Type", "Class", "State", "IdleHint", "IdleSinceHint", "LockedHint")
SNOOZE_FILE: Final = "snooze"
_SNOOZE_BYTES: Final = 200
_AT_ONCE: Final = "now"
_GRAPHICAL: Final = frozenset({"x11", "wayland", "mir"})


class Eyes:
    """Looks at one machine. `state` is the agent's folder, where the owner's snooze is."""

    def __init__(self, state: Path) -> None:
        """Begin to measure."""
        self._state = state
        self._load = Load()
        self._asked_s = -ASK_EVERY_S
        self._use: dict[str, Any] = {}

    def look(self, *, idle: bool) -> Looked:
        """Return what is to be seen; with `idle` whether somebody uses the machine as well."""
        now = datetime.now().astimezone()
        snooze = read_snooze(self._state, now)
        seen = Looked(now.replace(tzinfo=None), snooze)
        if not idle:
            return seen
        now_s = time.monotonic()
        if now_s - self._asked_s >= ASK_EVERY_S:
            self._asked_s = now_s
            self._use = {
                "input_idle_s": min((seconds for _, seconds in input_idle()), default=None),
                "gpu_users": gpu_users(process.pid for process in _family()),
                "others_percent": self._load.others_percent(now_s),
            }
        return replace(seen, **self._use)


def sources() -> tuple[list[str], list[str]]:
    """Return what can be known here of who uses the machine, and what cannot."""
    known, unknown = ["load"], []
    told = sorted({*(name for name, _ in input_idle()), *_silent()})
    if told:
        known.insert(0, f"keyboard and mouse ({', '.join(told)})")
    else:
        unknown.append("keyboard and mouse")
    if shutil.which("nvidia-smi"):
        known.append("GPU")
    return known, unknown


def in_words() -> str:
    """Return in a line how this host finds out whether somebody uses it."""
    known, unknown = sources()
    lacks = f"; {', '.join(unknown)} cannot be known here" if unknown else ""
    return f"{', '.join(known)}{lacks}"


def input_idle() -> Iterator[tuple[str, float]]:
    """Yield for how long, s, nobody has touched keyboard and mouse, by each who can tell."""
    if sys.platform == "win32":
        yield from _by_windows()
    elif sys.platform == "darwin":
        yield from _by_ioreg()
    else:
        now_s = time.time()
        yield from by_logind(_ask_logind(), now_s)
        yield from _by_x()
        yield from _by_terminals(now_s)


def _silent() -> list[str]:
    """Return the sources that work, but have nothing to tell: nobody is logged in."""
    if sys.platform in {"win32", "darwin"} or said(["loginctl", "list-sessions"], ANSWER_S) is None:
        return []
    return ["logind"]


# Linux


def _ask_logind() -> str:
    """Return the properties of all sessions, a blank line between two."""
    listed = _said(["loginctl", "list-sessions", "--no-legend", "--no-pager"])
    names = [line.split()[0] for line in listed.splitlines() if line.split()][:32]
    if not names:
        return ""
    wanted = [word for name in _PROPERTIES for word in ("-p", name)]
    return _said(["loginctl", "show-session", "--no-pager", *wanted, *names])


def by_logind(text: str, now_s: float) -> Iterator[tuple[str, float]]:
    """Read what logind says of each session, `now_s` being the wall clock's s since the epoch.

    Of text sessions the terminals tell better. A graphical one that is locked is not in use; one
    that says that it is not idle is, though some desktops never say anything else.
    """
    for block in text.strip().split("\n\n"):
        told = dict(line.partition("=")[::2] for line in block.splitlines())
        is_desktop = told.get("Class") == "user" and told.get("Type") in _GRAPHICAL
        if not is_desktop or told.get("State") == "closing":
            continue
        since_us = told.get("IdleSinceHint", "0")
        idle_s = now_s - int(since_us) / 1e6 if since_us.isdigit() else 0.0
        resting = "yes" in {told.get("IdleHint"), told.get("LockedHint")}
        if resting and since_us in {"", "0"}:
            idle_s = 86_400.0  # it is locked, and does not say since when
        yield "logind", max(0.0, idle_s) if resting else 0.0


def _by_x() -> Iterator[tuple[str, float]]:
    """Ask the X server, where the agent belongs to a session of it."""
    if os.environ.get("DISPLAY") and shutil.which("xprintidle"):
        idle_ms = _said(["xprintidle"]).strip()
        if idle_ms.isdigit():
            yield "xprintidle", int(idle_ms) / 1000.0


def _by_terminals(now_s: float) -> Iterator[tuple[str, float]]:
    """What is typed into a terminal changes the access time of its device."""
    for user in psutil.users():
        with contextlib.suppress(OSError):
            device = Path("/dev", user.terminal or "-")
            yield "terminals", max(0.0, now_s - device.stat().st_atime)


# Others


def _by_ioreg() -> Iterator[tuple[str, float]]:
    """The input system of macOS counts the nanoseconds since the last event."""
    found = re.search(
        r'"HIDIdleTime"\s*=\s*(\d+)', _said(["ioreg", "-c", "IOHIDSystem", "-d", "4"])
    )
    if found:
        yield "IOHIDSystem", int(found[1]) / 1e9


if sys.platform == "win32":
    import ctypes

    class _LastInput(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("at_ms", ctypes.c_uint))

    def _by_windows() -> Iterator[tuple[str, float]]:
        """Ask for the last input of this session; session 0, of services, has none."""
        session, kernel = ctypes.c_uint(), ctypes.windll.kernel32
        if not kernel.ProcessIdToSessionId(os.getpid(), ctypes.byref(session)):
            return
        last = _LastInput(ctypes.sizeof(_LastInput), 0)
        if session.value and ctypes.windll.user32.GetLastInputInfo(ctypes.byref(last)):
            yield "Windows", ((kernel.GetTickCount() - last.at_ms) & 0xFFFFFFFF) / 1000.0


# GPUs and load


def gpu_users(own: Iterable[int]) -> tuple[str, ...]:
    """Return the other programs that work on the GPUs now; none where nobody can tell."""
    program = shutil.which("nvidia-smi")
    return () if program is None else read_pmon(_said([program, "pmon", "-c", "1", "-s", "u"]), own)


def read_pmon(text: str, own: Iterable[int]) -> tuple[str, ...]:
    """Read `nvidia-smi pmon`: under `# gpu pid type sm ... command`, a line a process."""
    columns: list[str] = []
    found: dict[str, None] = {}
    ours = {str(pid) for pid in own}
    for line in text.splitlines():
        if line.startswith("#"):
            names = line.lstrip("# ").split()
            columns = names if "pid" in names else columns
            continue
        cells = dict(zip(columns, line.split(None, max(0, len(columns) - 1))))
        percent = cells.get("sm", "-")
        works = percent.isdigit() and int(percent) >= GPU_PERCENT
        if works and cells.get("pid", "-").isdigit() and cells["pid"] not in ours:
            name = cells.get("command", cells.get("name", "")).strip() or f"process {cells['pid']}"
            found[Path(name.split()[0]).name[:40]] = None
    return tuple(found)


class Load:
    """How much of the cores other programs use, between one question and the next."""

    def __init__(self) -> None:
        """Begin."""
        self._before: tuple[float, float] | None = None

    def others_percent(self, now_s: float) -> float | None:
        """Return the share of all cores, in percent; none at the first time.

        `now_s` is the monotonic clock's. To be called by one thread.
        """
        busy_percent, own_s, before = psutil.cpu_percent(), _own_s(), self._before
        self._before = (now_s, own_s)
        if before is None or now_s <= before[0]:
            return None
        cores_s = (now_s - before[0]) * (psutil.cpu_count() or 1)
        own_percent = 100.0 * max(0.0, own_s - before[1]) / cores_s
        return max(0.0, busy_percent - own_percent)


def _own_s() -> float:
    """Return the processor time of this agent's family, those that have ended included."""
    total_s = 0.0
    for process in _family():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system
        total_s += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total_s


def _family() -> list[psutil.Process]:
    """Return this agent and all that it has started."""
    me = psutil.Process()
    try:
        return [me, *me.children(recursive=True)]
    except psutil.Error:
        return [me]


def _said(command: list[str]) -> str:
    """Return what a program prints; nothing if it does not answer."""
    return said(command, ANSWER_S) or ""


# The owner's own snooze: a file in the agent's state folder, which nobody else can lift. It holds a
# time with its zone, or nothing for as long as it is there, and perhaps the word `now`: what runs
# is given back. `touch STATE/snooze` is as good as `fleet snooze --here`.


def read_snooze(folder: Path, now: datetime) -> Snooze | None:
    """Return the snooze that holds `now` (with its time zone), or none.

    What cannot be read or understood holds until it is deleted: whoever wrote it wanted the
    machine. One that is over is deleted.
    """
    path = folder / SNOOZE_FILE
    try:
        with path.open("rb") as file:
            words = file.read(_SNOOZE_BYTES).decode("utf-8", "replace").split()
    except FileNotFoundError:
        return None
    except OSError:
        return Snooze()
    at_once = _AT_ONCE in words
    try:
        times = [datetime.fromisoformat(word) for word in words if word != _AT_ONCE]
        until = times[0].astimezone(now.tzinfo) if times else None
    except (ValueError, OverflowError):  # such as the end of 9999 elsewhere, which is 10000 here
        return Snooze(now=at_once)
    if until is None:
        return Snooze(now=at_once)
    if until > now:
        return Snooze(until.replace(tzinfo=None), at_once)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return None


def write_snooze(folder: Path, until: datetime | None, *, at_once: bool) -> None:
    """Begin a snooze, until then or until it is ended. Raises OSError.

    `at_once`: what runs is given back now, rather than finished.
    """
    words = [until.isoformat(timespec="seconds")] if until else []
    text = " ".join([*words, *([_AT_ONCE] if at_once else [])])
    write_atomically(RealDisk(), folder / SNOOZE_FILE, f"{text}\n".encode())
    (folder / SNOOZE_FILE).chmod(0o644)  # the agent may be another user


def end_snooze(folder: Path) -> bool:
    """End the snooze; return whether there was one. Raises OSError."""
    there = (folder / SNOOZE_FILE).exists()
    (folder / SNOOZE_FILE).unlink(missing_ok=True)
    return there
