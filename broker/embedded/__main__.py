"""The program `fleet broker`: runs the embedded broker until it is told to stop.

Says `{"event":"listening","host":...,"port":...}` on standard output once it serves, with
`websocket`, a port, where it serves those.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.embedded import EmbeddedBroker, ServerSettings
from broker.errors import ConfigError, LocalError
from broker.system.address import parse_listen
from broker.system.logs import announce, setup
from broker.system.machine import system_clock
from broker.system.process import end_with_parent
from broker.system.settings import BrokerSettings, ServerPart
from broker.system.systemd import Notifier
from broker.wrapping import complain

USUAL: Final = ServerSettings()
STOP_TIMEOUT_S: Final = 5.0
SPARE_FILES: Final = 256


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker; return 0 when it was told to stop, 1 when it could not serve, 2 for usage."""
    parser = argparse.ArgumentParser(prog="fleet broker", description=__doc__)
    parser.add_argument("--listen", default=USUAL.listen, help="HOST:PORT")
    parser.add_argument("--identity", type=Path, help="folder of ca.crt, broker.crt, broker.key")
    parser.add_argument("--websocket", type=int, metavar="PORT", help="serve websockets as well")
    parser.add_argument("--no-websocket", action="store_true", help="whatever the file says")
    parser.add_argument(
        "--origin", action="append", metavar="URL", help="a page that may open one; repeatable"
    )
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--root", help="first level(s) of every topic")
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    arguments = parser.parse_args(argv)
    try:
        setup(arguments.log_level)
        settings = _settings(arguments)
        manager = Notifier.take(os.environ, os.getpid())
        asyncio.run(_serve(settings, manager))
    except LocalError as error:
        complain(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        pass  # where the loop takes no signal handlers (Windows)
    return 0


def _settings(arguments: argparse.Namespace) -> ServerSettings:
    said = {"topic_root": arguments.root, "websocket": arguments.websocket}
    given = BrokerSettings.load(arguments.config, said | {"origins": arguments.origin})
    host, port = parse_listen(arguments.listen, "--listen", USUAL.listen)
    part = given.part(ServerPart) | ({"websocket": None} if arguments.no_websocket else {})
    settings = ServerSettings(host=host, port=port, identity=arguments.identity, **part)
    settings.check()
    return settings


async def _serve(settings: ServerSettings, manager: Notifier) -> None:
    """Serve until a signal, or the end of the parent. Raises `LinkError` if it cannot."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, stop.set)
        except NotImplementedError:
            break

    def end() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before its parent
            loop.call_soon_threadsafe(stop.set)

    end_with_parent(end)

    _raise_file_limit(settings.max_connections + SPARE_FILES)
    broker = EmbeddedBroker(settings)
    await broker.start()
    line = {"event": "listening", "host": settings.host, "port": broker.port}
    if broker.websocket_port is not None:
        line["websocket"] = broker.websocket_port
    words = f"listening on {settings.host}:{broker.port}"
    announce(line, f"the broker is {words}")
    manager.ready(words)
    alive = asyncio.ensure_future(_keep_alive(manager))
    try:
        await stop.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(broker.shutdown(), STOP_TIMEOUT_S)
    finally:
        alive.cancel()
        manager.stopping()
        manager.close()


async def _keep_alive(manager: Notifier) -> None:
    """Give signs of life from the loop that serves the clients; a loop that hangs gives none."""
    while manager.ping_s is not None:
        manager.alive(system_clock().mono_s)
        await asyncio.sleep(manager.ping_s)


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


if __name__ == "__main__":
    sys.exit(main())
