"""The artifact store: part files on their way in, bundles by their hash, an index.

    <root>/incoming/<sha256>.part           what has arrived of an artifact
    <root>/incoming/<sha256>.json           which chunks of it are surely on the disk
    <root>/models/<model>_<mode>/<sha256>/bundle.tar.zst
    <root>/models/<model>_checkpoints/<sha256>/bundle.tar.zst
    <root>/models/index.jsonl               one row a completed job

The list of chunks may lag behind the part file, never lead it: data is fsynced before the list that
claims it is written. Nothing is trusted until the whole file hashes to its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from broker.disk import Disk, RealDisk, read, write_atomically
from broker.errors import BadStream, StorageError
from broker.names import is_plain
from broker.ranges import RangeSet
from broker.stream import chunk_count
from coordinator.plan import CHECKPOINTS

BUNDLE: Final = "bundle.tar.zst"
SYNC_EVERY_BYTES: Final = 16 * 1024 * 1024
PARTS_KEPT_S: Final = 7 * 86_400.0  # a part that nothing was written to for so long is given up
FREE_MARGIN_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 1024 * 1024
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredInfo:
    """An artifact in the store."""

    artifact_id: str
    path: Path
    size_bytes: int


class Part:
    """The part file of one artifact. All methods raise `StorageError` when the disk refuses."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        artifact_id: str,
        size_bytes: int,
        chunk_bytes: int,
        have: RangeSet,
    ) -> None:
        """Open the file, which `Store.open_part` has prepared."""
        self._disk = disk
        self.path = path
        self.artifact_id = artifact_id
        self.size_bytes = size_bytes
        self.chunk_bytes = chunk_bytes
        self._have = have
        self._unsafe_bytes = 0
        with _storage(path):
            there = disk.size_bytes(path) is not None
            self._file: IO[bytes] = disk.open(path, "r+b" if there else "w+b")

    def write(self, index: int, data: bytes) -> None:
        """Write a chunk to its place; now and then make what is there durable."""
        with _storage(self.path):
            self._file.seek(index * self.chunk_bytes)
            self._file.write(data)
        self._have.add(index, index + 1)
        self._unsafe_bytes += len(data)
        if self._unsafe_bytes >= SYNC_EVERY_BYTES:
            self.sync()

    def sync(self) -> None:
        """Make the data durable, then the list of chunks that claims it."""
        with _storage(self.path):
            self._disk.sync(self._file)
            listed = {
                "size_bytes": self.size_bytes,
                "chunk_bytes": self.chunk_bytes,
                "have": list(self._have),
            }
            list_path = self.path.with_suffix(".json")
            write_atomically(self._disk, list_path, json.dumps(listed).encode())
        self._unsafe_bytes = 0

    def close(self) -> None:
        """Leave the part as it is, for a later go; closing twice does no harm."""
        if self._file.closed:
            return
        with contextlib.suppress(StorageError):
            self.sync()
        self._release()

    def close_file(self) -> None:
        """Close the file, so that it can be renamed everywhere."""
        with _storage(self.path):
            self._file.close()

    def discard(self) -> None:
        """Delete the part."""
        self._release()
        for path in (self.path, self.path.with_suffix(".json")):
            with contextlib.suppress(OSError):
                self._disk.unlink(path)

    def _release(self) -> None:
        # A full disk refuses what is still buffered, too; the file is closed all the same.
        with contextlib.suppress(OSError):
            self._file.close()

    def seal(self) -> str:
        """Flush everything to the disk and return the sha256 of the whole file, in hex."""
        digest = hashlib.sha256()
        with _storage(self.path):
            self._disk.sync(self._file)
            self._file.seek(0)
            while block := self._file.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()


