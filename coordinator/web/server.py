"""The web page's server: one process, one event loop, one connection to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

# Before NiceGUI is imported: nothing of it is kept in the folder where somebody happens to be.
os.environ.setdefault("NICEGUI_STORAGE_PATH", str(Path(tempfile.gettempdir()) / "fleet-no-storage"))

import uvicorn
from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware

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
    programs_page,
    timeline_page,
)
from coordinator.web.pages.overview_page import missing
from coordinator.web.routes import STATIC, routes
from coordinator.web.security import MAX_CONNECTIONS, MAX_OF_ONE, Connection, Guard, Sessions
from coordinator.web.settings import WebSettings

PAGES: Final = (
    overview_page, jobs_page, job_page, host_page, curves_page, timeline_page, programs_page
)  # fmt: skip
SCRIPTS: Final = ("page", "tables", "charts")  # in this order
STOP_S: Final = 2
MAX_WEBSOCKET_BYTES: Final = 1024 * 1024


class _Server(uvicorn.Server):
    """Uvicorn, whose signals are ours: it would raise them again when it has ended."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self.handle_exit)
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
    sock, hub = _bind(settings), Hub(watcher, clock)
    sessions = Sessions(password if hub.is_operator() else None)
    with tempfile.TemporaryDirectory(
        prefix="fleet-dashboard-", ignore_cleanup_errors=True
    ) as folder:
        site = Site(hub, sessions, settings, Artifacts(Path(folder), fetch), clock)
        asyncio.run(_serve(site, sock, ready))


async def _serve(site: Site, sock: socket.socket, ready: Callable[[int, Hub], None]) -> None:
    hub = site.hub

    def started() -> None:
        # Not sooner: NiceGUI's start-up walks through all objects (`gc.get_objects`).
        # CPython raises SystemError in another thread whose tuple is half made at that moment.
        hub.start()
        ready(sock.getsockname()[1], hub)

    server = _Server(_config(application(site), site.settings), started)
    loop = asyncio.get_running_loop()
    end_with_parent(lambda: loop.call_soon_threadsafe(setattr, server, "should_exit", True))
    try:
        await server.serve(sockets=[sock])
    finally:
        if server.started:
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
    for page in PAGES:
        page.register(site)
    # On this machine it would cost more time than it saves.
    compressed = functools.partial(GZipMiddleware, minimum_size=2_000, compresslevel=3)
    ui.run_with(
        inner, root=missing(site), title="training fleet", favicon=STATIC / "icon.svg", dark=None,
        tailwind=False, language="en-US", show_welcome_message=False, binding_refresh_interval=None,
        reconnect_timeout=10.0,
        gzip_middleware_factory=None if site.settings.is_loopback() else compressed,
    )  # fmt: skip
    pages_app.config.socket_io_js_transports = ["websocket"]
    return Guard(inner, site.settings, site.sessions, socket.gethostname(), site.clock)


def _config(app: Guard, settings: WebSettings) -> uvicorn.Config:
    # Behind a proxy everybody has its address.
    most_of_one = MAX_CONNECTIONS if settings.public_url else MAX_OF_ONE
    connection: Any = functools.partial(Connection, most_of_one=most_of_one)
    return uvicorn.Config(
        app,
        http=connection,
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
            *settings.address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise LocalError(
            f"--listen {settings.listen}: {error.strerror or error}; "
            f"{why_not_here(error)} (port 0 takes a free one)"
        ) from None
    return sock
