"""A TCP proxy between the fleet and its broker, which can cut, stall and slow every connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final

_BLOCK_BYTES: Final = 16 * 1024
_POLL_S: Final = 0.2


class Proxy:
    """Listens on a port of its own; passes bytes on to a broker's port."""

    def __init__(self, target_port: int, address: str = "127.0.0.1") -> None:
        """Begin to listen on an address of this machine."""
        self._target_port = target_port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._stopped = threading.Event()
        self.bytes_a_second: float | None = None
        self._listener = socket.create_server((address, 0))
        self._listener.settimeout(_POLL_S)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break every connection, without a goodbye."""
        with self._lock:
            sockets, self._open = self._open, set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Let nothing pass, and let nobody know."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let everything pass, at full speed."""
        self.bytes_a_second = None
        self._flowing.set()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self.flow()
        self.cut()
        self._thread.join(5.0)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
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
            while data := source.recv(_BLOCK_BYTES):
                self._flowing.wait()
                if (rate := self.bytes_a_second) is not None:
                    time.sleep(len(data) / rate)
                sink.sendall(data)
        with self._lock:
            self._open -= {source, sink}
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
