"""What the tables show of a fleet, and what they are told when it changes."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.messages import Gpu, HeldJob, Why
from coordinator.client.rows import MOST, Delta, counts, epoch_ms, main_metric, meant
from coordinator.jobs.agent_words import holds
from coordinator.jobs.reason_words import words
from coordinator.jobs.result_words import metric_words
from coordinator.ui.fleet_columns import JOBS
from tests.harness.mirrored import GIB, Mirrored, job_id

GPU = Gpu(index=0, vram_total_bytes=12 * GIB, vram_free_bytes=3 * GIB, use_percent=91, power_w=170)


def test_a_table_is_told_what_has_changed_and_no_more() -> None:
    """A thousand jobs that stay as they are cost nothing to send."""
    fleet = Mirrored()
    ids = [fleet.job("one", "running"), fleet.job("two")]
    jobs, _ = fleet.update()
    assert [row["id"] for row in jobs.add] == ids
    assert fleet.update() == (Delta([], [], []), Delta([], [], []))
    fleet.job("two", "running")
    jobs, _ = fleet.update()
    assert (jobs.add, jobs.remove) == ([], [])
    assert [(row["id"], row["state"]) for row in jobs.update] == [(ids[1], "running")]
    fleet.hears(fleet.topics.job(ids[1]), b"")
    jobs, _ = fleet.update()
    assert jobs == Delta([], [], [ids[1]])
    assert list(fleet.tables.jobs.rows) == [ids[0]]


def test_progress_is_the_trainers_and_its_end_does_not_drift() -> None:
    """When a job ends was said at its last epoch; heartbeats since do not put it off."""
    fleet = Mirrored()
    key = fleet.job("one", "running", host="pi")
    held = HeldJob(job_id=key, attempt=1, phase="running", progress=0.9)
    fleet.host("pi")
    fleet.progress("one", "pi", 4, 0.5)
    fleet.beats("pi", held)
    row = fleet.job_row("one")
    assert (row["share"], row["epoch"], row["loss"]) == (0.4, "4/10", 0.5)
    assert row["ends"] == round((fleet.now.wall_s + 125.0) * 1000)
    fleet.passes(5.0)
    fleet.beats("pi", held.model_copy(update={"progress": 0.95}))
    jobs, hosts = fleet.update()
    assert not jobs
    assert [row["seen"] for row in hosts.update] == [round(fleet.now.wall_s * 1000)]
    for eta_s in (1e308, 1e13):  # a browser's dates end in 275760
        fleet.progress("one", "pi", 5, 0.5, eta_s)
        assert fleet.now.wall_s * 1000 < fleet.job_row("one")["ends"] < 8.64e15
    own = fleet.job("own", "running", host="pi")
    fleet.beats("pi", HeldJob(job_id=own, attempt=1, phase="running", progress=0.25))
    assert fleet.job_row("own")["share"] == 0.25, "of a trainer without epochs"


def test_a_host_shows_its_use_and_what_it_does() -> None:
    fleet, hold = Mirrored(), Why(code="quiet", by="owner")
    gpus = (GPU, GPU.model_copy(update={"index": 1, "use_percent": 10}))
    key = fleet.job("one", "running", host="pi")
    fleet.host("pi", "one", gpus=gpus, refuses=(hold,))
    assert fleet.host_row("pi").items() >= {
        "ram_used": 6 * GIB, "ram_total": 8 * GIB, "vram_used": 18 * GIB, "vram_total": 24 * GIB,
        "gpu": 91.0, "power": 340.0, "cpu": 30.0, "job": "one", "job_id": key, "jobs": 1,
        "state": "refusing", "tone": "warn", "barred": holds([hold]),
    }.items()  # fmt: skip
    barred = [{"code": "no-slots"}, {"code": "refuses", "holds": [{"code": "starting"}]}]
    told = {"host": "pi", "status": "online", "condition": "drained", "barred": barred}
    fleet.mirror.load_hosts([told])
    row = fleet.host_row("pi")
    assert row["state"] == "drained"
    assert row["barred"] == "; ".join(map(words, barred))
    fleet.status("pi", "offline", "lost")
    row = fleet.host_row("pi")
    old = [row[key] for key in ("cpu", "gpu", "power", "job")]
    assert (row["online"], old) == (False, [None, None, None, ""])
    fleet.host("pc", gpus=tuple(Gpu(index=index, vram_total_bytes=1 << 62) for index in range(8)))
    assert fleet.host_row("pc")["vram_total"] == MOST, "more would take the pages from everybody"


def test_what_a_host_is_at_follows_the_rows_of_the_jobs() -> None:
    fleet = Mirrored()

    def at_work() -> tuple[str, int, bool]:
        row = fleet.host_row("pi")
        return row["job"], row["jobs"], row["ending"]

    fleet.job("one", "running", host="pi")
    fleet.host("pi", "one")
    assert at_work() == ("one", 1, False)
    fleet.job("one", "cancelled", host="pi")
    assert at_work() == ("", 0, True)
    fleet.job("next", "claimed", host="pi")
    assert at_work() == ("next", 1, True)
    fleet.beats("pi", "next")
    assert at_work() == ("next", 1, False)
    fleet.job("next", "completed", host="pi")
    assert at_work() == ("", 0, False), "it had ended before that was known"
    fleet.beats("pi", "unheard-of")
    assert at_work() == ("", 1, False), "of that no row has come yet"


def test_no_name_of_a_field_comes_from_the_wire() -> None:
    """A field whose name begins with a colon would be run as a script by the browser's side."""
    fleet = Mirrored()
    evil = ":onclick"
    fleet.job(evil, "failed", metrics={evil: 1.0, "auroc": 0.9}, error=evil)
    fleet.host("pi", gpus=(GPU,))
    jobs, hosts = fleet.update()
    for row in (*jobs.add, *hosts.add):
        assert all(field.isidentifier() for field in row)
        assert all(not isinstance(value, dict | list) for value in row.values())


