"""How a host is: one word, whoever asks; see docs/how-to/operations.md.

It is how it is there (`Host.presence`), or of one that is, why it is given no jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from coordinator.jobs.records import HostRecord

Tone = Literal["good", "busy", "warn", "bad", "dim"]

TONES: Final[Mapping[str, Tone]] = {
    "online": "good",
    "starting": "busy",
    "restarted": "busy",
    "rebooted": "busy",
    "drained": "warn",
    "quarantine": "warn",
    "snoozed": "warn",
    "refusing": "warn",
    "no data": "warn",
    "twins": "bad",
    "revoked": "bad",
    "cut-off": "bad",
    "silent": "bad",
    "left": "dim",
    "asleep": "dim",
    "offline": "dim",
    "unknown": "dim",
}


def restraint(record: HostRecord, refuses: str, *, lacks_data: bool) -> str:
    """Return why a host is given no jobs, empty where it is; `refuses` is its agent's word."""
    found = {
        "drained": record.drained, "quarantine": record.quarantine,
        "snoozed": record.snoozed_until, "refusing": refuses, "no data": lacks_data,
    }  # fmt: skip
    return next((word for word, holds in found.items() if holds), "")


def condition(presence: str, restraint: str) -> str:
    """Return how a host is."""
    return restraint if presence == "online" and restraint else presence


def tone(word: str) -> Tone:
    """Return what a word of these means."""
    return TONES.get(word, "dim")
