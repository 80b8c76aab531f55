"""The door at which Prometheus asks: a very small HTTP server, bounded in every way.

It answers `GET /metrics` and nothing else, one request a connection. Each connection has a thread
of at most `CONNECTIONS`, and `DEADLINE_S` from its first byte to its last. Where it listens
for this machine alone, a name of somebody else's in `Host` is refused: that may be made to point at
this machine (DNS rebinding), and the scripts of its pages would then read along.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from broker.errors import ConfigError

log = logging.getLogger("fleet.metrics")

CONNECTIONS: Final = 8
DEADLINE_S: Final = 5.0
MAX_REQUEST_BYTES: Final = 8192
_REASONS: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
                   405: "Method Not Allowed", 503: "Service Unavailable"}  # fmt: skip
_NOT_OURS: Final = (
    "these metrics are for this machine alone: ask for them by its address or as localhost;"
    " behind a proxy, see docs/metrics.md\n"
)
_HINT: Final = "write it as HOST:PORT, such as 127.0.0.1:9464"


@dataclass(frozen=True, slots=True)
class Door:
    """Where to listen."""

    host: str
    port: int


def parse_door(text: str, *, plain: bool, source: str = "metrics") -> Door:
    """Return the address in HOST:PORT.

    Raises `ConfigError`, which names `source`, for what is none, and for one beyond this machine
    unless that is meant (`plain`).
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{source}: {text!r} is no address; {_HINT}")
    if not plain and not _is_loopback(host):
        raise ConfigError(
            f"{source}: {text!r} is beyond this machine, where everybody may read them, without"
            " TLS; have Prometheus scrape 127.0.0.1, or set metrics_plain = true on a network"
            " that you trust"
        )
    return Door(host, int(port))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Scrapes:
    """Serves one text. `text` is called for each request, on its thread; it may raise TimeoutError.

    Raises `ConfigError` when the address cannot be listened on.
    """

    def __init__(self, door: Door, text: Callable[[], str], content_type: str) -> None:
        """Listen; `start` begins to answer."""
        self._text = text
        self._is_private = _is_loopback(door.host)
        self._type = content_type
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._stopping = threading.Event()
        family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
        try:
            self._socket = socket.create_server((door.host, door.port), family=family, backlog=16)
        except OSError as error:
            raise ConfigError(
                f"metrics: {door.host}:{door.port}: {error.strerror or error}; choose another"
                " address in [coordinator] metrics"
            ) from None
        self._socket.settimeout(0.5)  # to see now and then whether to stop
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="fleet-metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more; what is being answered is."""
        self._stopping.set()
        self._socket.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._stopping.wait(0.5):  # out of descriptors, for one
                    log.warning("metrics: %s", error.strerror or error)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        end_s = time.monotonic() + DEADLINE_S
        try:
            with connection, contextlib.suppress(OSError):
                answer = self._answer(_head(connection, end_s))
                connection.settimeout(max(0.01, end_s - time.monotonic()))
                connection.sendall(answer)
        finally:
            self._room.release()

    def _answer(self, head: bytes) -> bytes:
        request, *fields = head.split(b"\r\n")
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if not rest.partition(b" ")[2].startswith(b"HTTP/1."):
            return self._response(400, "no HTTP request\n")
        if self._is_private and not all(map(_is_own_name, _hosts(fields))):
            return self._response(403, _NOT_OURS)
        if path != b"/metrics":
            return self._response(404, "the metrics are at /metrics\n")
        if method not in {b"GET", b"HEAD"}:
            return self._response(405, "metrics are only read\n")
        try:
            text = self._text()
        except TimeoutError:
            return self._response(503, "the coordinator is busy\n")
        return self._response(200, text, is_head=method == b"HEAD")

    def _response(self, status: int, text: str, *, is_head: bool = False) -> bytes:
        body = text.encode()
        kind = self._type if status == 200 else "text/plain; charset=utf-8"
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if is_head else body)


def _hosts(fields: Iterable[bytes]) -> Iterator[str]:
    """Yield by what names it was asked for, without the ports."""
    for field in fields:
        name, _, value = field.partition(b":")
        if name.strip().lower() == b"host":
            host = value.strip().decode("latin-1").lower()
            yield host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]


def _is_own_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host.removesuffix(".") == "localhost"
    return True  # nobody can make an address point elsewhere


def _head(connection: socket.socket, end_s: float) -> bytes:
    """Return the request's head, when it has come whole. Raises OSError when that is too long."""
    data = b""
    while b"\r\n\r\n" not in data:
        left_s = end_s - time.monotonic()
        if left_s <= 0 or len(data) > MAX_REQUEST_BYTES:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(4096)
        if not part:
            raise ConnectionResetError
        data += part
    return data.partition(b"\r\n\r\n")[0]
