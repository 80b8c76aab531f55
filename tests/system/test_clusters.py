"""A small plan on a cluster of brokers, over TLS, one of whose nodes is killed."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import FleetError
from broker.protocol.messages import AskList, AskWorkers
from tests.harness import clusters
from tests.harness.fleet import SHORT, Fleet, wait_until
from tests.harness.secured import Secured

pytestmark = pytest.mark.slow
HOSTS = ("one", "two")
PEOPLE = ("operator:alice", "observer:bob")
JOBS = 6
PATIENCE_S = 180.0
STARTED_BY = 1  # jobs that are over when the broker is killed


def _urls(nodes: list[Secured], port: Callable[[Secured], int]) -> str:
    return ",".join(f"mqtts://127.0.0.1:{port(node)}" for node in nodes)


Home = Callable[[list[Secured]], Fleet]


@pytest.fixture
def home(tmp_path: Path, data: Path, make_fleet: Any, monkeypatch: pytest.MonkeyPatch) -> Home:
    """`home(nodes)`: a fleet on these nodes, under the root that their files are for."""

    def fleet_on(nodes: list[Secured]) -> Fleet:
        for name in ("coordinator", "operator:alice", *HOSTS):
            nodes[0].house.known(name)  # where the programs of the fleet look for theirs
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        folder = tmp_path / "fleet-state"
        folder.mkdir()
        made: Fleet = make_fleet(folder, _urls(nodes, lambda node: node.ports.people), data)
        made.root = "fleet"
        programs = _urls(nodes, lambda node: node.ports.hosts)
        made.environment |= {"FLEET_TOPIC_ROOT": "fleet", "FLEET_BROKER": programs}
        return made

    return fleet_on


def _completed(fleet: Fleet) -> int:
    return sum(row["state"] == "completed" for row in fleet.rows.values())


def _train(fleet: Fleet, strike: Callable[[], None]) -> None:
    """Train the plan, with `strike` in the middle of it; all that must hold afterwards.

    Each host has its own jobs, so the plan completes only if both of them come through.
    """
    names = [f"job-{number}" for number in range(JOBS)]
    fleet.plan(
        *(
            f'name = "{name}"\nmodel = "gbt"\nmode = "oracle"\nseed = {at}\n'
            f'allowed_hosts = ["{HOSTS[at % len(HOSTS)]}"]\n{SHORT}'
            for at, name in enumerate(names)
        )
    )
    fleet.coordinator()
    for host in HOSTS:
        fleet.agent(host, wait=False)

    def begun() -> bool:
        fleet.look(0.2)
        return _completed(fleet) >= STARTED_BY

    wait_until(begun, "the first jobs", PATIENCE_S)
    assert _completed(fleet) < JOBS, "too late: everything is done"
    strike()

    def done() -> bool:
        fleet.look(0.2)
        if _completed(fleet) < JOBS:
            # Whoever came back late on RabbitMQ is not told by a wildcard what was said before.
            with contextlib.suppress(FleetError):
                listed = fleet.ask(AskList)["jobs"]
                fleet.rows |= {row["job_id"]: row for row in listed}
        return _completed(fleet) == JOBS

    wait_until(done, "the last job", PATIENCE_S)
    for name in names:
        row = fleet.until(name, "completed")
        # What an agent says may go down with the node, and so may its lease: then it gives the job
        # back, and another attempt begins. No attempt begins twice, and one of them completes.
        events = fleet.show(row["job_id"])["events"]
        begun = Counter(one["attempt"] for one in events if one["event"] in {"started", "resumed"})
        assert set(begun.values()) <= {1}, (name, events)
        assert sum(one["event"] == "completed" for one in events) == 1, (name, events)
        assert fleet.digest(row) == row["artifact_id"]

    def online() -> set[str]:
        found: dict[str, Any] = fleet.ask(AskWorkers)
        return {one["host"] for one in found["workers"] if one["presence"] == "online"}

    wait_until(lambda: online() == {*HOSTS}, "both hosts are seen", PATIENCE_S)


@pytest.mark.parametrize("kind", ["nats", "rabbitmq"])
def test_a_plan_goes_through_a_cluster_that_loses_the_node_that_all_are_on(
    home: Home, tmp_path: Path, kind: str
) -> None:
    nodes = clusters.cluster(kind, tmp_path, people=PEOPLE, hosts=HOSTS)
    with clusters.running(nodes), contextlib.ExitStack() as stack:
        fleet = home(nodes)
        _train(fleet, lambda: nodes[0].end(signal.SIGKILL))
        reader = nodes[1].connect("observer:bob")
        stack.callback(reader.stop)
        told = {"fleet/coordinator/status", "fleet/one/status", "fleet/two/status"}
        told |= {f"fleet/jobs/{job_id}" for job_id in fleet.rows}
        for topic in told:
            reader.subscribe(topic)
        while told:
            told.discard(reader.next()[0])
