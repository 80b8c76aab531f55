"""Who has subscribed to what, by the levels of the filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Subscriber = TypeVar("Subscriber")
MAX_LEVELS: Final = 64  # of a topic or a filter, each of which takes some hundred bytes

# What a subscription grants, in bits, so that those of several together are `a | b`.
QOS_GRANTS: Final = (0b00, 0b01, 0b11)  # at QoS 0, 1, 2
GRANTED_QOS: Final = (0, 1, 1, 2)  # by the two lowest bits
OWN: Final = 0b0100  # one's own messages, too
AS_PUBLISHED: Final = 0b1000  # with the retain flag that they came with
NUMBERED: Final = 0b1_0000  # with the identifier of the subscription


class _Node(Generic[Subscriber]):
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Node[Subscriber]] = {}
        self.here: dict[Subscriber, int] = {}


class Subscriptions(Generic[Subscriber]):
    """The subscriptions, found by a topic's levels.

    Replaces: amqtt compares every message with every filter, and loops over its dictionary while
    other connections change it, so that now and then a connect fails with "dictionary changed size
    during iteration". Each host has two filters with wildcards: with 1,000 hosts a message took
    1.3 ms to find its subscriber, here 1 us, however many there are.
    """

    def __init__(self) -> None:
        self._root: _Node[Subscriber] = _Node()
        self._count = 0

    def __len__(self) -> int:
        """How many there are: each filter of each subscriber counts."""
        return self._count

    def add(self, filter_: str, subscriber: Subscriber, grant: int) -> None:
        """Subscribe, or have the same subscription at another QoS (MQTT 3.1.1, 3.8.4-3)."""
        node = self._root
        for level in filter_.split("/"):
            below = node.below.get(level)
            if below is None:
                below = node.below[level] = _Node()
            node = below
        self._count += subscriber not in node.here
        node.here[subscriber] = grant

    def remove(self, filter_: str, subscriber: Subscriber) -> None:
        """Unsubscribe; nothing is left of it. It does not matter if there is no such one."""
        path: list[tuple[_Node[Subscriber], str]] = []
        node = self._root
        for level in filter_.split("/"):
            below = node.below.get(level)
            if below is None:
                return
            path.append((node, level))
            node = below
        if node.here.pop(subscriber, None) is None:
            return
        self._count -= 1
        for above, level in reversed(path):
            node = above.below[level]
            if node.here or node.below:
                break
            del above.below[level]

    def matching(self, topic: str) -> dict[Subscriber, int]:
        """Return who is to be sent a message on `topic`, each once, with all that is granted."""
        found: dict[Subscriber, int] = {}
        nodes = [self._root]
        wild = not topic.startswith("$")  # those match no wildcard at the start (4.7.2)
        for level in topic.split("/"):
            below: list[_Node[Subscriber]] = []
            for node in nodes:
                if wild:
                    if (rest := node.below.get("#")) is not None:
                        _join(found, rest.here)
                    if (any_ := node.below.get("+")) is not None:
                        below.append(any_)
                if (same := node.below.get(level)) is not None:
                    below.append(same)
            wild = True
            nodes = below
            if not nodes:
                return found
        for node in nodes:
            _join(found, node.here)
            if (rest := node.below.get("#")) is not None:
                _join(found, rest.here)  # `a/#` matches `a`, too
        return found


def _join(found: dict[Subscriber, int], more: dict[Subscriber, int]) -> None:
    for subscriber, grant in more.items():
        found[subscriber] = found.get(subscriber, 0) | grant


def is_deep(name: str) -> bool:
    """Tell whether a topic or a filter has more levels than are taken."""
    return name.count("/") >= MAX_LEVELS


def is_filter(name: str) -> bool:
    """Tell whether wildcards stand where they may (MQTT 3.1.1, 4.7.1)."""
    levels = name.split("/")
    return "#" not in "".join(levels[:-1]) and all(
        level in {"+", "#"} or not {"+", "#"} & set(level) for level in levels
    )


class _Place:
    __slots__ = ("below", "topic")

    def __init__(self) -> None:
        self.below: dict[str, _Place] = {}
        self.topic: str | None = None


class TopicTree:
    """Topics by their levels: those under a filter are found without a look at all others."""

    def __init__(self) -> None:
        self._root = _Place()

    def add(self, topic: str) -> None:
        """Take a topic in; it may be there already."""
        place = self._root
        for level in topic.split("/"):
            below = place.below.get(level)
            if below is None:
                below = place.below[level] = _Place()
            place = below
        place.topic = topic

    def remove(self, topic: str) -> None:
        """Take a topic out, one that is there."""
        path: list[tuple[_Place, str]] = []
        place = self._root
        for level in topic.split("/"):
            path.append((place, level))
            place = place.below[level]
        place.topic = None
        for above, level in reversed(path):
            place = above.below[level]
            if place.topic is not None or place.below:
                break
            del above.below[level]

    def under(self, filter_: str) -> Iterator[str]:
        """Give the topics that match a filter, the oldest of a level first.

        Some may come and go meanwhile.
        """
        levels = filter_.split("/")
        waiting = [(self._root, 0)]
        while waiting:
            place, at = waiting.pop()
            if at < len(levels) and levels[at] == "#":
                at = len(levels)  # and anything below
            if at >= len(levels):
                if place.topic is not None:
                    yield place.topic
                if levels[-1] == "#":
                    waiting += _below(place, is_root=place is self._root, at=at)
            elif levels[at] == "+":
                waiting += _below(place, is_root=not at, at=at + 1)
            elif (same := place.below.get(levels[at])) is not None:
                waiting.append((same, at + 1))


def _below(place: _Place, *, is_root: bool, at: int) -> list[tuple[_Place, int]]:
    return [  # the oldest last: it is taken first
        (below, at)
        for level, below in reversed(place.below.items())
        if not (is_root and level.startswith("$"))
    ]
