"""What the full-screen view says of a host, and above the tables."""

from __future__ import annotations

import pytest

from broker.protocol.messages import Summary
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.watcher import Watcher
from coordinator.jobs.reason_words import words
from coordinator.top import headline, host_table
from coordinator.top.detail import host_facts
from coordinator.top.table import fitted
from coordinator.ui.fleet_columns import Cell
from tests.harness.mirrored import Mirrored


def cells(fleet: Mirrored, name: str, window: int = 120) -> dict[str, str]:
    """What the columns say of a host."""
    row = fleet.host_row(name)
    return {column.title: column.cell(row, width)[0].strip()
            for column, width in fitted(host_table.TABLE.columns, window)}  # fmt: skip


def read(found: list[Cell]) -> str:
    return "".join(text for text, _ in found)


def test_a_barred_host_says_so() -> None:
    fleet = Mirrored()
    fleet.host("pi")
    why = {"code": "drained", "host": "pi", "who": "operator:ann", "at": "2026"}
    fleet.mirror.load_hosts([{"host": "pi", "status": "online", "condition": "drained",
                              "barred": [why]}])  # fmt: skip
    shown = cells(fleet, "pi", 160)
    assert (shown["Status"], shown["Job"]) == ("drained", words(why))
    facts = dict(host_facts(fleet.seen.hosts["pi"], fleet.host_row("pi")))
    assert [str(facts[title]) for title in ("State", "Barred")] == ["drained", words(why)]
    assert host_table.KINDS["barred"](fleet.host_row("pi"))
    assert "1 barred" in read(headline.counts(fleet.tables, 80))
    fleet.status("pi", "offline", "lost")
    assert host_table.KINDS["away"](fleet.host_row("pi"))


def test_the_first_lines_say_what_fits() -> None:
    fleet = Mirrored()
    fleet.status("coordinator")
    for number, state in enumerate(("running", "pending", "failed", "completed", "cancelled")):
        fleet.job(f"job-{number}", state)
    fleet.update()
    said = [read(headline.counts(fleet.tables, width)) for width in (58, 100)]
    assert said[0] == "hosts 0 online  jobs 1 running 1 pending 1 failed …"
    assert said[1].endswith("1 failed 1 completed 1 cancelled")
    watcher = Watcher(BrokerSettings(url="mqtt://127.0.0.1:1883"))
    watcher._contact.on_connected()
    said = [read(headline.where(fleet.seen, watcher, width)) for width in (24, 58, 100)]
    assert said == [
        "fleet top online",
        "fleet top  mqtt://127.0.0.1:1883  coordinator online",
        "fleet top  mqtt://127.0.0.1:1883 fleet  coordinator online  operator:local",
    ]
    fleet.hears(fleet.topics.summary(), Summary(jobs={}, hosts={}, plan="the summer's trees " * 3))
    said = [read(headline.where(fleet.seen, watcher, width)) for width in (24, 58)]
    assert said == ["fleet top online", "fleet top  the summer's trees the…  coordinator online"]


@pytest.mark.words
def test_trouble_is_told_and_nothing_else_is() -> None:
    fleet = Mirrored()

    def trouble(what: str = "", now_s: float = 9.0) -> str:
        outage = Outage(what, 0.0, "refused") if what else None  # type: ignore[arg-type] # it is
        return headline.trouble(fleet.seen, outage, now_s)

    assert trouble("broker", 1.0) == ""
    assert "No coordinator has been heard" in trouble("answer")
    fleet.status("coordinator")
    assert trouble() == ""
    assert "The coordinator does not answer for 70 s. Its log" in trouble("answer", 70.0)
    fleet.status("coordinator", "offline", "lost")
    gone = "The coordinator is gone for 9 s. Its connection was lost; start it."
    assert gone in trouble("coordinator")
    assert "The broker cannot be reached for 9 s. " in trouble("broker")
    assert "(refused)" in trouble("broker")


@pytest.mark.parametrize("order", host_table.ORDERS)
def test_every_order_takes_every_host(order: str) -> None:
    fleet = Mirrored()
    fleet.host("pi")
    fleet.status("away", "offline", "lost")
    fleet.update()
    rows = sorted(fleet.tables.hosts.rows.values(), key=host_table.ORDERS[order])
    assert {row["id"] for row in rows} == {"pi", "away"}
