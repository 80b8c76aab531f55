"""Imports without what they would import besides."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(name: str) -> Iterator[None]:
    """Inside, an optional library that is not loaded yet counts as not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # Python's own sign for it
    try:
        yield
    finally:
        del sys.modules[name]
