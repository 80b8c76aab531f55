"""Where the embedded broker listens, as whom, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker.errors import ConfigError
from broker.protocol.messages import MAX_CHUNK_BYTES
from broker.system.address import check_origins, is_loopback
from broker.system.settings import ServerPart

TOPIC_ROOM_BYTES: Final = 64 * 1024


class ServerSettings(ServerPart):
    """Where the embedded broker listens, and its limits. Port 0 takes a free one.

    `identity` is a folder with `ca.crt`, `broker.crt`, `broker.key` and, where anybody was revoked,
    `crl.pem`. With it the broker speaks TLS alone, and knows its clients by their certificates.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    identity: Path | None = None

    # Of every connection.
    max_packet_bytes: int = MAX_CHUNK_BYTES + TOPIC_ROOM_BYTES  # a PUBLISH
    max_control_bytes: int = 64 * 1024  # any other packet of a client that is let in
    max_connect_bytes: int = 16 * 1024  # the first packet, of somebody yet unknown
    max_unsent_bytes: int = 64 * 1024 * 1024  # what waits for one client
    max_unsent: int = 20_000
    max_queued_bytes: int = 256 * 1024 * 1024  # what waits for all clients, and of them, together
    max_filters: int = 1_000
    max_session_s: int = 86_400  # that a session of MQTT 5 is kept without a connection
    max_sessions: int = 1_000  # that are kept so
    connect_timeout_s: float = 10.0  # from accept to the last byte of CONNECT
    max_connections: int = 10_000

    # With an identity, too: a network may be hostile.
    max_waiting: int = 1_000  # connections that have not shown yet who they are
    max_waiting_per_address: int = 64
    max_connections_per_name: int = 100  # and as many sessions that are kept without one
    max_retained: int = 1_000  # topics, of one name; the coordinator has more (retained.py)
    max_retained_bytes: int = 16 * 1024 * 1024

    @property
    def listen(self) -> str:
        """The address as `--listen` has it."""
        return f"{self.host}:{self.port}"

    def check(self) -> None:
        """Raise `ConfigError` for an address that is not one, or that needs an identity."""
        if self.identity is None and not is_loopback(self.host):
            raise ConfigError(
                f"--listen {self.listen}: without an identity the embedded broker serves "
                "this machine only, since it asks nobody who they are; make one with 'fleet init' "
                "and name its folder with --identity, or listen on 127.0.0.1"
            )
        if not self.host:
            raise ConfigError("--listen: the host is missing; 0.0.0.0 stands for every address")
        for option, port in (("listen", self.port), ("websocket", self.websocket)):
            if not 0 <= (port or 0) <= 65_535:
                raise ConfigError(f"--{option} {port}: the port is 0 to 65535")
        if self.websocket and self.websocket == self.port:
            raise ConfigError(f"--websocket {self.port}: --listen has that port; choose another")
        check_origins(self.origins)
