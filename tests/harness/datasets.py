"""Datasets as a coordinator has them: blobs by their hashes, made of files in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from broker.programs.datasets import File, Layout, Pack, write_layout
from broker.protocol.messages import Dataset


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
        self.packs = tuple(Pack(digest_of(data), len(data)) for data in packed)
        self.layout = Layout(self.packs, tuple(
            File(path, len(data), digest_of(data), *places.get(data, (0, 0)))
            for path, data in sorted(files.items())
        ))  # fmt: skip
        layout = write_layout(self.layout)
        self.blobs = {digest_of(data): data for data in (layout, *packed)}
        self.dataset = Dataset(
            name=name, digest=self.layout.digest(), size_bytes=self.layout.size_bytes,
            layout=digest_of(layout), layout_bytes=len(layout),
        )  # fmt: skip
