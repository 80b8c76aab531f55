"""Parcels on a host's disk: what is used is whole, and what it was meant to be."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from agent.programs.cached_folders import KEPT_S
from agent.programs.parcels import MAX_BYTES, UNPACKED_BYTES, Parcels
from broker.errors import BadStream
from broker.programs.packing import LIMIT_BYTES
from broker.programs.unusable import Unusable
from broker.system.archive import unpack
from broker.system.bundle import bundle_files
from tests.harness.agent import HEX, JOB
from tests.harness.processes import DEADLINE_S

MIB = 1024**2


def bundle_of(folder: Path, text: str, size_bytes: int = 0) -> tuple[str, bytes]:
    """Return the digest and the bytes of a parcel with one program and some bytes beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text, "utf-8")
    (folder / "data.bin").write_bytes(bytes(size_bytes))
    files = {name: folder / name for name in ("train.py", "data.bin")}
    info = bundle_files(files, folder / "bundle")
    return info.artifact_id, (folder / "bundle").read_bytes()


def fetch(parcels: Parcels, digest: str, data: bytes, attempt: int = 1) -> Path:
    """Have an attempt fetch a parcel; return its folder."""
    parcels.fetched.write(JOB, attempt, 0, data)
    parcels.install(JOB, attempt, digest)
    folder = parcels.folder(digest)
    assert folder is not None
    return folder


def test_a_parcel_that_came_in_pieces_is_used(tmp_path: Path) -> None:
    digest, data = bundle_of(tmp_path / "made", "print(1)")
    parcels = Parcels(tmp_path / "cache", 1e9)
    assert parcels.folder(digest) is None
    parcels.fetched.write(JOB, 1, 7, data[7:])
    parcels.fetched.write(JOB, 1, 0, data[:7])
    assert parcels.folder(digest) is None, "nobody has checked it yet"
    parcels.install(JOB, 1, digest)
    folder = Parcels(tmp_path / "cache", 1e9).folder(digest)
    assert folder is not None
    assert (folder / "train.py").read_text("utf-8") == "print(1)"
    assert kept(tmp_path / "cache") == {digest}


def test_a_parcel_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    digest, _ = bundle_of(tmp_path / "made", "print(1)")
    _, other = bundle_of(tmp_path / "made", "print('of somebody else')")
    parcels = Parcels(tmp_path / "cache", 1e9)
    with pytest.raises(BadStream, match="hash"):
        fetch(parcels, digest, other)
    assert parcels.folder(digest) is None
    assert not list((tmp_path / "cache").iterdir())


def test_a_parcel_that_unpacks_to_more_than_was_packed_is_refused(tmp_path: Path) -> None:
    assert UNPACKED_BYTES == LIMIT_BYTES
    digest, data = bundle_of(tmp_path / "made", "print(1)", UNPACKED_BYTES)
    assert len(data) < MIB
    parcels = Parcels(tmp_path / "cache", 1e9)
    with pytest.raises(BadStream, match="at most 64 MiB"):
        fetch(parcels, digest, data)
    assert not list((tmp_path / "cache").iterdir())


def test_a_stream_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    parcels = Parcels(tmp_path / "cache", 1e9)
    with pytest.raises(Unusable, match="too-large"):
        parcels.fetched.write(JOB, 1, MAX_BYTES, b"more")
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("name", ["../../key", "A" * 64, HEX[:-1], ""])
def test_a_name_that_is_no_digest_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadStream, match="is no sha256"):
        Parcels(tmp_path, 1e9).folder(name)


def test_what_an_attempt_gave_up_is_gone_and_another_goes_on(tmp_path: Path) -> None:
    digest, data = bundle_of(tmp_path / "made", "print(1)")
    parcels = Parcels(tmp_path / "cache", 1e9)
    for attempt in (1, 2):
        parcels.fetched.write(JOB, attempt, 0, data)
    parcels.fetched.give_up(JOB, 1)
    with pytest.raises(BadStream, match="was given up"):
        parcels.install(JOB, 1, digest)
    parcels.install(JOB, 2, digest)
    assert parcels.folder(digest) is not None