@pytest.mark.words
def test_the_first_metric_is_shown_with_its_interval() -> None:
    metrics = {"marks": ["odd"], "auroc": 0.93456, "auroc_ci": [0.9, 0.96], "f1": 0.8}
    assert main_metric(metrics) == ("AUROC", 0.93456, "0.900 to 0.960")
    assert main_metric({"auroc": None, "val\x1b[2J_loss": 0.5})[1:] == (0.5, "")
    assert "\x1b" not in main_metric({"val\x1b[2J_loss": 0.5})[0]
    for wrong in (["x", None], [0.5, 10**400], [0.5]):
        assert main_metric({"auroc": 0.9, "auroc_ci": wrong}) == ("AUROC", 0.9, "")
    assert main_metric(None) == ("", None, "")
    assert main_metric({"done": True, "loss": 0.5})[:2] == ("loss", 0.5)


@pytest.mark.parametrize("is_late", [False, True])
def test_after_a_restore_the_ledger_is_shown_and_not_what_the_broker_retained(
    *, is_late: bool
) -> None:
    fleet = Mirrored()
    key = fleet.job("one", attempt=0)
    listed = [fleet.mirror.jobs[key].model_dump(mode="json")]
    fleet.mirror.expect_jobs()
    if is_late:
        fleet.mirror.load_jobs(listed)
    fleet.job("one", "running", retained=True)
    fleet.job("two", "running", retained=True)
    fleet.job("one", attempt=0)  # published by the restored coordinator
    if not is_late:
        fleet.mirror.load_jobs(listed)
    fleet.update()
    found = counts(fleet.tables.jobs.rows.values())
    assert (found["running"], found["pending"]) == (0, 1)


def test_what_is_no_time_is_none() -> None:
    assert epoch_ms("2026-05-28T20:26:57.250Z") == 1_780_000_017_250
    for text in (None, "", "yesterday", 7, "9999-99-99"):
        assert epoch_ms(text) is None


@pytest.mark.words
@pytest.mark.parametrize(
    ("auroc", "said"), [(0.811503, "0.812"), (0.8114999, "0.811"), (0.0625, "0.062"), (1, "1")]
)
def test_a_score_is_the_same_on_every_face(auroc: float, said: str) -> None:
    fleet, metrics = Mirrored(), {"auroc": auroc}
    fleet.job("one", "completed", metrics=metrics)
    row = fleet.job_row("one")
    column = next(one for one in JOBS if one.key == "value")
    assert (column.cell(row)[0], metric_words(metrics)) == (f"AUROC {said}", f"AUROC {said}")


def test_a_text_means_a_job_as_at_the_command_line() -> None:
    """A name means the entry of the plan; else the start of an id or a name; nothing means none."""
    rows = [
        {"id": "ab1", "name": "gbt", "planned": False},
        {"id": "cd2", "name": "gbt", "planned": True},
        {"id": "ab3", "name": "gbt-2", "planned": True},
    ]  # fmt: skip
    found = [[row["id"] for row in meant(rows, text)] for text in ("gbt", "ab1", "ab", "gbt-", "")]
    assert found == [["cd2"], ["ab1"], ["ab1", "ab3"], ["ab3"], []]


def test_a_job_that_no_host_can_run_is_news_until_one_can() -> None:
    """Its row is made anew though nothing was published of it."""
    fleet = Mirrored()
    fleet.job("one")
    said: dict[str, Any] = {"count": 1, "jobs": [{"job_id": job_id("one"), "name": "one"}]}
    for status, is_so in ((said, True), ({"count": 0, "jobs": []}, False)):
        fleet.update()
        fleet.mirror.load_status({"unplaceable": status})
        jobs, _ = fleet.update()
        assert [row["unplaceable"] for row in jobs.update] == [is_so]
