"""The web page's server: one process, one event loop, one connection to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# Before NiceGUI is imported: nothing of it is kept in the folder where somebody happens to be.
os.environ.setdefault("NICEGUI_STORAGE_PATH", str(Path(tempfile.gettempdir()) / "fleet-no-storage"))

import uvicorn
from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from broker.clock import Clock
from broker.errors import LocalError
from broker.system.address import why_not_here
from broker.system.process import end_with_parent
from coordinator.client.watcher import Watcher
from coordinator.web.artifacts import Artifacts, Fetch
from coordinator.web.frame import Site
from coordinator.web.hub import Hub
from coordinator.web.pages import (
    curves_page,
    host_page,
    job_page,
    jobs_page,
    overview_page,
    timeline_page,
)
from coordinator.web.pages.overview_page import missing
from coordinator.web.routes import STATIC, routes
from coordinator.web.security import MAX_CONNECTIONS, MAX_OF_ONE, Connection, Guard, Sessions
from coordinator.web.settings import WebSettings

SCRIPTS: Final = ("page", "tables", "charts")  # in this order
STOP_S: Final = 2
HANDSHAKE_S: Final = 10.0
MAX_WEBSOCKET_BYTES: Final = 1024 * 1024


class _Server(uvicorn.Server):
    """Uvicorn, whose signals are ours: it would raise them again when it has ended.

    Its connections are ours as well, see `Connection`.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], most_of_one: int) -> None:
        super().__init__(config)
        self._ready = ready
        self._most_of_one = most_of_one

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for sock in sockets or ():
            server = await asyncio.get_running_loop().create_server(
                self._connection, sock=sock, ssl=self.config.ssl, backlog=self.config.backlog,
                ssl_handshake_timeout=HANDSHAKE_S if self.config.ssl else None,
            )  # fmt: skip
            self.servers.append(server)
        if self.started:
            self._ready()

    def _connection(self) -> Connection:
        return Connection(
            most_of_one=self._most_of_one, config=self.config, server_state=self.server_state,
            app_state=self.lifespan.state,
        )  # fmt: skip

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    settings: WebSettings,
    watcher: Callable[[Callable[[], None]], Watcher],
    fetch: Fetch,
    password: str | None,
    clock: Clock,
    ready: Callable[[int, Hub], None],
) -> None:
    """Serve until SIGINT or SIGTERM. `watcher(on_change)` makes the connection to the fleet.

    `ready(port, hub)` is called once it serves. Raises `LocalError` when it cannot listen.
    """
    folder = Path(tempfile.mkdtemp(prefix="fleet-dashboard-"))
    try:
        asyncio.run(_serve(settings, watcher, Artifacts(folder, fetch), password, clock, ready))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(
    settings: WebSettings,
    make_watcher: Callable[[Callable[[], None]], Watcher],
    artifacts: Artifacts,
    password: str | None,
    clock: Clock,
    ready: Callable[[int, Hub], None],
) -> None:
    sock = _bind(settings)
    hub = Hub(make_watcher, clock)
    sessions = Sessions(password if hub.is_operator() else None, lambda: secrets.token_urlsafe(32))
    site = Site(hub, sessions, settings, artifacts, clock)
    server = _Server(
        _config(application(site), settings),
        lambda: ready(sock.getsockname()[1], hub),
        # Behind a proxy everybody has its address.
        MAX_CONNECTIONS if settings.public_url else MAX_OF_ONE,
    )
    _on_signals(server)
    hub.start()
    try:
        await server.serve(sockets=[sock])
    finally:
        await asyncio.to_thread(hub.watcher.stop)


def application(site: Site) -> Guard:
    """Return the whole application."""
    inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, routes=routes(site))
    version = int(max(path.stat().st_mtime for path in STATIC.iterdir()))
    ui.add_head_html(
        f'<link rel="stylesheet" href="/fleet/fleet.css?{version}">'
        + "".join(f'<script src="/fleet/{name}.js?{version}"></script>' for name in SCRIPTS),
        shared=True,
    )
    for page in (overview_page, jobs_page, job_page, host_page, curves_page, timeline_page):
        page.register(site)
    ui.run_with(
        inner, root=missing(site), title="training fleet", favicon=STATIC / "icon.svg", dark=None,
        tailwind=False, language="en-US", show_welcome_message=False, binding_refresh_interval=None,
        reconnect_timeout=10.0,
        gzip_middleware_factory=None if site.settings.is_loopback() else _compressed,
    )  # fmt: skip
    pages_app.config.socket_io_js_transports = ["websocket"]
    return Guard(inner, site.settings, site.sessions, socket.gethostname(), site.clock)


def _compressed(app: ASGIApp) -> GZipMiddleware:
    """For a network; on this machine it costs more time than it saves."""
    return GZipMiddleware(app, minimum_size=2_000, compresslevel=3)


def _config(app: Guard, settings: WebSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        ws_max_size=MAX_WEBSOCKET_BYTES,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )


def _bind(settings: WebSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise LocalError(
            f"--listen {settings.host}:{settings.port}: {error.strerror or error}; "
            f"{why_not_here(error)} (port 0 takes a free one)"
        ) from None
    return sock


def _on_signals(server: _Server) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, end)
        except NotImplementedError:
            break  # Windows: Ctrl-C raises KeyboardInterrupt
    end_with_parent(lambda: loop.call_soon_threadsafe(end))
