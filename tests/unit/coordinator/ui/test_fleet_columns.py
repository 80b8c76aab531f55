"""The columns of jobs and hosts: what each says, and how many fit."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from rich.cells import cell_len

from broker.protocol.messages import Gpu
from coordinator.client.rows import Row, listed, worker
from coordinator.top import host_table, job_table
from coordinator.top.table import fitted, gap, padded
from coordinator.ui.fitted_table import LEAST, Column, fit
from coordinator.ui.fleet_columns import HOSTS, JOBS, FleetColumn, loss, shown, spark
from tests.harness.mirrored import GIB, Mirrored

STARTED = {"started_at": "2026-01-02T12:00:00Z"}


@pytest.fixture
def fleet() -> Mirrored:
    """A fleet that is told of by now's clock."""
    return Mirrored(time.time())


def said(columns: Sequence[FleetColumn], row: Row) -> dict[str, str]:
    """What the columns of a list say of a row."""
    return {one.key: one.cell(row)[0] for one in shown(columns, "list")}


@pytest.mark.parametrize("columns", [host_table.TABLE.columns, job_table.COLUMNS])
@pytest.mark.parametrize("window", [37, 57, 77, 80, 100, 120, 157, 240])
def test_the_columns_fit_the_window(columns: Sequence[FleetColumn], window: int) -> None:
    """From a small terminal on; a wide one has more of them, and no room is left unused."""
    found = fitted(columns, window)
    total = sum(width for _, width in found) + gap(window) * (len(found) - 1)
    assert total <= window
    assert total == window or all(width >= column.most for column, width in found)
    assert len(fitted(columns, 160)) > len(fitted(columns, 80))


def test_a_narrow_window_keeps_what_matters_most() -> None:
    assert [one.key for one, _ in fitted(host_table.TABLE.columns, 60)] == [
        "id", "state", "doing", "cpu", "gpu",
    ]  # fmt: skip
    keys = [one.key for one, _ in fitted(job_table.COLUMNS, 57)]
    assert keys == ["name", "state", "host", "share"]


@pytest.mark.parametrize("window", range(1, 120, 7))
def test_no_window_is_too_narrow(window: int) -> None:
    columns = (Column("A", least=5), Column("B"), Column("C", rank=1, least=4))
    widths = fit(columns, [(5, 9), (4, 4), (4, 8)], window)
    assert sum(widths.values()) + 2 * (len(widths) - 1) <= max(window, 2 * LEAST + 2)


def test_every_column_says_something_of_every_row(fleet: Mirrored) -> None:
    fleet.job("planned", attempt=0)
    fleet.status("away", "offline", "lost")
    for columns, row in ((JOBS, fleet.job_row("planned")), (HOSTS, fleet.host_row("away"))):
        for column in columns:
            if column.faces != ("page",):
                assert isinstance(column.cell(row, column.width)[0], str), column.key


@pytest.mark.words
def test_the_list_says_what_the_live_views_say(fleet: Mirrored) -> None:
    fleet.job("waits", attempt=0)
    fleet.job("at-work", "running", host="pi", **STARTED)
    fleet.host("pi", "at-work")
    fleet.progress("at-work", "pi", 5, 0.1)
    metrics = {"auroc": 0.91239, "auroc_ci": [0.9, 0.95], "average_precision": 0.5, "macro_f1": 0.4}
    for name, ran_s in (("short", 14.6), ("longer", 108.0), ("long", 3 * 3600.0)):
        fleet.job(name, "completed", host="pi", ran_s=ran_s, metrics=metrics)
    for job in fleet.seen.jobs.values():
        told = job.model_dump(mode="json")
        if job.name == "at-work":
            now = fleet.seen.progress[job.job_id]
            told |= {"progress": now.model_dump(), "share": 0.5, "left_s": 125.0}
        assert said(JOBS, listed(told, time.time())) == said(JOBS, fleet.job_row(job.name))
    shown_of = said(JOBS, fleet.job_row("at-work"))
    assert (shown_of["share"], shown_of["ends"], shown_of["loss"]) == ("50%", "2 min", "0.1000")
    done = said(JOBS, fleet.job_row("long"))
    assert [done[key] for key in ("took", "value", "interval", "ap", "f1")] == [
        "3.0 h", "AUROC 0.912", "0.900 to 0.950", "0.500", "0.400",
    ]  # fmt: skip


