"""What the full-screen view says of a host, and above the tables."""

from __future__ import annotations

import pytest

from broker.protocol.messages import Gpu, Summary
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.watcher import Watcher
from coordinator.top import headline, host_table, layout
from coordinator.top.detail_pages import host_facts
from tests.harness.mirrored import GIB, Mirrored


def cells(fleet: Mirrored, name: str, window: int = 80) -> dict[str, str]:
    """What the columns say of a host."""
    row = fleet.host_row(name)
    return {column.title: column.cell(row, width)[0].strip()
            for column, width in layout.fit(host_table.COLUMNS, window)}  # fmt: skip


def read(found: list[layout.Cell]) -> str:
    """A line."""
    return "".join(text for text, _ in found)


def test_a_host_shows_its_load_and_what_it_does() -> None:
    """GPUs are counted together; a host that is away shows no old figures."""
    fleet = Mirrored()
    gpus = tuple(
        Gpu(index=n, vram_total_bytes=8 * GIB, vram_free_bytes=2 * GIB, use_percent=use, power_w=90)
        for n, use in enumerate((10.0, 95.0))
    )
    fleet.job("cnn", "running", host="pc")
    fleet.host("pc", "cnn", gpus=gpus)
    assert cells(fleet, "pc").items() >= {
        "CPU": "30%", "GPU": "95%", "VRAM": "12/16G", "POWER": "180W", "JOB": "cnn",
    }.items()  # fmt: skip
    fleet.status("pc", "offline", "lost")
    shown = cells(fleet, "pc")
    assert shown["STATUS"] == "offline"
    assert shown["CPU"] == shown["GPU"] == shown["POWER"] == "-"
    assert host_table.KINDS["away"](fleet.host_row("pc"))


def test_a_barred_host_says_so() -> None:
    """In a word as its status, with the reason in place of its job."""
    fleet = Mirrored()
    fleet.host("pi")
    why = "drained by operator:ann at 2026; `fleet resume pi` lifts it"
    fleet.mirror.load_hosts([{"host": "pi", "status": "online", "condition": "drained",
                              "barred": [why]}])  # fmt: skip
    shown = cells(fleet, "pi", 160)
    assert (shown["STATUS"], shown["JOB"]) == ("drained", why)
    assert "State     drained" in host_facts(fleet.seen.hosts["pi"], fleet.seen).plain
    assert host_table.KINDS["barred"](fleet.host_row("pi"))
    assert "1 barred" in read(headline.counts(fleet.tables, 80))


def test_the_first_lines_say_what_fits() -> None:
    """Whole words, fewer of them in a narrow window."""
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


def test_trouble_is_told_and_nothing_else_is() -> None:
    """A coordinator that is away, a broker that is; at the start there is a moment of patience."""
    fleet = Mirrored()

    def trouble(what: str = "", now_s: float = 9.0) -> str:
        outage = Outage(what, 0.0, "refused") if what else None  # type: ignore[arg-type] # it is
        return headline.trouble(fleet.seen, outage, now_s)

    assert trouble("broker", 1.0) == ""
    assert "NO COORDINATOR" in trouble("answer")
    fleet.status("coordinator")
    assert trouble() == ""
    assert "COORDINATOR SILENT for 70 s" in trouble("answer", 70.0)
    fleet.status("coordinator", "offline", "lost")
    assert "COORDINATOR OFFLINE" in trouble("coordinator")
    assert "NOT CONNECTED to the broker for 9 s (refused)" in trouble("broker")


@pytest.mark.parametrize("order", host_table.ORDERS)
def test_every_order_takes_every_host(order: str) -> None:
    """Also one of which nothing is known."""
    fleet = Mirrored()
    fleet.host("pi")
    fleet.status("away", "offline", "lost")
    fleet.update()
    rows = sorted(fleet.tables.hosts.rows.values(), key=host_table.ORDERS[order])
    assert {row["id"] for row in rows} == {"pi", "away"}
