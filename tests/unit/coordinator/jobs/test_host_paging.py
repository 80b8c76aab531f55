"""Hosts come in pages, which say once what several have in common."""

from __future__ import annotations

from typing import Any

from broker.protocol import messages as m
from coordinator.client.predictions import views_of
from coordinator.jobs import host_paging
from tests.harness.coordinator import Fleet
from tests.unit.coordinator.core.commands.test_prospects import EPOCHS
from tests.unit.coordinator.core.commands.test_why import answered


def test_hosts_come_in_pages_that_have_the_schemas_of_their_trainers_once() -> None:
    """Whatever number of hosts there is; what was said of each is whole again at the other end."""
    fleet = Fleet()
    schema = {"properties": {f"key{n}": {"type": "number", "title": "x" * 50} for n in range(60)}}
    for number in range(300):
        trainers = {"gbt": m.TrainerInfo(hyper_schema=schema if number % 3 else {})}
        fleet.host(f"h{number:03}").joins(trainers=trainers, physical_cores=number + 1)
    rows: list[dict[str, Any]] = []
    pages, offset = 0, 0
    while offset is not None:
        page, payload = answered(fleet, m.AskWorkers(id=f"w{offset}", offset=offset))
        assert len(payload) < 200_000
        rows += host_paging.whole(page)
        pages, offset = pages + 1, page["next"]
    assert pages <= 4, "each schema alone is 5 KB"
    hosts = fleet.core.world.hosts
    assert [row["host"] for row in rows] == sorted(hosts)
    for row in rows:
        capability = hosts[row["host"]].capability
        assert capability is not None
        assert row["capability"] == capability.model_dump(mode="json")


def test_each_host_is_predicted_with_its_own_trainers() -> None:
    """Those of a page have them in common, and are what they said all the same."""
    fleet = Fleet()
    kinds: list[dict[str, Any]] = [{"gbt": m.TrainerInfo(hyper_schema=EPOCHS)}, {}]
    for number in range(6):
        fleet.host(f"h{number}").joins(trainers=kinds[number % 2], physical_cores=number + 1)
    fleet.host("h9").status("online", "birth")  # which has yet to say what it is
    rows = host_paging.whole(fleet.asks(m.AskWorkers(id="w")).data)
    told = {view.host: view.capability for view in views_of(rows)}
    assert told == {name: fleet.core.world.hosts[name].capability for name in sorted(told)}
    assert [*told] == [f"h{number}" for number in range(6)]


def test_who_comes_and_goes_between_two_pages_is_there_or_not() -> None:
    """Hosts come by name, as they are when a page is asked for."""
    fleet = Fleet()

    def names(**wanted: Any) -> list[str]:
        page: Any = fleet.asks(m.AskWorkers(id=fleet.new_id(), **wanted)).data
        return [row["host"] for row in page["workers"]]

    for name in ("c", "a"):
        fleet.host(name).joins()
    assert names() == ["a", "c"]
    fleet.host("b").joins()
    assert names(limit=2) == ["a", "b"]
    assert names(offset=2, absent=True) == ["c"]
    fleet.host("a").status("offline", "goodbye")
    fleet.asks(m.AskForget(id="f", host="a", expires_at=fleet.now.wall_s + 60))
    assert names() == ["b", "c"]
