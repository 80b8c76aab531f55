"""Why an operator's request was not carried out."""

from __future__ import annotations

from typing import Any

from broker.errors import FleetError


class Unreachable(FleetError):  # noqa: N818 - a state of the world, not a mistake
    """The broker or the coordinator did not answer within the deadline."""


class NotDone(FleetError):  # noqa: N818 - see above
    """The coordinator refused, or did not find what was asked for.

    `data` is what it said, `code` one of `OperatorResponse`.
    """

    def __init__(self, message: str, data: Any = None, code: str = "refused") -> None:
        """Keep what the coordinator said."""
        super().__init__(message)
        self.data = data
        self.code = code
