"""Clusters of three brokers on loopback, with the files that the fleet renders for each node."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

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


def nats_cluster(folder: Path, *, people: tuple[str, ...], hosts: tuple[str, ...]) -> list[Secured]:
    """Return three nodes of NATS with the rendered files, not started."""
    program = find_program("nats-server")
    house = new_house(folder)
    nodes = tuple(Node("localhost", f"n{number}", free_port()) for number in range(3))
    made = []
    for node in nodes:
        port = free_port()
        ports = Ports(hosts=port, people=port, nats=free_port())
        own = folder / node.called
        own.mkdir()
        site = new_site(
            own, house, ports, people=people, hosts=hosts, nodes=nodes, node=node
        )  # fmt: skip
        write(own, RENDERERS["nats"](site))
        made.append(nats_node(program, site, house))
    return made


def rabbitmq_cluster(
    folder: Path, *, people: tuple[str, ...], hosts: tuple[str, ...]
) -> list[Secured]:
    """Return three nodes of RabbitMQ with the rendered files, not started."""
    program = rabbitmq_program()
    house = new_house(folder)
    epmd_port = str(free_port())
    nodes = tuple(Node("localhost", f"n{number}") for number in range(3))
    made = []
    for node in nodes:
        port = free_port()
        own = folder / node.called
        own.mkdir()
        ports = Ports(hosts=port, people=port)
        site = new_site(
            own, house, ports, people=people, hosts=hosts, nodes=nodes, node=node
        )  # fmt: skip
        write(own, RENDERERS["rabbitmq"](site))
        name = {"RABBITMQ_CONF_ENV_FILE": str(own / "rabbitmq-env.conf")}
        one = rabbitmq_node(program, site, house, folder, epmd_port, name)
        one.epmd_port = ""  # while one node is killed, the others need it: `running` ends it
        made.append(one)
    return made


CLUSTERS: Final[dict[str, Callable[..., list[Secured]]]] = {
    "nats": nats_cluster,
    "rabbitmq": rabbitmq_cluster,
}


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