@pytest.mark.words
def test_an_answer_tells_what_only_the_coordinator_knows(fleet: Mirrored) -> None:
    fleet.job("waits")
    told = fleet.seen.jobs[fleet.job("waits")].model_dump(mode="json")
    assert said(JOBS, listed(told | {"awaits_cuda_s": 9.0}, 0.0))["host"] == "awaits CUDA"
    running = told | {"state": "running", "host": "pi", "left_s": 60.0, "share": 0.4}
    assert said(JOBS, listed(running, time.time()))["ends"] == "60 s"
    for why in ("away", "no_room"):
        assert said(JOBS, listed(running | {why: {"a": 1}}, time.time()))["ends"] == "?"
    ending = listed(running | {"held": {"phase": "bundling"}}, time.time())
    assert said(JOBS, ending)["share"] == "bundling 40%"


@pytest.mark.parametrize(
    ("epochs", "width", "text"),
    [
        (10, 12, "━━━╌╌╌╌ 4/10"),
        (20_000, 12, "╌╌╌╌ 4/20000"),
        (20_000, 9, "╌╌╌╌╌╌ 0%"),
        (10, 0, "40%"),
    ],
)
def test_a_bar_has_the_epochs_beside_it_where_there_is_room(
    fleet: Mirrored, epochs: int, width: int, text: str
) -> None:
    fleet.job("one", "running", host="pi")
    row = fleet.job_row("one") | {"epoch": f"4/{epochs}", "share": 4 / epochs}
    (column,) = [one for one in JOBS if one.key == "share"]
    assert column.cell(row, width)[0] == text


@pytest.mark.words
def test_the_metric_that_a_trainer_says_first_is_shown_under_its_own_name(fleet: Mirrored) -> None:
    fleet.job("other", "completed", metrics={"val_loss": 0.25, "auroc": 0.9})
    assert said(JOBS, fleet.job_row("other"))["value"] == "val_loss 0.250"


def test_a_host_says_the_same_in_the_list_and_live(fleet: Mirrored) -> None:
    gpu = Gpu(index=0, name="NVIDIA GeForce RTX 4090", vram_total_bytes=8 * GIB,
              vram_free_bytes=2 * GIB, use_percent=91.0, power_w=412.0)  # fmt: skip
    fleet.job("one", "running", host="pi")
    fleet.host("pi", "one", gpus=(gpu,))
    live = said(HOSTS, fleet.host_row("pi"))
    assert [live[key] for key in ("doing", "cpu", "ram", "vram", "power", "device")] == [
        "one", " 30%", "6.0/8G", "6.0/8G", "412W", "RTX 4090",
    ]  # fmt: skip
    held = [{"job_id": "a", "name": "one", "phase": "running", "progress": 0.4},
            {"job_id": "b" * 64, "name": None, "phase": "bundling", "progress": None}]  # fmt: skip
    fleet.mirror.load_hosts([{"host": "pi", "status": "online", "barred": [], "jobs": held}])
    row = worker(fleet.seen.hosts["pi"], fleet.now)
    assert said(HOSTS, row)["doing"] == f"one 40%, {'b' * 12} (bundling)"


def test_a_cell_has_its_width_in_any_script() -> None:
    assert padded("機械学習", 6) == "機械 …"
    assert cell_len(padded("機械学習", 6)) == 6
    assert padded("abc", 5, right=True) == "  abc"
    assert padded("abcdef", 4) == "abc…"


def test_a_curve_falls_from_its_highest_to_its_lowest() -> None:
    assert spark([1.0, 0.5, 0.0], 8) == "█▅▁"
    assert spark([0.3, 0.3], 8) == "▁▁"
    assert spark([], 8) == ""
    assert spark([-1.7e308, 0.0, 1.7e308], 8) == "▁▅█", "their distance is beyond a float"
    long = spark([1 / (epoch + 1) for epoch in range(1000)], 12)
    assert (len(long), long[0], long[-1]) == (12, "█", "▁")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1000"), (-0.25, "-0.250"), (1234.5678, "1234.5"), (123456.7, "123456"),
     (12345.678, "12345"), (1234567.8, "1e+06"), (-123456.7, "-1e+05"), (1e308, "1e+308")],
)  # fmt: skip
def test_a_loss_that_grows_is_not_cut_to_a_smaller_one(value: float, text: str) -> None:
    assert loss(value) == text
