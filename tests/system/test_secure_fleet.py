"""A whole fleet over TLS, two hosts with networks of their own: init, enroll, train, revoke."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.namespace import Namespace
from tests.harness.fleet import SHORT, Program, wait_until
from tests.harness.owner import DEADLINE_S, Owner

pytestmark = pytest.mark.slow
HOSTS = ("attic", "cellar")


@pytest.fixture
def networks() -> Iterator[list[Namespace]]:
    """A network for each host, joined to this one."""
    with ExitStack() as stack:
        made = []
        for _ in HOSTS:
            try:
                made.append(Namespace())
            except OSError as error:
                pytest.skip(f"no network namespace: {error}")
            stack.callback(made[-1].remove)
        yield made


def _plan(folder: Path) -> Path:
    path = folder / "plan.toml"
    jobs = "".join(
        f'\n[[jobs]]\nname = "on-{host}"\nmodel = "gbt"\nmode = "realistic"\nseed = {seed}\n'
        f'allowed_hosts = ["{host}"]\n{SHORT}\n'
        for seed, host in enumerate(HOSTS)
    )
    path.write_text(f"schema_version = 1\n{jobs}", "utf-8")
    return path


@pytest.mark.smoke
def test_a_fleet_over_tls_from_init_to_revoke(
    networks: list[Namespace], data: Path, tmp_path: Path
) -> None:
    """Every command as people type it; a revoked host is out within seconds, the other stays."""
    owner = Owner(tmp_path / "owner")
    names = [part for network in networks for part in ("--broker", network.address)]
    owner.done("init", *names, "--operator", "alice")
    with ExitStack() as stack:

        def start(who: Owner, module: str, *arguments: str) -> tuple[Program, dict[str, Any]]:
            log = tmp_path / f"{module}-{who.home.name}.log"
            program = Program(module, list(arguments), who.environment, log, who.prefix)
            stack.callback(program.kill)
            return program, program.start()

        identity = ("--identity", str(owner.home / "fleet" / "broker"))
        port = start(owner, "broker.embedded", "--listen", "0.0.0.0:0", *identity)[1]["port"]
        here = ("--broker", f"mqtts://127.0.0.1:{port}")
        state = ("--state", str(tmp_path / "coordinator"), "--manifest", str(_plan(tmp_path)))
        start(owner, "coordinator.service", *here, *state)
        agents = {}
        for host, network in zip(HOSTS, networks, strict=True):
            url = f"mqtts://{network.address}:{port}"
            machine = Owner(tmp_path / host, network.prefix)
            waiting, join = owner.enroll(host, network.address)
            machine.done(*join)
            assert waiting.wait(DEADLINE_S) == 0
            place = ("--state", str(tmp_path / f"state-{host}"), "--data", str(data))
            agents[host] = start(machine, "agent.service", "--broker", url, *place)[0]

        def state_of(host: str) -> str:
            rows = json.loads(owner.done("workers", "--json", *here))
            return str({row["host"]: row["presence"] for row in rows}[host])

        wait_until(lambda: _completed(owner, here) == len(HOSTS), "both jobs are completed")
        owner.done("get", "on-attic", "-o", str(tmp_path / "got"), *here)
        assert list((tmp_path / "got").rglob("model.ubj"))
        assert [state_of(host) for host in HOSTS] == ["online", "online"]
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            plain.settimeout(DEADLINE_S)
            plain.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x14\x00\x02hi")
            assert b"\x20\x02\x00\x00" not in plain.recv(64)

        def said(agent: Program) -> bool:
            return "refused the connection" in agent.said() or "is it revoked" in agent.said()

        assert "attic has no connection to" in owner.done("revoke", "attic", *here)
        wait_until(lambda: state_of("attic") != "online", "the revoked host is out")
        wait_until(lambda: said(agents["attic"]), "it is told why")
        assert state_of("cellar") == "online"


def _completed(owner: Owner, here: tuple[str, ...]) -> int:
    return int(json.loads(owner.done("status", "--json", *here))["jobs"]["completed"])
