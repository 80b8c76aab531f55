"""Artifacts that are put into a store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from coordinator.store.store import Store

CHUNK = 1024
CONTENT = bytes(range(256)) * 40  # ten chunks
IDENTITY = hashlib.sha256(CONTENT).hexdigest()


def hex_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_all(store: Store, content: bytes = CONTENT, identity: str = IDENTITY) -> Any:
    """Open a part and write what is missing of it."""
    part, have = store.open_part(identity, len(content), CHUNK)
    for index in range(len(content) // CHUNK):
        if index not in have:
            part.write(index, content[index * CHUNK : (index + 1) * CHUNK])
    return part


def put(store: Store, data: bytes, mode: str = "oracle") -> str:
    """Put an artifact into the store, by a part; return its id."""
    part, _ = store.open_part(hex_of(data), len(data), CHUNK)
    part.write(0, data)
    store.finish(part, "gbt", mode)
    return hex_of(data)


def fill(folder: Path) -> Path:
    """Some files, as a trainer leaves them."""
    (folder / "deep").mkdir(parents=True)
    (folder / "model.json").write_text('{"a": 1}')
    (folder / "deep" / "weights.bin").write_bytes(bytes(range(256)) * 100)
    (folder / "empty").write_bytes(b"")
    return folder


def path_in(store: Store, artifact_id: str) -> Path:
    """Return where an artifact is that the store has."""
    path = store.path_of(artifact_id)
    assert path is not None
    return path
