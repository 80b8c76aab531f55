"""How a host is: one of a closed set, whoever asks; see docs/how-to/operations.md.

It is how it is there (`Host.presence`), or of one that is, why it is given no jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Literal

from broker.protocol.reasons import Reason

Tone = Literal["good", "busy", "warn", "bad", "dim"]


class Condition(StrEnum):
    """How a host is."""

    ONLINE = "online"
    STARTING = "starting"
    DRAINED = "drained"
    QUARANTINE = "quarantine"
    SNOOZED = "snoozed"
    REFUSING = "refusing"
    NO_DATA = "no data"
    TWINS = "twins"
    REVOKED = "revoked"
    CUT_OFF = "cut-off"
    SILENT = "silent"
    LEFT = "left"
    ASLEEP = "asleep"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


_C = Condition
TONES: Final[Mapping[Condition, Tone]] = {
    _C.ONLINE: "good",
    _C.STARTING: "busy",
    **dict.fromkeys((_C.DRAINED, _C.QUARANTINE, _C.SNOOZED, _C.REFUSING, _C.NO_DATA), "warn"),
    **dict.fromkeys((_C.TWINS, _C.REVOKED, _C.CUT_OFF, _C.SILENT), "bad"),
}  # fmt: skip
_OF_REASON: Final[Mapping[str, Condition]] = {
    "drained": _C.DRAINED, "quarantine": _C.QUARANTINE, "snoozed": _C.SNOOZED,
    "refuses": _C.REFUSING, "no-data": _C.NO_DATA,
}  # fmt: skip


def condition(presence: str, reasons: Iterable[Reason]) -> Condition:
    """Return how a host is; `reasons` are why it is given no jobs."""
    if presence != _C.ONLINE:
        return Condition(presence)
    found = (_OF_REASON[one.code] for one in reasons if one.code in _OF_REASON)
    return next(found, _C.ONLINE)


def tone(word: str) -> Tone:
    """Return what a condition means."""
    return TONES.get(Condition(word), "dim") if word in {*Condition} else "dim"
