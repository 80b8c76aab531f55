"""Why a program, a dataset or an input cannot be used: the exception of both rooms."""

from __future__ import annotations

from typing import Any

from broker.errors import FleetError
from broker.protocol.messages import Fault, FaultCode


class Unusable(FleetError):  # noqa: N818 - what it is
    """It cannot be used; `fault` says why."""

    def __init__(self, code: FaultCode, **figures: Any) -> None:
        """Take the figures of a `Fault`."""
        super().__init__()
        self.fault = Fault(code=code, **figures)

    def __str__(self) -> str:
        """Return the code and the figures, for a log."""
        figures = self.fault.told()
        code = str(figures.pop("code"))
        return ", ".join([code, *(f"{name} {value}" for name, value in figures.items())])
