"""An operator's client that asks a core, with no broker between."""

from __future__ import annotations

from typing import Any

from broker.protocol import messages as m
from coordinator.client.client import OperatorClient
from tests.harness.coordinator import Fleet


class _Client:
    """See the module; `attempts` are what is over."""

    pages, host_pages = OperatorClient.pages, OperatorClient.host_pages
    list_workers = OperatorClient.list_workers

    def __init__(self, fleet: Fleet, attempts: tuple[Any, ...]) -> None:
        self._fleet, self._attempts = fleet, attempts

    def ask(self, request: Any) -> Any:
        """The data of the answer."""
        if isinstance(request, m.AskAttempts):
            return {"attempts": [*self._attempts], "next": None}
        return self._fleet.asks(request).data


def client_of(fleet: Fleet, *attempts: Any) -> Any:
    """Return such a client."""
    return _Client(fleet, attempts)
