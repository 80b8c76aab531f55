"""The manifest of a coordinator: read when somebody asks, and looked at for changes.

It may lie on a disk that hangs, so it is waited for with patience, on one thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker.system.deadline import ANSWER_S, Aside
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.manifest_file import MAX_BYTES, text_of
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.reader import parse_manifest

_GONE: Final = cause("file_gone")
_HANGS: Final = cause("file_hangs", answer_s=ANSWER_S)
_PUSH: Final = (
    "programs and datasets are pushed to a fleet that runs: start it without --manifest, push what "
    "is lacking, then start it with --manifest"
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was: when it was written (ns since the epoch), its size, its hash."""

    written_ns: int
    size_bytes: int
    digest: bytes


class PlanFile:
    """The manifest that a coordinator was told of, if it was told of any.

    A look at it reads it again only where it was written.
    """

    def __init__(self, path: Path | None, answer_s: float = ANSWER_S) -> None:
        """Read nothing yet. A disk that does not answer in `answer_s` hangs."""
        self._path, self._is_named = path or Path(), path is not None
        self._answer_s = answer_s
        self._seen: _Seen | None = None
        self._told = NONE
        self._aside = Aside()

    def read(self, known: Catalogue) -> Plan | None:
        """Return the plan; none without a manifest. Raises `ManifestError`."""
        if not self._is_named:
            return None
        return parse_manifest(self._path, text_of(self._path, self.contents), *known)

    def contents(self) -> bytes:
        """Return the file's bytes, and remember them for `news`. Raises OSError."""
        self._seen, self._told = None, NONE
        self._seen, data = self._aside.do(self._contents).result(self._answer_s)
        return data

    def news(self) -> Cause | None:
        """Return how the file has changed, empty where it is as it was; none: no news."""
        if not self._is_named:
            return None
        try:
            said = self._aside.do(self._look).result(self._answer_s)
        except TimeoutError:
            said = _HANGS
        if said == self._told:
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


def with_remedy(error: ManifestError) -> ManifestError:
    """Return the error of a first start; it says where to push what is lacking."""
    if not any(one.key.startswith(("program", "data.")) for one in error.problems):
        return error
    return ManifestError((*error.problems, Problem(error.problems[0].file, "", "", _PUSH)))
