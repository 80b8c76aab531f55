"""The owner's own snooze: a file in the agent's state folder, which nobody else can lift.

It holds a time with its zone, or nothing for as long as it is there, and perhaps the word `now`:
what runs is given back. `touch STATE/snooze` is as good as `fleet snooze --here`.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Final

from agent.core.effects import Snooze
from broker.system.files import RealDisk, write_atomically

NAME: Final = "snooze"
AT_ONCE: Final = "now"
MAX_BYTES: Final = 200


def read(folder: Path, now: datetime) -> Snooze | None:
    """Return the snooze that holds `now` (with its time zone), or none.

    What cannot be read or understood holds until it is deleted: whoever wrote it wanted the
    machine. One that is over is deleted.
    """
    path = folder / NAME
    try:
        with path.open("rb") as file:
            words = file.read(MAX_BYTES).decode("utf-8", "replace").split()
    except FileNotFoundError:
        return None
    except OSError:
        return Snooze()
    at_once = AT_ONCE in words
    try:
        times = [datetime.fromisoformat(word) for word in words if word != AT_ONCE]
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


def write(folder: Path, until: datetime | None, *, at_once: bool) -> None:
    """Begin a snooze, until then or until it is ended. Raises OSError.

    `at_once`: what runs is given back now, rather than finished.
    """
    words = [until.isoformat(timespec="seconds")] if until else []
    text = " ".join([*words, *([AT_ONCE] if at_once else [])])
    write_atomically(RealDisk(), folder / NAME, f"{text}\n".encode())
    (folder / NAME).chmod(0o644)  # the agent may be another user


def end(folder: Path) -> bool:
    """End the snooze; return whether there was one. Raises OSError."""
    there = (folder / NAME).exists()
    (folder / NAME).unlink(missing_ok=True)
    return there
