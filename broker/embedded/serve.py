"""Runs the embedded broker until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from broker.embedded.broker import EmbeddedBroker
from broker.embedded.settings import ServerSettings

STOP_TIMEOUT_S: Final = 5.0
SPARE_FILES: Final = 256


async def serve(
    settings: ServerSettings, ready: Callable[[int, int | None], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; `ready` is given the port, and that of websockets if there is one.

    Raises `LinkError` if it cannot, `ConfigError` for an address or an identity that is none.
    """
    settings.check()
    _raise_file_limit(settings.max_connections + SPARE_FILES)
    broker = EmbeddedBroker(settings)
    await broker.start()
    ready(broker.port, broker.websocket_port)
    await stop.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(broker.shutdown(), STOP_TIMEOUT_S)


def _raise_file_limit(wanted: int) -> None:
    """Allow for as many connections as there may be, or strangers could take all there are."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
