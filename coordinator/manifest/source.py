"""The manifest of a coordinator: read when somebody asks; the last good one is kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.errors import StorageError, plain
from broker.system.files import RealDisk, read_sealed, write_sealed
from coordinator.jobs.causes import Cause
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.manifest_file import ManifestFile, text_of
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.reader import parse_manifest

log = logging.getLogger("fleet.coordinator")

LAST_GOOD: Final = "manifest.last-good.toml"
_PUSH: Final = (
    "programs and datasets are pushed to a fleet that runs: start it without --manifest, push what "
    "is lacking, then start it with --manifest"
)


class PlanFile:
    """The manifest that a coordinator was told of, if it was told of any."""

    def __init__(self, path: Path | None, state: Path) -> None:
        """Read nothing yet. `state` is the coordinator's folder."""
        self._path = path
        self._last_good = state / LAST_GOOD
        self._file = None if path is None else ManifestFile(path)

    def read(self, known: Catalogue) -> Plan | None:
        """Return the plan; none without a manifest. Raises `ManifestError`."""
        if self._path is None or self._file is None:
            return None
        text = text_of(self._path, self._file.read)
        plan = parse_manifest(self._path, text, *known)
        try:
            write_sealed(RealDisk(), self._last_good, text.encode())
        except OSError as error:
            words = "a restart will not find this manifest there"
            log.error("%s: %s; %s", self._last_good, plain(error), words)
        return plan

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

    def news(self, mono_s: float) -> Cause | None:
        """Return what is to be said of the file, as `ManifestFile.news`."""
        return None if self._file is None else self._file.news(mono_s)

    def was_read(self) -> None:
        """What was said of it holds no more."""
        if self._file is not None:
            self._file.was_read()

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
