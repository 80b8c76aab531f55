"""How much each name has had retained, and how much it may."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from broker.acl import Role


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one name may have retained."""

    topics: int
    size_bytes: int


# A retained row for every job of a large plan; without an identity, everybody's together.
COORDINATOR: Final = Allowance(200_000, 256 * 1024 * 1024)
ANYBODY: Final = ""


class RetainedQuota:
    """Who had what retained. A topic counts for whoever wrote it last.

    Replaces: amqtt keeps as many retained messages as anybody cares to send.
    """

    def __init__(self, others: Allowance) -> None:
        self._others = others
        self._owners: dict[str, tuple[str, int]] = {}
        self._topics: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def take(self, name: str, topic: str, size_bytes: int) -> bool:
        """Book a retained message for `name`; false, and nothing booked, if it has too much."""
        allowance = COORDINATOR if name in {Role.COORDINATOR, ANYBODY} else self._others
        owner, before_bytes = self._owners.get(topic, (None, 0))
        mine = owner == name
        topics = self._topics[name] + (not mine)
        total_bytes = self._bytes[name] + size_bytes - (before_bytes if mine else 0)
        if topics > allowance.topics or total_bytes > allowance.size_bytes:
            return False
        self.forget(topic)
        self._owners[topic] = (name, size_bytes)
        self._topics[name] += 1
        self._bytes[name] += size_bytes
        return True

    def forget(self, topic: str) -> None:
        """Book off what is retained no more."""
        name, size_bytes = self._owners.pop(topic, (None, 0))
        if name is None:
            return
        self._topics[name] -= 1
        self._bytes[name] -= size_bytes
        if not self._topics[name]:
            del self._topics[name], self._bytes[name]
