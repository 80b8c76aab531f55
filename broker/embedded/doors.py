"""How many connections there may be, of whom, before and after they have shown who they are."""

from __future__ import annotations

from collections import Counter

from broker.address import machine_of
from broker.embedded.settings import ServerSettings


class Doors:
    """Counts connections that wait outside, and those that were let in."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._waiting: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()

    def knock(self, address: str) -> bool:
        """Count a new connection; false if there are too many that have not said who they are.

        On loopback, without an identity, only the number of all connections counts.
        """
        limits = self._settings
        if self._waiting.total() + self._inside.total() >= limits.max_connections:
            return False
        block = machine_of(address)
        if limits.identity is not None and (
            self._waiting.total() >= limits.max_waiting
            or self._waiting[block] >= limits.max_waiting_per_address
        ):
            return False
        self._waiting[block] += 1
        return True

    def let_go(self, address: str) -> None:
        """Count off one that waits no more, let in or not."""
        _less(self._waiting, machine_of(address))

    def enter(self, name: str) -> bool:
        """Count one of `name` in; false if there are too many of that name."""
        limit = self._settings.max_connections_per_name
        if self._settings.identity is not None and self._inside[name] >= limit:
            return False
        self._inside[name] += 1
        return True

    def leave(self, name: str) -> None:
        """Count one out."""
        _less(self._inside, name)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
