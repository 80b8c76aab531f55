"""Small artifacts that came with their reports: those that wait are stored together."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.errors import BadStream
from coordinator.effects import PartFailed, PartStored, StoreBundle
from coordinator.store import Store, Whole

log = logging.getLogger("fleet.coordinator")

MAX_TOGETHER: Final = 64  # each is an open file


class SmallBundles:
    """What waits to be stored. `put` brings an event to the next turn.

    `background` has a slow function run elsewhere, one at a time.
    """

    def __init__(
        self,
        store: Store,
        put: Callable[[PartStored | PartFailed], object],
        background: Callable[[Callable[[], None]], object],
    ) -> None:
        self._store = store
        self._put = put
        self._background = background
        self._waiting: deque[StoreBundle] = deque()

    def add(self, effect: StoreBundle) -> None:
        """Have an artifact stored; `PartStored` or `PartFailed` tells how that went."""
        self._waiting.append(effect)
        self._background(self._store_some)

    def _store_some(self) -> None:
        """Store what waits; it is called once for each, so nothing stays."""
        count = min(len(self._waiting), MAX_TOGETHER)
        some = [self._waiting.popleft() for _ in range(count)]
        if not some:
            return
        refused = self._store.put(
            [Whole(one.artifact_id, one.data, one.model, one.mode) for one in some]
        )
        for one in some:
            error = refused.get(one.artifact_id)
            if error is None:
                self._put(PartStored(one.artifact_id, len(one.data)))
                continue
            log.warning("artifact %s: %s", one.artifact_id[:12], error)
            corrupt = isinstance(error, BadStream)
            self._put(PartFailed(one.artifact_id, str(error), corrupt=corrupt))
