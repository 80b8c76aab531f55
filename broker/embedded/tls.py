"""What asyncio's TLS takes for each connection, and need not."""

from __future__ import annotations

import asyncio
from typing import Any, Final

READ_BYTES: Final = 256 * 1024  # asyncio's own: what it asks a socket for at once

_shared = bytearray(READ_BYTES)
_view = memoryview(_shared)


def share_buffer(loop: asyncio.AbstractEventLoop, transport: Any) -> None:
    """Have a connection whose handshake is done read into one buffer with all others.

    asyncio gives each one of 256 KiB: a host took 326 KiB, now 76 to 112. What was read is taken
    out of it before anything else is read, on a loop that waits for sockets. On another (Windows)
    reads are under way at the same time, and each keeps its own; so it is where asyncio looks
    different.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if isinstance(loop, asyncio.SelectorEventLoop) and hasattr(protocol, "_ssl_buffer_view"):
        for name, value in (("_ssl_buffer", _shared), ("_ssl_buffer_view", _view)):
            setattr(protocol, name, value)