class Store:
    """Artifacts under one root folder. Raises `StorageError` when the folder cannot be used."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        """Make the folders and find what is there."""
        self._disk = disk = disk or RealDisk()
        self._incoming = root / "incoming"
        self._models = root / "models"
        self._index = self._models / "index.jsonl"
        self._paths: dict[str, Path] = {}
        with _storage(root):
            disk.make_folder(self._incoming)
            disk.make_folder(self._models)
            for path in disk.glob(self._models, f"*/*/{BUNDLE}"):
                if _HEX.fullmatch(path.parent.name):
                    self._paths[path.parent.name] = path
            self._settle()
            self._rows = self._heal_index()

    def has(self, artifact_id: str) -> bool:
        """Return whether the artifact is in the store."""
        return artifact_id in self._paths

    def path_of(self, artifact_id: str) -> Path | None:
        """Return where the artifact's bundle lies, or none."""
        return self._paths.get(artifact_id)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every artifact in the store."""
        sizes = {}
        for artifact_id, path in self._paths.items():
            with contextlib.suppress(OSError):
                size_bytes = self._disk.size_bytes(path)
                if size_bytes is not None:
                    sizes[artifact_id] = size_bytes
        return sizes

    def open_part(
        self, artifact_id: str, size_bytes: int, chunk_bytes: int
    ) -> tuple[Part, RangeSet]:
        """Open or create the part file of an artifact; return it and the chunks that it has.

        Raises `StorageError` when the disk has no room for it. A part of another size or cut
        starts over.
        """
        path = self._incoming / f"{_checked(_HEX, artifact_id)}.part"
        have = _listed(self._disk, path, size_bytes, chunk_bytes)
        missing_bytes = size_bytes - have.count() * chunk_bytes
        with _storage(path):
            free_bytes = self._disk.free_bytes(self._incoming)
            if missing_bytes + FREE_MARGIN_BYTES > free_bytes:
                raise StorageError(
                    f"{self._incoming}: {free_bytes // 2**20} MiB free, the artifact needs "
                    f"{missing_bytes // 2**20} MiB more; make room"
                )
            if not have:
                self._disk.unlink(path)
                self._disk.unlink(path.with_suffix(".json"))
        part = Part(self._disk, path, artifact_id, size_bytes, chunk_bytes, have)
        return part, RangeSet(have)

    def finish(self, part: Part, model: str, mode: str) -> StoredInfo:
        """Take a whole part into the store: hash, fsync, rename, fsync the folders.

        Raises `BadStream` when it does not hash to its id; the part is deleted then.
        """
        folder = self._models / (_checked(_FOLDER, model) + "_" + _checked(_FOLDER, mode))
        target = folder / _checked(_HEX, part.artifact_id) / BUNDLE
        if part.seal() != part.artifact_id:
            part.discard()
            raise BadStream(f"artifact {part.artifact_id[:12]}: the bytes have another hash")
        part.close_file()
        with _storage(target):
            self._disk.make_folder(target.parent)
            self._disk.replace(part.path, target)
            for made in (target.parent, folder, self._models, self._incoming):
                self._disk.sync_folder(made)
            self._disk.unlink(part.path.with_suffix(".json"))
        self._paths[part.artifact_id] = target
        return StoredInfo(part.artifact_id, target, part.size_bytes)

    def append_index(self, row: Mapping[str, Any]) -> None:
        """Append a row to the index, durably; a row that is there already is not repeated."""
        key = _row_key(row)
        if key in self._rows:
            return
        line = json.dumps(row, sort_keys=True, allow_nan=False)
        with _storage(self._index), self._disk.open(self._index, "ab") as file:
            before_bytes = file.tell()
            try:
                file.write(line.encode() + b"\n")
                self._disk.sync(file)
            except OSError:
                file.truncate(before_bytes)  # half a row would spoil the next one
                raise
        self._rows.add(key)

    def collect_parts(self, older_than_s: float, now_wall_s: float) -> int:
        """Delete part files that nothing was written to for so long; return how many."""
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

    def _settle(self) -> None:
        """Make every name durable that is found.

        An earlier process may have been killed between a rename and the folder's fsync: what it
        left is seen, and would be relied upon, until the power fails.
        """
        folders = {self._models}
        for path in self._paths.values():
            folders |= {path.parent, path.parent.parent}
        for folder in sorted(folders):
            self._disk.sync_folder(folder)

    def verify(self, artifact_id: str) -> int | None:
        """Hash an artifact; return its size in bytes, or none when it is not there or not whole.

        What is not whole is not known any more; the file is left to `fleet fsck`.
        """
        path, digest, size_bytes = self._paths.get(artifact_id), hashlib.sha256(), 0
        if path is None:
            return None
        with contextlib.suppress(OSError), self._disk.open(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size_bytes += len(block)
        if digest.hexdigest() == artifact_id:
            return size_bytes
        del self._paths[artifact_id]
        return None

    def collect_artifacts(
        self, unreferenced: Iterable[str], older_than_s: float, now_wall_s: float
    ) -> dict[str, int]:
        """Delete those of the given artifacts that are so old; return the others, by size.

        The index then has one row for each job and artifact that is there, the newest.
        """
        disk, kept = self._disk, {}
        for artifact_id in unreferenced:
            path = self._paths.get(artifact_id)
            if path is None:
                continue
            with _storage(path):
                # A checkpoint that no job goes on from is of no use to anybody.
                if is_checkpoint(path) or now_wall_s - disk.modified_s(path) > older_than_s:
                    disk.unlink(path)
                    disk.remove_tree(path.parent)
                    del self._paths[artifact_id]
                else:
                    kept[artifact_id] = disk.size_bytes(path) or 0
        self._compact_index()
        return kept

    def _compact_index(self) -> None:
        if self._disk.size_bytes(self._index) is None:
            return
        with _storage(self._index):
            lines = read(self._disk, self._index).splitlines()
            newest: dict[tuple[str, str], bytes] = {}
            for line in lines:
                with contextlib.suppress(ValueError, AttributeError):
                    row = json.loads(line)
                    key = (str(row.get("job_id")), str(row.get("artifact_id")))
                    if key[1] in self._paths:
                        newest.pop(key, None)
                        newest[key] = line
            if len(newest) < len(lines):
                write_atomically(
                    self._disk, self._index, b"".join(line + b"\n" for line in newest.values())
                )
                self._disk.sync_folder(self._models)
                self._rows = {_row_key(json.loads(line)) for line in newest.values()}

    def _heal_index(self) -> set[tuple[str, ...]]:
        """Read the index; a last line that a crash has torn is cut off."""
        if self._disk.size_bytes(self._index) is None:
            return set()
        data = read(self._disk, self._index)
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            write_atomically(self._disk, self._index, whole)
        keys = set()
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    keys.add(_row_key(row))
        return keys


def is_checkpoint(path: Path) -> bool:
    """Whether a bundle of the store is a checkpoint, not a result."""
    return path.parent.parent.name.endswith(f"_{CHECKPOINTS}")


def _row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in ("job_id", "attempt", "artifact_id"))


def _listed(disk: Disk, path: Path, size_bytes: int, chunk_bytes: int) -> RangeSet:
    """Return the chunks that are surely in a part file, if it is of this very artifact."""
    chunks = chunk_count(size_bytes, chunk_bytes)
    try:
        listed = json.loads(read(disk, path.with_suffix(".json")))
        same = (listed["size_bytes"], listed["chunk_bytes"]) == (size_bytes, chunk_bytes)
        ranges = [(int(start), int(stop)) for start, stop in listed["have"]]
        on_disk_bytes = disk.size_bytes(path) or 0
    except (OSError, ValueError, KeyError, TypeError):
        return RangeSet()
    inside = all(0 <= start < stop <= chunks for start, stop in ranges)
    reached = max((stop for _, stop in ranges), default=0)
    there = on_disk_bytes >= min(size_bytes, reached * chunk_bytes)
    return RangeSet(ranges) if same and inside and there else RangeSet()


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not (pattern.fullmatch(name) and is_plain(name)):
        raise BadStream(f"{name[:80]!r} cannot be part of a path")
    return name


@contextlib.contextmanager
def _storage(path: Path) -> Iterator[None]:
    """Turn what the operating system says into a `StorageError` that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}; is the disk full?") from error
