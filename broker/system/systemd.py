"""Tells systemd of a program's life, by sd_notify(3): datagrams of `NAME=VALUE` lines.

Without `NOTIFY_SOCKET` nothing is sent. A service manager that does not listen is no fault.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import MutableMapping
from typing import Final, Self

_ADDRESS: Final = "NOTIFY_SOCKET"
_INTERVAL: Final = "WATCHDOG_USEC"
_WATCHED: Final = "WATCHDOG_PID"
_PINGS_AN_INTERVAL: Final = 3  # sd_watchdog_enabled(3) recommends two; one may come late
_MAX_STATUS_CHARS: Final = 300


class Notifier:
    """Tells the service manager that a program is ready, alive, reloading, or ending.

    `address` is a path, or `@` and the name of an abstract socket. `alive` has to be called within
    `watchdog_s`, by the loop that does the work: `ping_s` are the seconds between two such calls,
    none when nobody waits for them.
    """

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        self._address = ""
        self._socket: socket.socket | None = None
        if address and address[0] in "/@" and hasattr(socket, "AF_UNIX"):
            self._address = "\0" + address[1:] if address[0] == "@" else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        watched = self._socket is not None and watchdog_s is not None
        self.ping_s = watchdog_s / _PINGS_AN_INTERVAL if watched and watchdog_s else None
        self._next_s = float("-inf")

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> Self:
        """Return what `environment` asks for, and take it out, so that no child inherits it."""
        address = environment.pop(_ADDRESS, None)
        interval = environment.pop(_INTERVAL, "")
        watched = environment.pop(_WATCHED, "")
        ours = watched in {"", str(pid)} and interval.isascii() and interval.isdecimal()
        return cls(address, int(interval) / 1e6 if ours and int(interval) else None)

    def ready(self, status: str = "") -> None:
        """Say that the program serves, or that it has reloaded."""
        self._send("READY=1", status)

    def status(self, text: str) -> None:
        """Say in a line, for people, what the program does."""
        self._send("", text)

    def reloading(self, mono_s: float) -> None:
        """Say that the configuration is being read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(mono_s * 1e6)}")

    def stopping(self) -> None:
        """Say that the program is ending."""
        self._send("STOPPING=1", "stopping")

    def alive(self, mono_s: float) -> None:
        """Give a sign of life, if one is due."""
        if self.ping_s is not None and mono_s >= self._next_s:
            self._next_s = mono_s + self.ping_s
            self._send("WATCHDOG=1")

    def wait_s(self, timeout_s: float | None, mono_s: float) -> float | None:
        """Return for how long the loop may wait that wants to wait for `timeout_s`."""
        if self.ping_s is None:
            return timeout_s
        due_s = max(0.0, self._next_s - mono_s)
        return due_s if timeout_s is None else min(timeout_s, due_s)

    def close(self) -> None:
        """Close the socket; nothing is sent any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str, status: str = "") -> None:
        if self._socket is None:
            return
        line = "STATUS=" + " ".join(status.split())[:_MAX_STATUS_CHARS] if status else ""
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(filter(None, (state, line))).encode(), self._address)
