"""What the web page's tables show of a fleet, and what they are told when it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nicegui.json import dumps

from broker.clock import Now
from broker.protocol.messages import Capability, Gpu, Heartbeat, HeldJob, Progress, Status, encode
from broker.protocol.topics import Topics
from coordinator.client.mirror import Mirror
from coordinator.jobs.set_aside import metric_words
from coordinator.ui.words import score
from coordinator.web.pages import curves_page, timeline_page
from coordinator.web.rows import Delta, Tables, counts, epoch_ms, main_metric, meant

TOPICS = Topics()
JOB, OTHER = "a" * 64, "b" * 64
GIB = 1024**3


class _Fleet:
    """A mirror that hears messages, and the tables that are made of it."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.tables = Tables()
        self.now = Now(0.0, 1_000_000.0)

    def passes(self, seconds: float) -> None:
        self.now = Now(self.now.mono_s + seconds, self.now.wall_s + seconds)

    def hears(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        self.mirror.apply(TOPICS.parse(topic), payload, self.now, retained=retained)

    def job(self, job_id: str = JOB, *, retained: bool = False, **row: Any) -> None:
        made = {
            "v": 1, "job_id": job_id, "name": "gbt-oracle", "model": "gbt", "mode": "oracle",
            "state": "running", "priority": 0, "attempt": 1, "host": "pi", "error": None,
            "artifact_id": None, "metrics": None, "created_at": "2026-05-28T20:26:57.250Z",
            "started_at": None, "finished_at": None,
        } | row  # fmt: skip
        self.hears(TOPICS.job(job_id), json.dumps(made).encode(), retained=retained)

    def host(self) -> None:
        status = Status(state="online", session="s", instance="i", boot_id="b")
        self.hears(TOPICS.status("pi"), encode(status))
        gpu = Gpu(index=0, vram_total_bytes=12 * GIB)
        self.hears(TOPICS.capability("pi"), encode(Capability(
            session="s", instance="i", os="Linux", arch="aarch64", python="3.12", physical_cores=4,
            ram_total_bytes=8 * GIB, ram_available_bytes=6 * GIB, gpus=(gpu,),
        )))  # fmt: skip

    def beats(self, seq: int, *jobs: HeldJob, **more: Any) -> None:
        gpu = Gpu(index=0, vram_free_bytes=3 * GIB, use_percent=91.0, power_w=170.0)
        self.hears(TOPICS.heartbeat("pi"), encode(Heartbeat(
            session="s", instance="i", seq=seq, ram_available_bytes=2 * GIB, cpu_percent=80.0,
            gpus=(gpu,), jobs=jobs, **more,
        )))  # fmt: skip

    def epoch(self, epoch: int, eta_s: float = 100.0) -> None:
        progress = Progress(attempt=1, epoch=epoch, epochs=10, val_loss=0.5, eta_s=eta_s)
        self.hears(TOPICS.progress("pi", JOB), encode(progress))

    def update(self) -> tuple[Delta, Delta]:
        return self.tables.update(self.mirror.snapshot(), self.now)


def test_a_table_is_told_what_has_changed_and_no_more() -> None:
    """A thousand jobs that stay as they are cost nothing to send."""
    fleet = _Fleet()
    fleet.job()
    fleet.job(OTHER, state="pending", host=None)
    jobs, _ = fleet.update()
    assert [row["id"] for row in jobs.add] == [JOB, OTHER]
    assert fleet.update() == (Delta([], [], []), Delta([], [], []))
    fleet.job(OTHER, state="running")
    jobs, _ = fleet.update()
    assert (jobs.add, jobs.remove) == ([], [])
    assert [(row["id"], row["state"]) for row in jobs.update] == [(OTHER, "running")]
    fleet.hears(TOPICS.job(OTHER), b"")
    jobs, _ = fleet.update()
    assert jobs == Delta([], [], [OTHER])
    assert list(fleet.tables.jobs.rows) == [JOB]


def test_progress_is_the_trainers_and_its_end_does_not_drift() -> None:
    """When a job ends was said at its last epoch; heartbeats since do not put it off."""
    fleet = _Fleet()
    fleet.host()
    fleet.job()
    held = HeldJob(job_id=JOB, attempt=1, phase="running", progress=0.9)
    fleet.epoch(4)
    fleet.beats(1, held)
    fleet.update()
    row = fleet.tables.jobs.rows[JOB]
    assert (row["share"], row["epoch"], row["loss"]) == (0.4, "4/10", 0.5)
    assert row["ends"] == round((fleet.now.wall_s + 100.0) * 1000)
    fleet.passes(5.0)
    fleet.beats(2, held.model_copy(update={"progress": 0.95}))
    jobs, hosts = fleet.update()
    assert not jobs
    assert [row["seen"] for row in hosts.update] == [round(fleet.now.wall_s * 1000)]


@pytest.mark.parametrize("eta_s", [1e308, 1e13])
def test_an_end_that_no_date_holds_keeps_no_page_from_the_news(eta_s: float) -> None:
    """A trainer that reckons wrongly is shown to end late; a browser's dates end in 275760."""
    fleet = _Fleet()
    fleet.job()
    fleet.epoch(1, eta_s=eta_s)
    jobs, _ = fleet.update()
    assert fleet.now.wall_s * 1000 < jobs.add[0]["ends"] < 8.64e15


def test_memory_beyond_what_a_page_can_be_sent_is_cut() -> None:
    """A host that says so of eight GPUs must not take the pages from everybody."""
    fleet = _Fleet()
    fleet.host()
    gpus = tuple(Gpu(index=index, vram_total_bytes=1 << 62) for index in range(8))
    fleet.hears(TOPICS.capability("pi"), encode(Capability(
        session="s", instance="i", os="Linux", arch="x86_64", python="3.12", physical_cores=4,
        ram_total_bytes=8 * GIB, ram_available_bytes=6 * GIB, gpus=gpus,
    )))  # fmt: skip
    _, hosts = fleet.update()
    assert "9223372036854775807" in dumps(hosts.add)


def test_a_trainer_without_epochs_is_as_far_as_its_heartbeat_says() -> None:
    """So that a trainer of one's own shows a bar, too."""
    fleet = _Fleet()
    fleet.host()
    fleet.job()
    fleet.beats(1, HeldJob(job_id=JOB, attempt=1, phase="running", progress=0.25))
    fleet.update()
    assert fleet.tables.jobs.rows[JOB]["share"] == 0.25


def test_a_host_shows_its_use_and_what_it_does() -> None:
    """Memory that is used, of all there is; an offline host shows none of it."""
    fleet = _Fleet()
    fleet.host()
    fleet.job()
    fleet.beats(1, HeldJob(job_id=JOB, attempt=1, phase="running"), refuses="quiet hours")
    fleet.update()
    row = fleet.tables.hosts.rows["pi"]
    assert (row["ram_used"], row["ram_total"]) == (6 * GIB, 8 * GIB)
    assert (row["vram_used"], row["vram_total"]) == (9 * GIB, 12 * GIB)
    assert (row["gpu"], row["power"], row["cpu"]) == (91.0, 170.0, 80.0)
    assert (row["job"], row["job_id"], row["jobs"]) == ("gbt-oracle", JOB, 1)
    assert (row["state"], row["tone"], row["barred"]) == ("refusing", "warn", "quiet hours")
    gone = Status(state="offline", reason="lost", session="s", instance="i", boot_id="b")
    fleet.hears(TOPICS.status("pi"), encode(gone))
    _, hosts = fleet.update()
    assert [(row["online"], row["cpu"], row["job"]) for row in hosts.update] == [(False, None, "")]


def test_what_a_host_is_at_follows_the_rows_of_the_jobs() -> None:
    """Its last heartbeat may be older: what was cancelled is ending, what was given is its job."""
    fleet = _Fleet()

    def at_work() -> tuple[str, int, bool]:
        fleet.update()
        row = fleet.tables.hosts.rows["pi"]
        return row["job"], row["jobs"], row["ending"]

    fleet.host()
    fleet.job()
    fleet.beats(1, HeldJob(job_id=JOB, attempt=1, phase="running"))
    assert at_work() == ("gbt-oracle", 1, False)
    fleet.job(state="cancelled")
    assert at_work() == ("", 0, True)
    fleet.job(OTHER, name="next", state="claimed")
    assert at_work() == ("next", 1, True)
    fleet.beats(2, HeldJob(job_id=OTHER, attempt=1, phase="running"))
    assert at_work() == ("next", 1, False)
    fleet.job(OTHER, name="next", state="completed")
    assert at_work() == ("", 0, False), "it had ended before that was known"
    fleet.beats(3, HeldJob(job_id="c" * 64, attempt=1, phase="running"))
    assert at_work() == ("", 1, False), "of that no row has come yet"


def test_what_the_coordinator_has_from_the_host_is_said_once() -> None:
    """Its row names the host's own refusal among the reasons; the heartbeat has it, too."""
    fleet = _Fleet()
    fleet.host()
    fleet.beats(1, refuses="quiet hours")
    row = {"host": "pi", "status": "online", "condition": "drained"}
    why = ["drained by x", "takes no jobs now: quiet hours"]
    fleet.mirror.load_hosts([row | {"barred": why}])
    fleet.update()
    shown = fleet.tables.hosts.rows["pi"]
    assert (shown["barred"], shown["state"]) == ("drained by x; quiet hours", "drained")


def test_no_name_of_a_field_comes_from_the_wire() -> None:
    """A field whose name begins with a colon would be run as a script by the browser's side."""
    fleet = _Fleet()
    evil = ":onclick"
    fleet.job(metrics={evil: 1.0, "auroc": 0.9}, name=evil, error=evil, state="failed")
    fleet.host()
    fleet.beats(1)
    jobs, hosts = fleet.update()
    for row in (*jobs.add, *hosts.add):
        assert all(field.isidentifier() for field in row)
        assert all(not isinstance(value, dict | list) for value in row.values())


def test_the_most_telling_metric_is_shown_with_its_interval() -> None:
    """AUROC where there is one; what is no number is no metric."""
    metrics = {"f1": 0.8, "auroc": 0.93456, "auroc_ci": [0.9, 0.96]}
    assert main_metric(metrics) == ("auroc", 0.93456, "0.900 to 0.960")
    assert main_metric({"auroc": None, "macro_f1": 0.5}) == ("macro_f1", 0.5, "")
    assert main_metric({"auroc": 0.9, "auroc_ci": ["x", None]}) == ("auroc", 0.9, "")
    assert main_metric({"auroc": 0.9, "auroc_ci": [0.5, 10**400]}) == ("auroc", 0.9, "")
    assert main_metric(None) == ("", None, "")


@pytest.mark.parametrize("is_late", [False, True])
def test_after_a_restore_the_ledger_is_shown_and_not_what_the_broker_retained(
    *, is_late: bool
) -> None:
    """Retained rows of a later time come before the coordinator's list, or after it."""
    fleet = _Fleet()
    fleet.job(attempt=0, state="pending", host=None)
    listed = [fleet.mirror.jobs[JOB].model_dump(mode="json")]
    fleet.mirror.expect_jobs()
    if is_late:
        fleet.mirror.load_jobs(listed)
    fleet.job(retained=True)
    fleet.job(OTHER, retained=True)
    fleet.job(attempt=0, state="pending", host=None)  # published by the restored coordinator
    if not is_late:
        fleet.mirror.load_jobs(listed)
    fleet.update()
    found = counts(fleet.tables.jobs.rows.values())
    assert (found["running"], found["pending"]) == (0, 1)


def test_counts_and_times() -> None:
    """Every state is counted; what is no time is none."""
    fleet = _Fleet()
    fleet.job()
    fleet.job(OTHER, state="failed", error="x")
    fleet.update()
    found = counts(fleet.tables.jobs.rows.values())
    assert (found["running"], found["failed"], found["pending"]) == (1, 1, 0)
    assert epoch_ms("2026-05-28T20:26:57.250Z") == 1_780_000_017_250
    for text in (None, "", "yesterday", 7, "9999-99-99"):
        assert epoch_ms(text) is None


@pytest.mark.parametrize(
    ("auroc", "said"), [(0.811503, "0.812"), (0.8114999, "0.811"), (0.0625, "0.062"), (1, "1.000")]
)
def test_a_score_is_the_same_on_every_face(auroc: float, said: str) -> None:
    """Rounded once: in the table of jobs, at the command line, in what a requeue says."""
    fleet, metrics = _Fleet(), {"auroc": auroc}
    fleet.job(state="completed", metrics=metrics)
    fleet.update()
    (row,) = fleet.tables.jobs.rows.values()
    assert (row["score"], score(metrics), metric_words(metrics)) == (said, said, f"AUROC {said}")


def test_a_job_that_was_gone_is_drawn_again_when_it_comes_back() -> None:
    """Its bar was taken away with it, in the browser; as when a ledger is put back."""
    fleet = _Fleet()
    fleet.job(started_at="2026-05-28T20:30:00.000Z")
    fleet.update()
    bars = timeline_page.Bars(fleet.tables.jobs.rows.values())
    listed = [fleet.mirror.jobs[JOB].model_dump(mode="json")]
    fleet.mirror.expect_jobs()
    fleet.mirror.load_jobs([])
    gone, _ = fleet.update()
    assert (gone.remove, bars.take(gone)) == ([JOB], [])
    fleet.mirror.load_jobs(listed)
    back, _ = fleet.update()
    assert [bar["id"] for bar in bars.take(back)] == [JOB]


def test_curves_are_of_so_many_jobs() -> None:
    """One is one; who has told no loss yet is not taken for nobody."""
    told = ["nothing runs now", "of 1 running job", "of 2 running jobs"]
    assert [curves_page.heading(count, count) for count in range(3)] == told
    assert curves_page.heading(0, 2) == "of 0 of 2 running jobs; the others have told no loss yet"


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
    fleet = _Fleet()
    fleet.job(state="pending", host=None)
    said = {"count": 1, "jobs": [{"job_id": JOB, "name": "gbt-oracle"}]}
    for status, is_so in ((said, True), ({"count": 0, "jobs": []}, False)):
        fleet.update()
        fleet.mirror.load_status({"unplaceable": status})
        jobs, _ = fleet.update()
        assert [row["unplaceable"] for row in jobs.update] == [is_so]
