"""Receipts: what proves that an attempt was given to a host, when the ledger does not know it.

A ledger that was restored from a backup, or lost, has forgotten its last assignments, and the hosts
still work on them. Every assignment bears a receipt, and every report about it bears it again: an
HMAC over host, job and attempt by a key that the coordinator keeps beside its ledger. So a host may
speak for an attempt that the ledger has not reached yet if it was given that attempt, and else not.
A receipt is no secret: it is of use to its own host alone, which cannot write in another's name.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_HEX_CHARS: Final = 32
_PURPOSE: Final = b"fleet receipt, version 1\n"
_LEDGER: Final = b"fleet ledger, version 1\n"


def receipt(key: bytes, host: str, job_id: str, attempt: int) -> str:
    """Return the receipt of an assignment, 32 hexadecimal digits; none without a key."""
    if not key:
        return ""
    text = f"{host}\n{job_id}\n{attempt}".encode()
    return hmac.new(key, _PURPOSE + text, hashlib.sha256).hexdigest()[:_HEX_CHARS]


def is_receipt(key: bytes, said: str, host: str, job_id: str, attempt: int) -> bool:
    """Tell whether `said` is the receipt of that assignment; without a key nothing is."""
    return bool(key) and hmac.compare_digest(said, receipt(key, host, job_id, attempt))


def ledger_id(key: bytes) -> str:
    """Return the public id of the ledger that belongs to this key, 32 hexadecimal digits."""
    return hmac.new(key, _LEDGER, hashlib.sha256).hexdigest()[:_HEX_CHARS]
