"""The retained messages, and how much of them each name may have."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from broker.embedded.message import Message
from broker.protocol.acl import matches
from broker.protocol.topic_table import Role


class Allowance(NamedTuple):
    """How much one name may have retained."""

    topics: int
    size_bytes: int


# A row for every job of a large plan; without an identity everybody shares it.
COORDINATOR: Final = Allowance(200_000, 256 * 1024 * 1024)
ANYBODY: Final = ""


class Retained:
    """The retained messages by topic. One counts for the name that wrote it last."""

    def __init__(self, others: Allowance) -> None:
        self._others = others
        self._kept: dict[str, tuple[str, Message]] = {}
        self._topics: Counter[str] = Counter()  # by name
        self._bytes: Counter[str] = Counter()
        self._mortal: set[str] = set()  # topics of what expires

    def __len__(self) -> int:
        """How many there are."""
        return len(self._kept)

    def keep(self, name: str, message: Message) -> bool:
        """Retain a message for `name`; false, and nothing is retained there, if it has too much."""
        most = COORDINATOR if name in {Role.COORDINATOR, ANYBODY} else self._others
        topic, size_bytes = message.topic, len(message.topic) + message.size_bytes
        self._count_off(topic)
        is_full = self._topics[name] >= most.topics
        if is_full or self._bytes[name] + size_bytes > most.size_bytes:
            self._kept.pop(topic, None)  # what is retained there is out of date
            return False
        self._kept[topic] = name, message
        self._topics[name] += 1
        self._bytes[name] += size_bytes
        if message.expires_s is not None:
            self._mortal.add(topic)
        return True

    def clear(self, topic: str) -> None:
        """Retain nothing on a topic."""
        self._count_off(topic)
        self._kept.pop(topic, None)

    def _count_off(self, topic: str) -> None:
        self._mortal.discard(topic)
        if topic in self._kept:
            name, message = self._kept[topic]
            self._topics[name] -= 1
            self._bytes[name] -= len(topic) + message.size_bytes

    def clear_expired(self, now_s: float) -> None:
        """Let go of the messages that have expired."""
        for topic in [one for one in self._mortal if self._kept[one][1].is_over(now_s)]:
            self.clear(topic)

    def get(self, topic: str) -> Message | None:
        """Return what is retained on a topic."""
        return self._kept.get(topic, (ANYBODY, None))[1]

    def under(self, filter_: str) -> list[str]:
        """Return the topics that match a filter."""
        literal = filter_.partition("+")[0].partition("#")[0]
        if literal == filter_:
            return [filter_] if filter_ in self._kept else []
        literal = literal.removesuffix("/")  # `a/#` matches `a`, too
        return [one for one in self._kept if one.startswith(literal) and matches(filter_, one)]
