"""The ledger and the store as they are, with what metrics count of them; used only with metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.errors import BadStream, StorageError
from coordinator.faces.tally import Tally
from coordinator.jobs.jobs import Change
from coordinator.jobs.records import Record
from coordinator.ledger.ledger import Ledger
from coordinator.store.partfile import Part
from coordinator.store.store import Store, StoredInfo, Whole


class MeteredLedger(Ledger):
    """A ledger whose commits are timed and counted."""

    def __init__(self, path: Path, tally: Tally, note: Callable[[int], None]) -> None:
        """Open it, as `Ledger` does."""
        super().__init__(path, note=note)
        self._tally = tally

    def commit(self, changes: Sequence[Change | Record]) -> None:
        """Commit, see `Ledger.commit`."""
        begun_s = time.perf_counter()
        try:
            super().commit(changes)
        except StorageError:
            self._tally.commit_failures += 1
            raise
        if changes:
            self._tally.on_commit(changes, time.perf_counter() - begun_s)


class MeteredStore(Store):
    """A store that counts what comes whole."""

    def __init__(self, state: Path, tally: Tally, reserve_bytes: int) -> None:
        """Open it, as `Store` does."""
        super().__init__(state, reserve_bytes=reserve_bytes)
        self._tally = tally

    def finish(self, part: Part, model: str, mode: str) -> StoredInfo:
        """Take a part into the store, see `Store.finish`; this is the hasher's thread."""
        info = super().finish(part, model, mode)
        self._tally.on_stored(info.size_bytes)
        return info

    def put(self, bundles: Sequence[Whole]) -> dict[str, BadStream | StorageError]:
        """Put artifacts into the store, see `Store.put`; this is the hasher's thread."""
        refused = super().put(bundles)
        for one in bundles:
            if one.artifact_id not in refused:
                self._tally.on_stored(len(one.data))
        return refused
