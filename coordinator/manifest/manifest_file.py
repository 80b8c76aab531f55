"""The file of the manifest: read when somebody asks, and whether it has become another since.

It may lie on a disk that hangs, so it is read and looked at on a thread of its own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker import toml_text
from broker.protocol.messages import TrainerInfo
from broker.system.deadline import ANSWER_S, SOON_S, Aside, Looks, within
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.data_keys import Datasets
from coordinator.manifest.problems import single_problem
from coordinator.manifest.reader import parse_manifest

EVERY_S: Final = 1.0  # at most so often is the file looked at
MAX_BYTES: Final = 32 * 1024 * 1024
_GONE: Final = cause("file_gone")
_HANGS: Final = cause("file_hangs", answer_s=ANSWER_S)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was: when it was written (ns since the epoch), its size, its hash."""

    written_ns: int
    size_bytes: int
    digest: bytes


class ManifestFile:
    """One file, which is looked at now and then; it is read again only where it was written."""

    def __init__(self, path: Path, soon_s: float = SOON_S) -> None:
        """Nothing was read yet; see `Looks` for `soon_s`."""
        self._path = path
        self._seen: _Seen | None = None
        self._told = NONE
        self._aside = Aside()
        self._looks = Looks(self._look, EVERY_S, self._aside, soon_s)

    def read(self, answer_s: float = ANSWER_S) -> bytes:
        """Return the file's bytes, and remember them for `news`. Raises OSError."""
        self._seen = None
        self._seen, data = self._aside.do(self._contents, answer_s).result(answer_s)
        return data

    def was_read(self) -> None:
        """What was said of it holds no more; a change since it was read is said again, at once."""
        self._told = NONE
        self._looks.again()

    def news(self, mono_s: float) -> Cause | None:
        """Return how the file has changed, empty where it is as it was; none: no news."""
        try:
            said = self._looks.take(mono_s)
        except TimeoutError:
            said = _HANGS
        if said is None or said == self._told:
            return None
        self._told = said
        return said

    def _look(self) -> Cause:
        seen = self._seen
        try:
            found = self._path.stat()
            if not os.access(self._path, os.R_OK):
                return NONE if seen is None else _GONE
            if seen is not None and (found.st_mtime_ns, found.st_size) == (
                seen.written_ns, seen.size_bytes,
            ):  # fmt: skip
                return NONE
            now, _ = self._contents()
        except OSError:
            return NONE if seen is None else _GONE
        if seen is not None and now.digest == seen.digest:
            self._seen = now  # written, and the same
            return NONE
        at = datetime.fromtimestamp(now.written_ns / 1e9, UTC)
        return cause("file_changed", at=f"{at:%Y-%m-%dT%H:%M}Z")

    def _contents(self) -> tuple[_Seen, bytes]:
        # What is no file, as a FIFO, may have no end: it is not even opened.
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(MAX_BYTES + 1)
        return _Seen(found.st_mtime_ns, found.st_size, hashlib.sha256(data).digest()), data


def load_manifest(
    path: Path, trainers: Mapping[str, TrainerInfo], datasets: Datasets = None
) -> Plan:
    """Return the plan in a file; `trainers` are known by model. Raises `ManifestError`."""
    return parse_manifest(path, read_text(path), trainers, datasets)


def read_text(path: Path, answer_s: float = ANSWER_S) -> str:
    """Return the text of a manifest. Raises `ManifestError`, also when the disk does not answer."""
    return text_of(path, lambda: within(answer_s, lambda: _read(path)), answer_s)


def text_of(path: Path, read: Callable[[], bytes], answer_s: float = ANSWER_S) -> str:
    """Return the text of the bytes that `read` returns. Raises `ManifestError` as `read_text`."""
    try:
        data = read()
        if len(data) > MAX_BYTES:
            raise single_problem(path, f"larger than {MAX_BYTES // 1024**2} MiB; split the plan")
        return toml_text.decoded(data)
    except TimeoutError:
        why = f"has not answered in {answer_s:g} s; see whether its disk, or its network, is there"
        raise single_problem(path, why) from None
    except OSError as error:
        raise single_problem(path, f"cannot be read: {error.strerror}; check the path") from None
    except toml_text.TomlError as error:
        raise single_problem(path, str(error), error.line) from None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
