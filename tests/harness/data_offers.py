"""Datasets that tests push, plan and run: blobs, and what is offered of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from broker.protocol import messages as m

PACKS: Final = (b"a" * 1500, b"b" * 2000)
LAYOUT: Final = b"layout"
DIGEST: Final = "d1" * 32


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def blob(data: bytes) -> m.Blob:
    return m.Blob(sha256(data), len(data))


def offer(
    name: str = "cifar", digest: str = DIGEST, packs: Sequence[bytes] = PACKS,
    layout: bytes = LAYOUT, **more: Any,
) -> m.DataOffer:  # fmt: skip
    """What is pushed; the coordinator does not look into its blobs."""
    return m.DataOffer(
        name=name, digest=digest, size_bytes=sum(map(len, packs)), files=3, layout=blob(layout),
        packs=tuple(map(blob, packs)), **more,
    )  # fmt: skip


def dataset(name: str = "cifar", digest: str = DIGEST) -> m.Dataset:
    """One as the manifest's reader knows it."""
    return m.Dataset(
        name=name, digest=digest, size_bytes=3500, layout=sha256(LAYOUT), layout_bytes=len(LAYOUT)
    )
