"""Clusters of three brokers on loopback, with the files that the fleet renders for each node."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from broker.deploy import RENDERERS, Node, Ports, write
from tests.harness.brokers import find_program, free_port
from tests.harness.secured import Secured, end_epmd
from tests.harness.secured_brokers import (
    nats_node,
    new_house,
    new_site,
    rabbitmq_node,
    rabbitmq_program,
)


def cluster(
    kind: str, folder: Path, *, people: tuple[str, ...], hosts: tuple[str, ...]
) -> list[Secured]:
    """Return three nodes of NATS or RabbitMQ with the rendered files, not started."""
    program = find_program("nats-server") if kind == "nats" else rabbitmq_program()
    house, epmd_port = new_house(folder), str(free_port())
    ports = [free_port() if kind == "nats" else 0 for _ in range(3)]
    nodes = tuple(Node("localhost", f"n{number}", port) for number, port in enumerate(ports))
    made = []
    for node in nodes:
        port, own = free_port(), folder / node.called
        own.mkdir()
        at = Ports(hosts=port, people=port, nats=free_port())
        site = new_site(own, house, at, people=people, hosts=hosts, nodes=nodes, node=node)
        write(own, RENDERERS[kind](site))
        if kind == "nats":
            made.append(nats_node(program, site, house))
            continue
        name = {"RABBITMQ_CONF_ENV_FILE": str(own / "rabbitmq-env.conf")}
        made.append(rabbitmq_node(program, site, house, folder, epmd_port, name))
        made[-1].epmd_port = ""  # while a node is killed, the others need it: `running` ends it
    return made


@contextlib.contextmanager
def running(nodes: list[Secured]) -> Iterator[list[Secured]]:
    """Start all nodes and wait until each lets clients in; whatever happens, none is left.

    RabbitMQ's nodes come one after the other, as brokers.md has it: of those that make the
    cluster at once, now and then one is left with its virtual host down.
    """
    batches = [[node] for node in nodes] if nodes[0].kind == "rabbitmq" else [nodes]
    try:
        for at_once in batches:
            for node in at_once:
                node.launch()
            for node in at_once:
                node.wait_ready()
        yield nodes
    finally:
        with contextlib.ExitStack() as stack:
            port = nodes[0].environment.get("ERL_EPMD_PORT")
            if port:
                stack.callback(end_epmd, port)  # the last to go
            for node in nodes:
                stack.callback(node.end, signal.SIGKILL)
