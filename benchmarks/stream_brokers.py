"""Brokers for the benchmark of the artifact stream: plain, on loopback, as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

from broker.deploy.site import MAX_PACKET_BYTES
from tests.harness import brokers
from tests.harness.secured import end_epmd

RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
START_S: Final = 60.0


def _nats(folder: Path, own_port: int) -> brokers.BrokerProcess:
    def command(port: int) -> list[str]:
        config = folder / "nats.conf"
        config.write_text(
            f'server_name: "bench"\nlisten: "127.0.0.1:{own_port}"\n'
            f"max_payload: {MAX_PACKET_BYTES}\njetstream {{ store_dir: {str(folder)!r} }}\n"
            f'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
        )
        return ["/usr/sbin/nats-server", "-c", str(config)]

    return brokers.BrokerProcess(command, announces=False)


def _rabbitmq(folder: Path, epmd_port: int, own_port: int) -> brokers.BrokerProcess:
    def command(port: int) -> list[str]:
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\n"
            "mqtt.allow_anonymous = true\nmqtt.tcp_listen_options.nodelay = true\n"
        )
        (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        environment = {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_DIST_PORT": str(own_port),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
        }
        settings = [f"{key}={value}" for key, value in environment.items()]
        return ["/usr/bin/env", *settings, RABBITMQ]

    return brokers.BrokerProcess(command, announces=False)


def _programs() -> dict[str, Callable[[Path, int, int], brokers.BrokerProcess]]:
    return {
        "embedded": lambda _folder, _epmd, _own: brokers.embedded(),
        "mosquitto": lambda folder, _epmd, _own: brokers.mosquitto(folder),
        "rabbitmq": _rabbitmq,
        "nats": lambda folder, _epmd, own_port: _nats(folder, own_port),
    }


KINDS: Final = tuple(_programs())
_WHERE: Final = {
    "mosquitto": "/usr/sbin/mosquitto",
    "rabbitmq": RABBITMQ,
    "nats": "/usr/sbin/nats-server",
}


def installed() -> list[str]:
    """Return the brokers that can be started here."""
    return [kind for kind in KINDS if Path(_WHERE.get(kind, "/")).exists()]


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[brokers.BrokerProcess]:
    """Run a broker, with its files in `folder`; whatever happens, nothing of it is left."""
    folder.mkdir(parents=True, exist_ok=True)
    port, epmd_port, own_port = (brokers.free_port() for _ in range(3))
    broker = _programs()[kind](folder, epmd_port, own_port)
    if not broker.announces:
        broker.port = port
    brokers.DEADLINE_S = START_S  # RabbitMQ takes its time
    try:
        broker.start()
        yield broker
    finally:
        if broker.process is not None:
            end_tree(broker.process)
        if kind == "rabbitmq":
            end_epmd(str(epmd_port))


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, as RabbitMQ has them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
