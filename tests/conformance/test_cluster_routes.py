"""Who may be a node of a cluster: the ports by which brokers speak with each other."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path

from broker.pki import identity as ids
from tests.harness import clusters
from tests.harness.brokers import listens
from tests.harness.secured import Secured
from tests.harness.waiting import wait_until

DEADLINE_S = 60.0


def _is_let_in(node: Secured, port: int, shown: Path | None) -> bool:
    """Come as another NATS server would, with that certificate; tell whether it is answered."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain:
        try:
            context = node.house.context(shown)
            with context.wrap_socket(plain, server_hostname="localhost") as route:
                route.sendall(b'CONNECT {"name":"X","cluster":"fleet"}\r\nPING\r\n')
                return any(line == b"PONG\r\n" for line in route.makefile("rb"))
        except (ssl.SSLError, ConnectionError):
            return False


def test_no_host_becomes_a_node_of_nats(tmp_path: Path) -> None:
    """Its certificate is of the fleet's CA, but not of a node's address."""
    node, *_ = clusters.cluster("nats", tmp_path, people=("operator:alice",), hosts=("one",))
    node.launch()
    try:
        assert node.site is not None
        assert node.site.node is not None
        port = node.site.node.port
        wait_until(lambda: listens(port), "nobody listens for nodes")
        key, made = (node.house.broker / f"broker.{end}" for end in ("key", "crt"))
        own = node.house.folder / "own"
        ids.write_identity(own, node.house.authority.pem, made.read_bytes(), key.read_bytes())
        assert _is_let_in(node, port, own)
        for name in ("one", "operator:alice", "coordinator"):
            assert not _is_let_in(node, port, node.house.known(name)), name
        assert not _is_let_in(node, port, None)
    finally:
        node.end(signal.SIGKILL)
