"""Writes artifacts on threads of their own, so that a slow disk does not hold up the core.

The deciding thread hands over tasks; their outcomes come back as events, in order. The receivers'
windows limit what waits here. `background` does fsync, the final check, and small bundles.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial

from broker.errors import BadStream, FleetError, StorageError
from broker.stream.ranges import RangeSet
from coordinator.core import effects as fx
from coordinator.jobs.records import BundleKept
from coordinator.store.partfile import Part
from coordinator.store.store import NoRoomError, Store

log = logging.getLogger("fleet.coordinator")

Task = fx.OpenPart | fx.WriteChunk | fx.FinishPart | fx.DropPart | fx.LeavePart
Put = Callable[[fx.ShellEvent], object]
Submit = Callable[[Callable[[], None]], object]


class Intake:
    """Everything that is on its way into the store."""

    def __init__(
        self,
        store: Store,
        put: Put,
        writing: Submit,
        background: Submit,
    ) -> None:
        """`writing` runs a function on the one thread that writes, `background` on another."""
        self._store = store
        self._put = put
        self._writing = writing
        self._background = background
        self._parts: dict[str, tuple[int, Part]] = {}  # the writing thread's own

    def do(self, task: Task) -> None:
        """Have something done, after all that was handed over before."""
        self._writing(partial(self._perform, task))

    def leave(self) -> None:
        """Leave every part file as it is, for a later go, after all that was handed over."""
        self._writing(self.close)

    def store(self, bundle: BundleKept) -> None:
        """Make a file of a bundle that the ledger keeps; tell `BundleFiled` or `BundleRefused`."""
        self._background(partial(self._store_bundle, bundle))

    def close(self) -> None:
        """Leave every part file as it is; for the writing thread, or after its end."""
        while self._parts:
            self._parts.popitem()[1][1].close()

    def _store_bundle(self, one: BundleKept) -> None:
        try:
            self._store.put(one.artifact_id, one.data, one.model, one.mode)
        except (BadStream, StorageError) as error:
            log.error("%s; the ledger keeps the bundle, and it is tried again", error)
            self._put(fx.BundleRefused(one.artifact_id))
        else:
            self._put(fx.BundleFiled(one.artifact_id))

    def _perform(self, task: Task) -> None:
        if isinstance(task, fx.OpenPart):
            self._open(task)
            return
        number, part = self._parts.get(task.artifact_id, (0, None))
        if part is None:
            return  # it has failed, or was dropped
        if isinstance(task, fx.WriteChunk):
            self._write(number, part, task)
            return
        del self._parts[task.artifact_id]
        match task:
            case fx.FinishPart():
                self._background(partial(self._finish, number, part, task))
            case fx.DropPart():
                part.discard()
            case fx.LeavePart():
                part.close()

    def _open(self, task: fx.OpenPart) -> None:
        if (earlier := self._parts.pop(task.artifact_id, None)) is not None:
            earlier[1].close()
        try:
            part, have = self._store.open_part(task.artifact_id, task.size_bytes, task.chunk_bytes)
        except FleetError as error:
            log.error("%s", error)
            lack = error.lack if isinstance(error, NoRoomError) else None
            self._put(fx.PartFailed(task.artifact_id, task.part, no_room=lack))
            return
        self._parts[task.artifact_id] = (task.part, part)
        self._put(fx.PartOpened(task.artifact_id, have, task.part))

    def _write(self, number: int, part: Part, task: fx.WriteChunk) -> None:
        try:
            part.write(task.index, task.data)
        except FleetError as error:
            del self._parts[task.artifact_id]
            self._fail(number, part, error)
            return
        self._put(fx.PartWritten(task.artifact_id, number, len(task.data)))
        claimed = part.claim()
        if claimed is not None:
            self._background(partial(self._sync, part, claimed))

    def _sync(self, part: Part, claimed: RangeSet) -> None:
        with contextlib.suppress(StorageError):  # the next write tells, or the end
            part.sync(claimed)

    def _finish(self, number: int, part: Part, task: fx.FinishPart) -> None:
        try:
            self._store.finish(part, task.model, task.mode)
        except FleetError as error:
            self._fail(number, part, error)
        else:
            self._put(fx.PartStored(task.artifact_id, part.size_bytes))

    def _fail(self, number: int, part: Part, error: FleetError) -> None:
        log.error("%s", error)
        part.close()
        corrupt = isinstance(error, BadStream)
        self._put(fx.PartFailed(part.artifact_id, number, corrupt=corrupt))