def all_at_once(count: int, work: Callable[[int], object]) -> None:
    """Do something on several threads, as the agent does."""
    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(work, n) for n in range(1, count + 1)]:
            done.result(DEADLINE_S)


def test_threads_unpack_the_same_parcel_at_the_same_time(tmp_path: Path) -> None:
    digest, data = bundle_of(tmp_path / "made", "print(1)", MIB)
    met = Barrier(2)

    def unpacker(part: Path, into: Path) -> None:
        with contextlib.suppress(BrokenBarrierError):  # only one may come in
            met.wait(0.2)
        unpack(part, into)

    parcels = Parcels(tmp_path / "cache", 1e9, unpacker=unpacker)
    for attempt in (1, 2):
        parcels.fetched.write(JOB, attempt, 0, data)
    all_at_once(2, lambda attempt: parcels.install(JOB, attempt, digest))
    assert kept(tmp_path / "cache") == {digest}


def test_threads_use_the_same_parcel_at_the_same_time(tmp_path: Path) -> None:
    digest, data = bundle_of(tmp_path / "made", "print(1)")
    parcels = Parcels(tmp_path / "cache", 1e9)
    folder = fetch(parcels, digest, data)
    all_at_once(3, lambda _: [parcels.folder(digest) for _ in range(200)])
    assert parcels.folder(digest) == folder


def test_a_parcel_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would leave empty files else, and the program is not fetched again."""
    digest, data = bundle_of(tmp_path / "made", "print(1)")
    folder, synced = tmp_path / "cache" / digest, []

    def fsync(descriptor: int) -> None:
        assert not folder.exists()
        status = os.fstat(descriptor)
        synced.append((status.st_dev, status.st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    fetch(Parcels(tmp_path / "cache", 1e9), digest, data)
    files = [path.stat() for path in folder.iterdir()]
    assert {(one.st_dev, one.st_ino) for one in files} <= {*synced}


def test_what_was_half_fetched_or_unpacked_at_a_power_cut_is_not_used(tmp_path: Path) -> None:
    digest, data = bundle_of(tmp_path / "made", "print(1)")
    whole = fetch(Parcels(tmp_path / "cache", 1e9), digest, data)
    for name in (f".{HEX}.x1y2", f"{HEX}.gone"):
        (tmp_path / "cache" / name).mkdir()
        (tmp_path / "cache" / name / "train.py").touch()
    (tmp_path / "cache" / f"{JOB}.1.fetching").write_bytes(data[:9])
    Parcels(tmp_path / "cache", 1e9)
    assert sorted((tmp_path / "cache").iterdir()) == [whole, whole.with_name(f"{digest}.used")]


def kept(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


@pytest.fixture
def used(tmp_path: Path) -> tuple[Parcels, list[str]]:
    """A cache for two and a half MiB with four parcels of one, the first of the oldest use."""
    parcels = Parcels(tmp_path / "cache", 2.5 * MIB)
    digests = []
    for n in range(4):
        digest, data = bundle_of(tmp_path / "made", f"print({n})", MIB)
        fetch(parcels, digest, data)
        os.utime(tmp_path / "cache" / f"{digest}.used", (n, n))
        digests.append(digest)
    return parcels, digests


def test_a_full_cache_drops_what_was_used_least_lately_and_nothing_in_use(
    tmp_path: Path, used: tuple[Parcels, list[str]]
) -> None:
    parcels, digests = used
    parcels.collect({digests[0]}, KEPT_S + 10.0)
    assert kept(tmp_path / "cache") == {digests[0], digests[3]}
    assert len(list((tmp_path / "cache").iterdir())) == 4, "each has its mark, and no other is left"
    assert parcels.held() == tuple(sorted((digests[0], digests[3])))


def test_what_was_looked_at_lately_stays_in_a_full_cache(
    tmp_path: Path, used: tuple[Parcels, list[str]]
) -> None:
    parcels, digests = used
    parcels.folder(digests[0])
    parcels.collect((), time.time())
    assert kept(tmp_path / "cache") == {digests[0], digests[3]}
    parcels.folder(digests[3])
    parcels.collect((), time.time())
    assert kept(tmp_path / "cache") == {digests[0], digests[3]}
