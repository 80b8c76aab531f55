"""How many connections there may be, of whom, before and after they have shown who they are."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address, ip_address

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
        block = _block(address)
        if limits.identity is not None and (
            self._waiting.total() >= limits.max_waiting
            or self._waiting[block] >= limits.max_waiting_per_address
        ):
            return False
        self._waiting[block] += 1
        return True

    def let_go(self, address: str) -> None:
        """Count off one that waits no more, let in or not."""
        _less(self._waiting, _block(address))

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


def _block(address: str) -> str:
    """Return who an address is: with IPv6, everything in one /64 is one machine."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"{int(parsed) >> 64:x}/64"
    return str(parsed)
