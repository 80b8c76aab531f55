"""Each kind of broker with certificates, made from the files that the fleet renders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.deploy import RENDERERS, Ports, Site, write
from tests.harness.brokers import find_program, free_port
from tests.harness.secure import House
from tests.harness.secured import RABBITMQ_START_S, Secured


def embedded(folder: Path, *, people: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> Secured:
    """Return the embedded broker, not started; it has no need of `people` and `hosts`."""
    house = new_house(folder)
    port = free_port()
    listen = ["--listen", f"127.0.0.1:{port}", "--identity", str(house.broker)]
    log = folder / "log"
    command = [sys.executable, "-m", "broker.embedded", *listen]
    ports = Ports(hosts=port, people=port, websocket=free_port())
    command += ["--websocket", str(ports.websocket)]
    return Secured("embedded", house, ports, lambda: _run(command, log), log=log)


def mosquitto(
    folder: Path,
    *,
    people: tuple[str, ...],
    hosts: tuple[str, ...] = (),
    loopback: bool = False,
    revoked: tuple[str, ...] = (),
) -> Secured:
    """Return a mosquitto with the rendered files, not started; of `hosts` it counts how many."""
    program = find_program("mosquitto")
    house = new_house(folder)
    house.revoke(*revoked)
    ports = Ports(free_port(), free_port(), free_port(), websocket=free_port())
    site = new_site(
        folder, house, ports, people=people, hosts=hosts, loopback=loopback,
        revoked=bool(revoked),
    )  # fmt: skip
    write(folder, RENDERERS["mosquitto"](site))
    conf = folder / "mosquitto.conf"
    # As root it would become the user `mosquitto`, who cannot read the test's folder.
    conf.write_text(conf.read_text("utf-8") + "user root\n", "utf-8")
    log = folder / "log"
    command = [program, "-c", str(conf)]
    return Secured("mosquitto", house, ports, lambda: _run(command, log), log=log, site=site)


def nats(
    folder: Path,
    *,
    people: tuple[str, ...],
    hosts: tuple[str, ...],
    origins: tuple[str, ...] = (),
) -> Secured:
    """Return a nats-server with the rendered file, not started."""
    program = find_program("nats-server")
    house = new_house(folder)
    port = free_port()
    ports = Ports(hosts=port, people=port, nats=free_port(), websocket=free_port())
    site = new_site(folder, house, ports, people=people, hosts=hosts, origins=origins)
    write(folder, RENDERERS["nats"](site))
    return nats_node(program, site, house)


def nats_node(program: str, site: Site, house: House) -> Secured:
    """Return one node, whose files are written."""
    folder = Path(site.folder)
    log = folder / "log"
    command = [program, "-c", str(folder / "nats.conf")]
    return Secured("nats", house, site.ports, lambda: _run(command, log), log=log, site=site)


def rabbitmq(folder: Path, *, people: tuple[str, ...], hosts: tuple[str, ...]) -> Secured:
    """Return a RabbitMQ with the rendered files, not started.

    Its environment keeps it apart from one that this machine may run for others.
    """
    program = rabbitmq_program()
    house = new_house(folder)
    port = free_port()
    ports = Ports(hosts=port, people=port, websocket=free_port())
    site = new_site(folder, house, ports, people=people, hosts=hosts)
    write(folder, RENDERERS["rabbitmq"](site))
    name = {"RABBITMQ_NODENAME": f"fleet{port}@localhost"}
    return rabbitmq_node(program, site, house, folder, str(free_port()), name)


def rabbitmq_node(
    program: str,
    site: Site,
    house: House,
    home: Path,
    epmd_port: str,
    name: dict[str, str],
) -> Secured:
    """Return a node; in `home` is the Erlang cookie, the same for all nodes of a cluster."""
    folder = Path(site.folder)
    environment = {
        "HOME": str(home),
        "RABBITMQ_MNESIA_BASE": str(site.state),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": epmd_port,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # it may be ended while it knows a node still
        "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
        **name,
    }
    log = folder / "log"
    return Secured(
        "rabbitmq",
        house,
        site.ports,
        lambda: _run([program], log, environment),
        start_deadline_s=RABBITMQ_START_S,
        log=log,
        environment=environment,
        epmd_port=epmd_port,
    )


def rabbitmq_program() -> str:
    """Return where it is; skip the test where it is not installed."""
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    if not Path(program).exists():
        pytest.skip("rabbitmq-server is not installed")
    return program


MAKERS: dict[str, Callable[..., Secured]] = {
    "embedded": embedded,
    "mosquitto": mosquitto,
    "nats": nats,
    "rabbitmq": rabbitmq,
}


def new_site(folder: Path, house: House, ports: Ports, **options: Any) -> Site:
    """Return what a broker's files in `folder` are rendered from."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    return Site(folder, house.broker, state, ports=ports, **options)


def new_house(folder: Path) -> House:
    """Return a CA whose broker's certificate does for a node of a cluster."""
    return House.make(folder / "fleet", node=True)


def _run(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
