"""Writes artifacts on threads of their own, so that a slow disk does not hold up the core.

The deciding thread hands over tasks; their outcomes come back as events, in order. The receivers'
windows limit what waits here of uploads, `MAX_WAITING` the small bundles. `background` does fsync,
the final check, and small bundles.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.errors import BadStream, FleetError, StorageError
from coordinator.core.effects import (
    BundleFiled,
    BundleRefused,
    DropPart,
    FinishPart,
    LeavePart,
    OpenPart,
    PartFailed,
    PartOpened,
    PartStored,
    PartWritten,
    StoreBundle,
    WriteChunk,
)
from coordinator.store.partfile import Part
from coordinator.store.store import NoRoomError, Store

log = logging.getLogger("fleet.coordinator")

TELL_BYTES: Final = 1024 * 1024
MAX_WAITING: Final = 1000  # small bundles; each has some KiB, and less than a chunk

Task = OpenPart | WriteChunk | FinishPart | DropPart | LeavePart
Told = PartOpened | PartWritten | PartFailed | PartStored | BundleFiled | BundleRefused


class Intake:
    """Everything that is on its way into the store."""

    def __init__(
        self,
        store: Store,
        put: Callable[[Told], object],
        writing: Callable[[Callable[[], None]], object],
        background: Callable[[Callable[[], None]], object],
    ) -> None:
        """`writing` runs a function on the one thread that writes, `background` on another."""
        self._store = store
        self._put = put
        self._writing = writing
        self._background = background
        self._tasks: deque[Task | None] = deque()
        self._lock = threading.Lock()
        self._busy = False
        self._bundles: deque[StoreBundle] = deque()
        # The writing thread's own:
        self._parts: dict[str, tuple[int, Part]] = {}
        self._written: dict[str, int] = {}

    def do(self, task: Task | None) -> None:
        """Have something done, after all that was handed over before; none: leave every part."""
        with self._lock:
            self._tasks.append(task)
            if self._busy:
                return
            self._busy = True
        self._writing(self._work)

    def store(self, bundle: StoreBundle) -> None:
        """Make a file of a bundle that the ledger keeps; `BundleFiled` or `BundleRefused` follows.

        It is refused at once where so many wait that the disk must hang; the ledger has it still.
        """
        if len(self._bundles) >= MAX_WAITING:
            self._put(BundleRefused(bundle.artifact_id))
            return
        self._bundles.append(bundle)
        self._background(self._store_waiting)

    def _store_waiting(self) -> None:
        while self._bundles:
            one = self._bundles.popleft()
            try:
                self._store.put(one.artifact_id, one.data, one.model, one.mode)
            except (BadStream, StorageError) as error:
                log.error("%s; the ledger keeps the bundle, and it is tried again", error)
                self._put(BundleRefused(one.artifact_id))
            else:
                self._put(BundleFiled(one.artifact_id))

    def close(self) -> None:
        """Leave every part file as it is, for a later go; the writing thread has ended."""
        self._tasks.clear()
        self._leave()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._busy = False
                    break
                task = self._tasks.popleft()
            match task:
                case WriteChunk():
                    self._write(task)
                case OpenPart():
                    self._open(task)
                case FinishPart():
                    self._tell(task.artifact_id)
                    if (whole := self._parts.pop(task.artifact_id, None)) is not None:
                        self._background(partial(self._finish, *whole, task))
                case DropPart() | LeavePart():
                    self._end(task)
                case None:
                    self._leave()
        for artifact_id in list(self._written):
            self._tell(artifact_id)

    def _end(self, task: DropPart | LeavePart) -> None:
        self._written.pop(task.artifact_id, None)
        ended = self._parts.pop(task.artifact_id, None)
        if ended is not None and isinstance(task, DropPart):
            ended[1].discard()
        elif ended is not None:
            ended[1].close()

    def _leave(self) -> None:
        self._written.clear()
        while self._parts:
            self._parts.popitem()[1][1].close()

    def _open(self, task: OpenPart) -> None:
        self._written.pop(task.artifact_id, None)
        if (earlier := self._parts.pop(task.artifact_id, None)) is not None:
            earlier[1].close()
        try:
            part, have = self._store.open_part(task.artifact_id, task.size_bytes, task.chunk_bytes)
        except FleetError as error:
            log.error("%s", error)
            lack = error.lack if isinstance(error, NoRoomError) else None
            self._put(PartFailed(task.artifact_id, task.part, str(error), no_room=lack))
            return
        self._parts[task.artifact_id] = (task.part, part)
        self._put(PartOpened(task.artifact_id, have, task.part))

    def _write(self, task: WriteChunk) -> None:
        if task.artifact_id not in self._parts:
            return
        number, part = self._parts[task.artifact_id]
        try:
            part.write(task.index, task.data)
        except FleetError as error:
            log.error("%s", error)
            del self._parts[task.artifact_id]
            part.close()
            self._put(PartFailed(task.artifact_id, number, str(error)))
            return
        written = self._written.get(task.artifact_id, 0) + len(task.data)
        self._written[task.artifact_id] = written
        if written >= TELL_BYTES:
            self._tell(task.artifact_id)

    def _tell(self, artifact_id: str) -> None:
        written = self._written.pop(artifact_id, 0)
        if written and artifact_id in self._parts:
            self._put(PartWritten(artifact_id, self._parts[artifact_id][0], written))

    def _finish(self, number: int, part: Part, task: FinishPart) -> None:
        try:
            self._store.finish(part, task.model, task.mode)
        except BadStream as error:
            part.close()
            log.warning("artifact %s: %s", task.artifact_id[:12], error)
            self._put(PartFailed(task.artifact_id, number, str(error), corrupt=True))
        except StorageError as error:
            part.close()
            log.error("%s", error)
            self._put(PartFailed(task.artifact_id, number, str(error)))
        else:
            self._put(PartStored(task.artifact_id, part.size_bytes))
