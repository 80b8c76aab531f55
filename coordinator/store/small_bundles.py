"""Small artifacts that the ledger keeps: files are made of them, of those that wait together."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from coordinator.core.effects import BundleFiled, BundleRefused, StoreBundle
from coordinator.store.store import Store, Whole

log = logging.getLogger("fleet.coordinator")

MAX_TOGETHER: Final = 64  # each is an open file
OVERHEAD_BYTES: Final = 1024  # of one that waits, whatever its size
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024  # those that are being stored among them


class SmallBundles:
    """What waits to be a file, up to `MAX_WAITING_BYTES`. `put` brings an event to the next turn.

    `background` has a slow function run elsewhere, one at a time.
    """

    def __init__(
        self,
        store: Store,
        put: Callable[[BundleFiled | BundleRefused], object],
        background: Callable[[Callable[[], None]], object],
    ) -> None:
        self._store = store
        self._put = put
        self._background = background
        self._waiting: deque[StoreBundle] = deque()
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._is_full = False

    def add(self, effect: StoreBundle) -> None:
        """Have a file made; `BundleFiled` or `BundleRefused` tells how that went.

        Where too much waits, the disk hangs: it is refused at once, and is in the ledger still.
        """
        if not self._hold(_held_bytes(effect)):
            if not self._is_full:
                log.error("small results wait for the disk of the store; the ledger keeps the next")
            self._is_full = True
            self._put(BundleRefused(effect.artifact_id))
            return
        self._is_full = False
        self._waiting.append(effect)
        self._background(self._store_some)

    def _hold(self, size_bytes: int) -> bool:
        with self._lock:
            if self._held_bytes + size_bytes > MAX_WAITING_BYTES:
                return False
            self._held_bytes += size_bytes
            return True

    def _store_some(self) -> None:
        """Store what waits; it is called once for each, so nothing stays."""
        count = min(len(self._waiting), MAX_TOGETHER)
        some = [self._waiting.popleft() for _ in range(count)]
        if not some:
            return
        refused = self._store.put(
            [Whole(one.artifact_id, one.data, one.model, one.mode) for one in some]
        )
        with self._lock:
            self._held_bytes -= sum(map(_held_bytes, some))
        for error in dict.fromkeys(map(str, refused.values())):
            log.error("%s; the ledger keeps what is to be stored there until that goes", error)
        for one in some:
            done = one.artifact_id not in refused
            self._put(BundleFiled(one.artifact_id) if done else BundleRefused(one.artifact_id))


def _held_bytes(effect: StoreBundle) -> int:
    return len(effect.data) + OVERHEAD_BYTES
