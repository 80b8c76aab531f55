"""Datasets that tests push, plan and run: what is offered of them, and whole ones in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.programs.datasets import File, Layout, Pack, write_layout
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


class Made:
    """A dataset, and the blobs that a host fetches of it: its layout, and packs of `per_pack`."""

    def __init__(self, files: Mapping[str, bytes], per_pack: int = 2, name: str = "train") -> None:
        self.files = files
        contents = list(dict.fromkeys(data for _, data in sorted(files.items()) if data))
        groups = [contents[at : at + per_pack] for at in range(0, len(contents), per_pack)]
        packed = [b"".join(group) for group in groups]
        places = {
            data: (number, packed[number].index(data))
            for number, group in enumerate(groups)
            for data in group
        }
        self.packs = tuple(Pack(sha256(data), len(data)) for data in packed)
        self.layout = Layout(self.packs, tuple(
            File(path, len(data), sha256(data), *places.get(data, (0, 0)))
            for path, data in sorted(files.items())
        ))  # fmt: skip
        layout = write_layout(self.layout)
        self.blobs = {sha256(data): data for data in (layout, *packed)}
        self.dataset = m.Dataset(
            name=name, digest=self.layout.digest(), size_bytes=self.layout.size_bytes,
            layout=sha256(layout), layout_bytes=len(layout),
        )  # fmt: skip
