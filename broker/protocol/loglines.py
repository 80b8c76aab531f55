"""A trainer's output on the wire: numbered lines, so that a gap is seen.

A message is `ATTEMPT.NUMBER LINE`. More lines may follow, each after a line end; NUMBER is that of
the first one, and counts from 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.errors import BadMessage

MAX_LINE_BYTES: Final = 8192
MAX_LINE_CHARS: Final = 8192  # that an agent reads
MAX_METRICS: Final = 64  # that it keeps of a result
MAX_KEPT_BYTES: Final = 16 * 1024  # of lines that nobody has heard, in one message
_HEAD: Final = re.compile(rb"([0-9]{1,9})\.([0-9]{1,9}) ")


@dataclass(frozen=True, slots=True)
class LogLines:
    """Consecutive lines of an attempt; the first is line `number`."""

    attempt: int
    number: int
    lines: tuple[str, ...]


def encode_lines(attempt: int, number: int, lines: Sequence[bytes]) -> bytes:
    """Return the message with these lines, none of which has a line end."""
    return b"%d.%d " % (attempt, number) + b"\n".join(lines)


def decode_lines(payload: bytes) -> LogLines:
    """Return what a message says; raises `BadMessage` for one without numbers."""
    head = _HEAD.match(payload[:32])
    if head is None:
        raise BadMessage("a line of output without its number")
    text = payload[head.end() : head.end() + MAX_KEPT_BYTES + MAX_LINE_BYTES]
    lines = text.decode("utf-8", "replace").split("\n")
    return LogLines(int(head[1]), int(head[2]), tuple(lines))


def missing(count: int) -> str:
    """Return the note in place of `count` lines that were lost."""
    lines, are = ("line", "is") if count == 1 else ("lines", "are")
    return f"({count} {lines} {are} missing here: the host or the coordinator was cut off)"
