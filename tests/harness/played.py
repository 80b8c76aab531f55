"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


def played(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine, with its fixtures, on a loop of its own."""

    @functools.wraps(story)
    def test(**fixtures: Any) -> None:
        asyncio.run(story(**fixtures))

    return test
