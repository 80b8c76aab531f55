"""A TCP proxy between the fleet and its broker that can end, refuse, stall and slow connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Final

from tests.harness.brokers import free_port

_BLOCK_BYTES: Final = 16 * 1024
_POLL_S: Final = 0.2
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST, and what is unsent is gone


class Proxy:
    """Listens on a port of its own; passes bytes on to a port of this machine."""

    def __init__(self, target_port: int, address: str = "127.0.0.1") -> None:
        self._target_port = target_port
        self._address = address
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._taking = threading.Event()
        self._taking.set()
        self._stopped = threading.Event()
        self.bytes_a_second: float | None = None
        # No port that the system gives to connections: while this refuses, it may not be taken.
        self.port = free_port()
        self._listener = self._listen()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"mqtt://{self._address}:{self.port}"

    def cut(self) -> None:
        """End every connection in order (FIN), without a goodbye."""
        for one in self._take_all():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset every connection (RST)."""
        for one in self._take_all():
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RD)  # sends nothing, and ends the waits of its pumps

    def refuse(self) -> None:
        """Reset every connection, and have new ones refused."""
        self._taking.clear()
        self._thread.join(5.0)
        self.reset()

    def take(self) -> None:
        if not self._taking.is_set():
            self._taking.set()
            self._listener = self._listen()
            self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
            self._thread.start()

    def stall(self) -> None:
        """Let nothing pass, no end either, and let nobody know."""
        self._flowing.clear()

    def flow(self) -> None:
        self.bytes_a_second = None
        self._flowing.set()

    def stop(self) -> None:
        self._stopped.set()
        self.flow()
        self.cut()
        self._thread.join(5.0)

    def _listen(self) -> socket.socket:
        listener = socket.create_server((self._address, self.port))
        listener.settimeout(_POLL_S)
        return listener

    def _accept(self) -> None:
        with self._listener:
            while self._taking.is_set() and not self._stopped.is_set():
                with contextlib.suppress(OSError):
                    near, _ = self._listener.accept()
                    self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target_port), 5.0)
        except OSError:
            near.close()
            return
        for one in (near, far):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            passes = True
            while passes:
                data = source.recv(_BLOCK_BYTES)
                self._flowing.wait()
                if (rate := self.bytes_a_second) is not None:
                    time.sleep(len(data) / rate)
                sink.sendall(data)
                passes = bool(data)
        with self._lock:
            self._open -= {source, sink}
        for one in (source, sink):
            with contextlib.suppress(OSError):
                if not one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER):
                    one.shutdown(socket.SHUT_RDWR)
                else:
                    one.shutdown(socket.SHUT_RD)
            one.close()

    def _take_all(self) -> set[socket.socket]:
        with self._lock:
            sockets, self._open = self._open, set()
        return sockets
