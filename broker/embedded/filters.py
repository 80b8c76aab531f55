"""The subscriptions by topic filter."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator

from amqtt.session import Session


class Filters(dict[str, list[tuple[Session, int]]]):
    """The subscriptions by filter, with those that have wildcards known apart.

    Replaces: amqtt loops over its dictionary while other connections change it, and now and then a
    connect fails with "dictionary changed size during iteration"; and it compares every message
    with every filter. Iteration here is over a snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wild: dict[str, None] = {}

    def __setitem__(self, key: str, value: list[tuple[Session, int]]) -> None:
        if "+" in key or "#" in key:
            self._wild[key] = None
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._wild.pop(key, None)
        super().__delitem__(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(super().__iter__()))

    def items(self) -> ItemsView[str, list[tuple[Session, int]]]:  # type: ignore[override]
        """Return all of them as they are now."""
        return dict(super().items()).items()

    def __repr__(self) -> str:
        return f"<{len(self)} filters>"  # amqtt formats all of them at every SUBSCRIBE

    def clear(self) -> None:
        """Forget all of them."""
        self._wild.clear()
        super().clear()

    def may_match(self, topic: str) -> list[str]:
        """Return the filters that a topic may match: itself, and those with wildcards."""
        found = list(self._wild)
        if topic in self:
            found.append(topic)
        return found
