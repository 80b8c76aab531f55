"""What people see of a view."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from coordinator.ui import terminal


def drawn(parts: Iterable[Any], width: int = 80) -> str:
    """Return the parts of a view as a window of so many columns shows them."""
    console = terminal.console()
    console.width, console.file = width, io.StringIO()
    terminal.put(console, parts)
    return console.file.getvalue()
