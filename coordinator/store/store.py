"""The artifact store: part files on their way in, bundles by their hash (`finish` compares it).

    <root>/incoming/<sha256>.part           what has arrived of an artifact
    <root>/incoming/<sha256>.json           which chunks of it are surely on the disk
    <root>/models/<model>_<mode>/<sha256>/bundle.tar.zst    (<model>/ where there is no mode)
    <root>/models/<model>_checkpoints/<sha256>/bundle.tar.zst
    <root>/models/<program>_programs/<sha256>/bundle.tar.zst
    <root>/models/<dataset>_datasets/<sha256>/bundle.tar.zst    a pack or a layout, no archive

The list of chunks may lag behind the part file, never lead it: data is fsynced before the list that
claims it is written. Nothing is trusted until the whole file hashes to its name. A small artifact
comes with its report, and core/uploads.py compares its hash.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Final

from broker.errors import BadStream, StorageError
from broker.figures import size
from broker.file_names import is_plain
from broker.protocol.messages import NoRoom
from broker.stream.ranges import RangeSet
from broker.system.files import RealDisk
from coordinator.jobs.plan_entries import CHECKPOINTS, DATASETS, PROGRAMS
from coordinator.store.partfile import Part, listed_chunks, sha256_of, storage

BUNDLE: Final = "bundle.tar.zst"
PARTS_KEPT_S: Final = 7 * 86_400.0  # since the last write to a part
PUSH_KEPT_S: Final = 86_400.0  # what is pushed; other blobs of it may be yet to come
RESERVE_BYTES: Final = 64 * 1024 * 1024
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NoRoomError(StorageError):
    """The disk has no room for an artifact beside the reserve; `lack` has the figures."""

    def __init__(self, folder: Path, lack: NoRoom) -> None:
        """Say so in words."""
        super().__init__(
            f"{folder}: {size(lack.free_bytes)} free, the artifact needs "
            f"{size(lack.needed_bytes)} more beside the reserve of {size(lack.reserve_bytes)}; "
            "make room"
        )
        self.lack = lack


class Store:
    """Artifacts under one root folder. Raises `StorageError` when the folder cannot be used."""

    def __init__(
        self, root: Path, disk: RealDisk | None = None, reserve_bytes: int = RESERVE_BYTES
    ) -> None:
        """Make the folders and find what is there. What is fetched leaves the reserve free."""
        self._disk = disk = disk or RealDisk()
        self._reserve_bytes = reserve_bytes
        self.on_stored: Callable[[int], object] = lambda _: None  # told the size of what comes
        self._incoming = root / "incoming"
        self._models = root / "models"
        self._durable: set[Path] = set()
        with storage(root):
            disk.make_folder(self._incoming)
            disk.make_folder(self._models)
            self._paths = bundles_in(disk, self._models)
            self._sweep()
            self._settle()

    def has(self, artifact_id: str) -> bool:
        """Return whether the artifact is in the store."""
        return artifact_id in self._paths

    def path_of(self, artifact_id: str) -> Path | None:
        """Return where the artifact's bundle lies, or none."""
        return self._paths.get(artifact_id)

    def size_bytes(self, artifact_id: str) -> int | None:
        """Return the size of an artifact in bytes; none when it is not in the store."""
        path = self._paths.get(artifact_id)
        with contextlib.suppress(OSError):
            return None if path is None else self._disk.size_bytes(path)
        return None

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every artifact in the store."""
        sizes = ((one, self.size_bytes(one)) for one in [*self._paths])  # a thread may add to them
        return {one: size_bytes for one, size_bytes in sizes if size_bytes is not None}

    def open_part(
        self, artifact_id: str, size_bytes: int, chunk_bytes: int
    ) -> tuple[Part, RangeSet]:
        """Open or create the part file of an artifact; return it and the chunks that it has.

        Raises `NoRoomError` when the disk has no room for it, `StorageError` when it refuses. A
        part of another size starts over.
        """
        path = self._incoming / f"{_checked(_HEX, artifact_id)}.part"
        have = listed_chunks(self._disk, path, size_bytes, chunk_bytes)
        missing_bytes = size_bytes - have.count() * chunk_bytes
        with storage(path):
            free_bytes = self._disk.free_bytes(self._incoming)
            if missing_bytes + self._reserve_bytes > free_bytes:
                lack = NoRoom(
                    needed_bytes=missing_bytes,
                    free_bytes=free_bytes,
                    reserve_bytes=self._reserve_bytes,
                )
                raise NoRoomError(self._incoming, lack)
            if not have:
                self._disk.unlink(path)
                self._disk.unlink(path.with_suffix(".json"))
        part = Part(self._disk, path, artifact_id, size_bytes, chunk_bytes, have)
        return part, RangeSet(have)

    def finish(self, part: Part, model: str, mode: str) -> Path:
        """Take a whole part into the store, durably; return its path.

        Raises `BadStream` when it does not hash to its id; the part is deleted then.
        """
        target = self._target(part.artifact_id, model, mode)
        if part.seal() != part.artifact_id:
            part.discard()
            raise BadStream(f"artifact {part.artifact_id[:12]}: the bytes have another hash")
        with storage(target):
            self._disk.make_folder(target.parent)
            self._disk.replace(part.path, target)
            self._sync_names(target)
            self._paths[part.artifact_id] = target
            self._disk.unlink(part.path.with_suffix(".json"))
        self.on_stored(part.size_bytes)
        return target

    def put(self, artifact_id: str, data: bytes, model: str, mode: str) -> None:
        """Put an artifact that is in memory into the store, durably.

        Raises `BadStream` when it does not hash to its id, `StorageError` when the disk refuses.
        """
        if artifact_id in self._paths:
            return
        part, _ = self.open_part(artifact_id, len(data), len(data))
        try:
            part.write(0, data)
            self.finish(part, model, mode)
        finally:
            part.close()

    def _target(self, artifact_id: str, model: str, mode: str) -> Path:
        folder = _checked(_FOLDER, model) + (f"_{_checked(_FOLDER, mode)}" if mode else "")
        return self._models / folder / _checked(_HEX, artifact_id) / BUNDLE

    def _sync_names(self, target: Path) -> None:
        """Make a new bundle's name durable, and those of its folders."""
        folder = target.parent.parent
        self._disk.sync_folder(target.parent)
        self._disk.sync_folder(folder)
        if folder not in self._durable:
            self._disk.sync_folder(self._models)
            self._durable.add(folder)

    def collect_parts(self, older_than_s: float, now_wall_s: float) -> int:
        """Delete part files without a write for so long; return how many."""
        disk, collected = self._disk, 0
        for path in disk.glob(self._incoming, "*.part"):
            with contextlib.suppress(OSError):
                if now_wall_s - disk.modified_s(path) > older_than_s:
                    disk.unlink(path)
                    disk.unlink(path.with_suffix(".json"))
                    collected += 1
        for path in disk.glob(self._incoming, "*.json*"):
            # A crash between two deletions leaves a list without its part.
            part = path.with_name(path.name.partition(".")[0] + ".part")
            if disk.size_bytes(part) is None:
                with contextlib.suppress(OSError):
                    disk.unlink(path)
        return collected

    def _sweep(self) -> None:
        """Delete files that an earlier process was killed in the midst of making."""
        for making in self._disk.glob(self._incoming, "*.making"):
            with contextlib.suppress(OSError):
                self._disk.unlink(making)

    def _settle(self) -> None:
        """Sync the folders: an earlier process may have been killed before it did."""
        folders = {self._models}
        for path in self._paths.values():
            folders |= {path.parent, path.parent.parent}
        for folder in sorted(folders):
            self._disk.sync_folder(folder)
        self._durable = folders

    def verify(self, artifact_id: str) -> int | None:
        """Hash an artifact; return its size in bytes, or none when it is missing or damaged.

        A damaged one is no longer in the store; its file is left to `fleet fsck`.
        """
        path = self._paths.get(artifact_id)
        if path is None:
            return None
        with contextlib.suppress(OSError):
            digest, size_bytes = sha256_of(self._disk, path)
            if digest == artifact_id:
                return size_bytes
        del self._paths[artifact_id]
        return None

    def collect_artifacts(
        self,
        unreferenced: Iterable[str],
        older_than_s: float,
        now_wall_s: float,
        spared: Container[str] = (),
    ) -> None:
        """Delete those of the `unreferenced` that are so old.

        `spared` ones stay whatever their age, except checkpoints.
        """
        disk = self._disk
        for artifact_id in unreferenced:
            path = self._paths.get(artifact_id)
            if path is None:
                continue
            with storage(path):
                if disk.size_bytes(path) is None:
                    del self._paths[artifact_id]  # somebody has deleted it
                    continue
                # A checkpoint that no job goes on from is of no use to anybody.
                goes = is_checkpoint(path)
                if not goes and artifact_id not in spared:
                    least_s = PUSH_KEPT_S if is_pushed(path) else 0.0
                    goes = now_wall_s - disk.modified_s(path) > max(older_than_s, least_s)
                if goes:
                    disk.unlink(path)
                    disk.remove_tree(path.parent)
                    del self._paths[artifact_id]


def bundles_in(disk: RealDisk, models: Path) -> dict[str, Path]:
    """Return the bundles of a store by their ids; `models` is its folder."""
    found = disk.glob(models, f"*/*/{BUNDLE}")
    return {path.parent.name: path for path in found if _HEX.fullmatch(path.parent.name)}


def is_checkpoint(path: Path) -> bool:
    """Whether a bundle of the store is a checkpoint, not a result."""
    return path.parent.parent.name.endswith(f"_{CHECKPOINTS}")


def is_pushed(path: Path) -> bool:
    """Whether a bundle of the store is a program's parcel, or of a dataset."""
    return path.parent.parent.name.endswith((f"_{PROGRAMS}", f"_{DATASETS}"))


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not (pattern.fullmatch(name) and is_plain(name)):
        raise BadStream(f"{name[:80]!r} cannot be part of a path")
    return name
