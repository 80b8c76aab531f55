"""The key of the receipts (`coordinator.core.receipts`): a file in the state folder."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from broker.errors import ConfigError
from broker.pki import keyfiles

FILE_NAME: Final = "receipt.key"
KEY_BYTES: Final = 32
_MOST_BYTES: Final = 4096  # to say that it is damaged, however long it is


def load_key(state: Path) -> bytes:
    """Return the key in a coordinator's state folder, made at the first start.

    Its hash stands behind it in the file. Raises `ConfigError` when the file is damaged, or others
    may read it, and OSError when it cannot be written.
    """
    path = state / FILE_NAME
    if path.exists():
        keyfiles.check_secret(path)
        kept = keyfiles.read(path, _MOST_BYTES)
        key = kept[:KEY_BYTES]
        if kept != _in_file(key):
            raise ConfigError(
                f"{path}: is damaged; put a copy of it back. Without one delete it: a new one is "
                "made, and of what hosts are at, only what the ledger knows is taken"
            )
        return key
    key = secrets.token_bytes(KEY_BYTES)
    keyfiles.write(path, _in_file(key))
    return key


def _in_file(key: bytes) -> bytes:
    return key + hashlib.sha256(key).digest()
