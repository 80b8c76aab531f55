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
import secrets
from pathlib import Path
from typing import Final

from broker import private
from broker.errors import ConfigError

FILE_NAME: Final = "receipt.key"
KEY_BYTES: Final = 32
_HEX_CHARS: Final = 32
_MOST_BYTES: Final = 4096  # to say that it is damaged, however long it is
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
    """Return by what others know the ledger that this key goes with, 32 hexadecimal digits."""
    return hmac.new(key, _LEDGER, hashlib.sha256).hexdigest()[:_HEX_CHARS]


def load_key(state: Path) -> bytes:
    """Return the key in a coordinator's state folder, made at the first start.

    Its hash stands behind it in the file. Raises `ConfigError` when the file is damaged, or others
    may read it, and OSError when it cannot be written.
    """
    path = state / FILE_NAME
    if path.exists():
        private.check_secret(path)
        kept = private.read(path, _MOST_BYTES)
        key = kept[:KEY_BYTES]
        if kept != _in_file(key):
            raise ConfigError(
                f"{path}: is damaged; put a copy of it back. Without one delete it: a new one is "
                "made, and of what hosts are at, only what the ledger knows is taken"
            )
        return key
    key = secrets.token_bytes(KEY_BYTES)
    private.write(path, _in_file(key))
    return key


def _in_file(key: bytes) -> bytes:
    return key + hashlib.sha256(key).digest()
