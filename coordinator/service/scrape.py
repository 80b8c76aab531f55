"""The port at which Prometheus asks; only with metrics.

A connection that is silent for `DEADLINE_S` is closed. On a loopback address, a `Host` header with
somebody else's name is refused: it may be made to point at this machine (DNS rebinding), and the
scripts of its pages would then read the answer.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.errors import ConfigError
from broker.system.address import is_loopback, parse_listen
from coordinator.faces.metrics import Tally

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SETTING: Final = "[coordinator] metrics"
DEADLINE_S: Final = 5.0

Address = tuple[str, int]
Readings = Sequence[Metric]


def parse_address(text: str, *, plain: bool) -> Address:
    """Return the host and the port in HOST:PORT.

    Raises `ConfigError` for what is none, and for an address beyond this machine unless that is
    meant (`plain`).
    """
    host, port = parse_listen(text, SETTING, "127.0.0.1:9464")
    if not plain and not is_loopback(host):
        raise ConfigError(
            f"{SETTING}: {text!r} is beyond this machine, where everybody may read them, without"
            " TLS; have Prometheus scrape 127.0.0.1, or set metrics_plain = true on a network"
            " that you trust"
        )
    return host, port


class Scrapes(Collector):
    """Serves `GET /metrics`.

    `ask` has the deciding thread `metrics.read` and give the result to a future. Raises
    `ConfigError` when the address cannot be listened on.
    """

    def __init__(self, address: Address, ask: Callable[[Future[Readings]], object]) -> None:
        """Listen; `start` begins to answer."""
        self.tally = Tally()
        self._ask = ask
        self._is_private = is_loopback(address[0])
        registry = CollectorRegistry()
        registry.register(self)
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        try:
            self._server = _Server(address)
        except OSError as error:
            raise ConfigError(
                f"metrics: {address[0]}:{address[1]}: {error.strerror or error}; choose another"
                " address in [coordinator] metrics"
            ) from None
        self._server.set_app(self._answer)
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(
            target=self._server.serve_forever, name="fleet-metrics", daemon=True
        ).start()

    def stop(self) -> None:
        """Listen no more; what is being answered is."""
        self._server.shutdown()
        self._server.server_close()

    def collect(self) -> Iterable[Metric]:
        """Return the readings. Raises TimeoutError when the coordinator is busy."""
        readings: Future[Readings] = Future()
        self._ask(readings)
        return readings.result(DEADLINE_S - 1)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        why = self._refusal(environ)
        if not why:
            try:
                return self._metrics(environ, start_response)
            except TimeoutError:
                why = "503 the coordinator is busy"
        start_response(why, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why}\n".encode()]

    def _refusal(self, environ: WSGIEnvironment) -> str:
        host = environ.get("HTTP_HOST")
        if self._is_private and host is not None and not _is_own_name(host):
            return (
                "403 these metrics are for this machine alone: ask for them by its address or as"
                " localhost; behind a proxy, see docs/reference/metrics.md"
            )
        return "" if environ["PATH_INFO"] == "/metrics" else "404 the metrics are at /metrics"


class _Handler(WSGIRequestHandler):
    timeout = DEADLINE_S

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


class _Server(ThreadingWSGIServer):
    def __init__(self, address: Address) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that has gone, or was silent."""


def _is_own_name(host: str) -> bool:
    """Whether a `Host` header cannot be made to point elsewhere: an address, or localhost."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name.removesuffix(".") == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
