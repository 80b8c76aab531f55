"""The manifest of a coordinator: read when somebody asks; the last good one is kept.

It may lie on a disk that hangs, so it is read, and looked at for changes, on a thread of its own.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from broker.errors import StorageError, plain
from broker.system.deadline import ANSWER_S, SOON_S, Aside, Looks
from broker.system.files import RealDisk, read_sealed, write_sealed
from coordinator.jobs.causes import NONE, Cause, cause
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.manifest_file import MAX_BYTES, text_of
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.reader import parse_manifest

log = logging.getLogger("fleet.coordinator")

LAST_GOOD: Final = "manifest.last-good.toml"
EVERY_S: Final = 1.0  # at most so often is the file looked at
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

    It is looked at now and then, and read again only where it was written.
    """

    def __init__(self, path: Path | None, state: Path, soon_s: float = SOON_S) -> None:
        """Read nothing yet. `state` is the coordinator's folder; see `Looks` for `soon_s`."""
        self._path, self._is_named = path or Path(), path is not None
        self._last_good = state / LAST_GOOD
        self._seen: _Seen | None = None
        self._told = NONE
        self._aside = Aside()
        self._looks = Looks(self._look, EVERY_S, self._aside, soon_s)

    def read(self, known: Catalogue) -> Plan | None:
        """Return the plan; none without a manifest. Raises `ManifestError`."""
        if not self._is_named:
            return None
        text = text_of(self._path, self.contents)
        plan = parse_manifest(self._path, text, *known)
        try:
            write_sealed(RealDisk(), self._last_good, text.encode())
        except OSError as error:
            words = "a restart will not find this manifest there"
            log.error("%s: %s; %s", self._last_good, plain(error), words)
        return plan

    def contents(self, answer_s: float = ANSWER_S) -> bytes:
        """Return the file's bytes, and remember them for `news`. Raises OSError."""
        self._seen = None
        self._seen, data = self._aside.do(self._contents, answer_s).result(answer_s)
        return data

    def first(
        self, known: Catalogue, *, may_fall_back: bool
    ) -> tuple[Plan | None, tuple[Problem, ...]]:
        """Return the plan to begin with, and the errors if it is the last good one. May raise."""
        try:
            return self.read(known), ()
        except ManifestError as error:
            plan = self._last(known) if may_fall_back else None
            if plan is None:
                is_lacking = any(one.key.startswith(("program", "data.")) for one in error.problems)
                more = (Problem(str(self._path), "", "", _PUSH),) if is_lacking else ()
                raise ManifestError((*error.problems, *more)) from None
            log.error("%s\nthe manifest has errors; going on with the last good one", error)
            return plan, error.problems

    def was_read(self) -> None:
        """What was said of it holds no more; a change since it was read is said again, at once."""
        self._told = NONE
        self._looks.again()

    def news(self, mono_s: float) -> Cause | None:
        """Return how the file has changed, empty where it is as it was; none: no news."""
        if not self._is_named:
            return None
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

    def _last(self, known: Catalogue) -> Plan | None:
        """Return the last good plan, if there is one that is as it was written."""
        path = self._last_good
        try:
            text = read_sealed(RealDisk(), path).decode()
        except FileNotFoundError:
            return None
        except (OSError, StorageError, ValueError) as error:
            log.error("%s", plain(error))
            return None
        return parse_manifest(path, text, *known)
