"""The identifiers that a client gives its subscriptions, and their messages bear (3.8.2)."""

from __future__ import annotations

from broker.embedded.subscriptions import Subscriptions


class Identifiers:
    """Those of one session, by filter. A client of which none has any is not asked."""

    def __init__(self) -> None:
        self._by_filter: dict[str, int] = {}
        self._filters: Subscriptions[int] = Subscriptions()  # whose subscribers are identifiers

    def give(self, filter_: str, identifier: int) -> None:
        """Take note of that of a subscription, or that it has none (0)."""
        before = self._by_filter.pop(filter_, 0)
        if before:
            self._filters.remove(filter_, before)
        if identifier:
            self._by_filter[filter_] = identifier
            self._filters.add(filter_, identifier, 0)

    def of_filter(self, filter_: str) -> tuple[int, ...]:
        """Return that of one subscription."""
        identifier = self._by_filter.get(filter_)
        return () if identifier is None else (identifier,)

    def of_topic(self, topic: str) -> tuple[int, ...]:
        """Return those of all subscriptions that a message comes by, each once."""
        return tuple(self._filters.matching(topic))
