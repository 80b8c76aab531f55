"""Part files: what is claimed of them is surely on the disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import StorageError
from broker.stream.ranges import RangeSet
from broker.system.files import RealDisk
from coordinator.store.partfile import SYNC_EVERY_BYTES
from coordinator.store.store import Store
from tests.harness.stored import CHUNK, CONTENT, IDENTITY, write_all


@pytest.mark.posix  # a file that is open is not renamed on Windows
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_part_goes_on_where_it_surely_stands(tmp_path: Path) -> None:
    """What was made durable is there after a crash; what was not is asked for again."""
    store = Store(tmp_path)
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    assert not have
    part.write(0, CONTENT[:CHUNK])
    part.sync()
    part.write(1, CONTENT[CHUNK : 2 * CHUNK])  # and now the power fails
    crashed = Store(tmp_path)
    _, have = crashed.open_part(IDENTITY, len(CONTENT), CHUNK)
    assert have == RangeSet([(0, 1)])
    assert crashed.finish(write_all(crashed), "gbt", "oracle").read_bytes() == CONTENT


@pytest.mark.parametrize("listed", [
    b"", b"{", b"[]", b'{"size_bytes": 1, "chunk_bytes": 1, "have": []}',
    json.dumps({"size_bytes": len(CONTENT), "chunk_bytes": CHUNK, "have": [[0, 99]]}).encode(),
    json.dumps({"size_bytes": len(CONTENT), "chunk_bytes": CHUNK, "have": [[0, 10]]}).encode(),
])  # fmt: skip
def test_a_list_that_cannot_be_true_is_not_believed(tmp_path: Path, listed: bytes) -> None:
    """Another size, chunks beyond the end, more than the part file holds: start over."""
    store = Store(tmp_path)
    (tmp_path / "incoming" / f"{IDENTITY}.part").write_bytes(b"x" * 100)
    (tmp_path / "incoming" / f"{IDENTITY}.json").write_bytes(listed)
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.close()
    assert not have


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_list_of_a_large_part_follows_by_itself(tmp_path: Path) -> None:
    """Every sixteen mebibytes, and it claims no more than was there then."""
    store = Store(tmp_path)
    part, _ = store.open_part("ab" * 32, 4 * SYNC_EVERY_BYTES, 1024 * 1024)
    for index in range(20):
        part.write(index, bytes(1024 * 1024))
        if (claimed := part.claim()) is not None:
            behind = claimed
    part.sync(behind)  # on another thread, a little later
    _, have = Store(tmp_path).open_part("ab" * 32, 4 * SYNC_EVERY_BYTES, 1024 * 1024)
    assert have == RangeSet([(0, 16)])


def test_a_part_starts_over_when_its_sender_cuts_it_otherwise(tmp_path: Path) -> None:
    """The chunks of the new size are others."""
    store = Store(tmp_path)
    part, _ = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.write(0, CONTENT[:CHUNK])
    part.close()
    part, have = store.open_part(IDENTITY, len(CONTENT), 2 * CHUNK)
    part.close()
    assert not have


@pytest.mark.parametrize("order", [range(10), range(9, -1, -1), [0, 2, 1, *range(3, 10)]])
def test_the_hash_does_not_depend_on_the_order_of_chunks(
    tmp_path: Path, order: Iterable[int]
) -> None:
    """What comes in order is hashed on the way; what does not, in the end."""
    store = Store(tmp_path)
    part, _ = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    for index in order:
        part.write(index, CONTENT[index * CHUNK : (index + 1) * CHUNK])
    assert store.finish(part, "gbt", "oracle").read_bytes() == CONTENT


class _Forgetful(RealDisk):
    """A disk that fails to make something durable, once; later it says that all is well."""

    def __init__(self) -> None:
        self.failures = 1

    def sync(self, file: Any) -> None:
        if file.name.endswith(".part") and self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        super().sync(file)


def test_a_disk_that_failed_once_is_not_believed_later(tmp_path: Path) -> None:
    """What it was given may be gone, whatever it says later: nothing is claimed of the part."""
    store = Store(tmp_path, _Forgetful())
    part = write_all(store)
    with pytest.raises(StorageError, match="error"):
        part.sync()
    part.close()
    part, have = store.open_part(IDENTITY, len(CONTENT), CHUNK)
    part.close()
    assert not have
