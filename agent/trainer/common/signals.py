"""SIGTERM: at once, or, where work would be lost, at the next place that is good for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from agent.trainer.common.errors import InterruptedBySignalError


class Interruption:
    """Whether somebody has asked this process to end."""

    def __init__(self) -> None:
        """Nobody has."""
        self.asked = False
        self._deferred = False

    def install(self) -> None:
        """Take SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, SIGTERM only sets `asked`; whoever is inside ends soon by himself."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def check(self) -> None:
        """End here if that was asked for. Raises InterruptedBySignalError."""
        if self.asked:
            raise InterruptedBySignalError

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self._deferred:
            raise InterruptedBySignalError
