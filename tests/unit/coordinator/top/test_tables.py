"""What the full-screen view makes of a copy of the fleet: columns, order, filters, words."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from broker.clock import Now
from broker.protocol.messages import (
    Gpu,
    Heartbeat,
    HeldJob,
    JobRow,
    Progress,
    Status,
    Summary,
    encode,
)
from broker.protocol.topics import Topics
from broker.system.settings import BrokerSettings
from coordinator.client.contact import Outage
from coordinator.client.mirror import Mirror
from coordinator.client.seen import Snapshot
from coordinator.client.watcher import Watcher
from coordinator.top import detail_pages, headline, host_table, job_table, layout
from coordinator.top.dialogs import MARK
from coordinator.ui import words
from coordinator.ui.words import by_row

TOPICS = Topics()
GIB = 2**30


def _id(name: str) -> str:
    return name.encode().hex().ljust(64, "0")


def _status(state: Any = "online", reason: Any = "birth") -> Status:
    return Status(state=state, reason=reason, session="s", instance="i", boot_id="b")


class _Fleet:
    """A mirror that is told of hosts and jobs by messages."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.wall_s = 0.0  # from now on, when messages come

    def hears(self, topic: str, message: Any) -> None:
        self.mirror.apply(TOPICS.parse(topic), encode(message), Now(1.0, time.time() + self.wall_s))

    def job(self, name: str, state: Any = "pending", **more: Any) -> None:
        row = {
            "name": name, "model": "gbt", "mode": "oracle", "priority": 0, "attempt": 1,
            "host": None, "error": None, "artifact_id": None, "metrics": None,
            "created_at": "2026-01-02T12:00:00Z", "started_at": None, "finished_at": None, **more,
        }  # fmt: skip
        self.hears(TOPICS.job(_id(name)), JobRow(job_id=_id(name), state=state, **row))

    def host(self, name: str, *held: str, **more: Any) -> None:
        self.hears(TOPICS.status(name), _status())
        beat = {"ram_available_bytes": GIB, "cpu_percent": 30.0} | more
        holds = tuple(HeldJob(job_id=_id(job), attempt=1, phase="running") for job in held)
        self.hears(
            TOPICS.heartbeat(name), Heartbeat(session="s", instance="i", seq=1, jobs=holds, **beat)
        )

    def progress(self, job: str, host: str, epoch: int, loss: float) -> None:
        said = Progress(attempt=1, epoch=epoch, epochs=10, val_loss=loss, eta_s=125.0)
        self.hears(TOPICS.progress(host, _id(job)), said)

    @property
    def seen(self) -> Snapshot:
        return self.mirror.snapshot()

    def names(self, order: str = "activity", kind: str = "all", text: str = "") -> list[str]:
        found = [line for line in job_table.lines(self.seen) if job_table.is_of(line, kind)]
        found = [line for line in found if not text or job_table.bears(line, text)]
        return [line.row.name for line in sorted(found, key=job_table.ORDERS[order])]


def _cells(line: Any, columns: Any, window: int) -> dict[str, str]:
    return {column.title: column.cell(line, width)[0]
            for column, width in layout.fit(columns, window)}  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "said"),
    [(0.1, "0.1000"), (-0.25, "-0.250"), (1234.5678, "1234.5"), (123456.7, "123456"),
     (12345.678, "12345"), (1234567.8, "1e+06"), (-123456.7, "-1e+05"), (1e308, "1e+308")],
)  # fmt: skip
def test_a_loss_that_grows_is_not_cut_to_a_smaller_one(loss: float, said: str) -> None:
    """A training that diverges is seen to: digits before the point are all there, or none."""
    fleet = _Fleet()
    fleet.host("pi", "a")
    fleet.job("a", "running", host="pi")
    fleet.progress("a", "pi", 3, loss)
    (line,) = job_table.lines(fleet.seen)
    assert _cells(line, job_table.COLUMNS, 80)["LOSS"] == said


@pytest.mark.parametrize("columns", [host_table.COLUMNS, job_table.COLUMNS], ids=["hosts", "jobs"])
@pytest.mark.parametrize("window", [37, 57, 77, 80, 100, 120, 157, 240])
def test_the_columns_fit_the_window(columns: Any, window: int) -> None:
    """From a small terminal on; a wide one has more of them, and no room is left unused."""
    fitted = layout.fit(columns, window)
    total = sum(width for _, width in fitted) + layout.gap(window) * (len(fitted) - 1)
    assert total <= window
    grown = all(width >= column.most for column, width in fitted if column.grows)
    assert total == window or grown
    assert len(layout.fit(columns, 160)) > len(layout.fit(columns, 80))


def test_a_narrow_window_keeps_what_matters_most() -> None:
    """Whole columns and words, fewer of them."""
    titles = [column.title for column, _ in layout.fit(host_table.COLUMNS, 57)]
    assert titles == ["HOST", "STATUS", "CPU", "GPU", "JOB"]
    titles = [column.title for column, _ in layout.fit(job_table.COLUMNS, 57)]
    assert titles == ["JOB", "STATE", "HOST", "PROGRESS"]
    fleet = _Fleet()
    fleet.hears(TOPICS.coordinator_status(), _status())
    for number, state in enumerate(("running", "pending", "failed", "completed", "cancelled")):
        fleet.job(f"job-{number}", state)
    said = ["".join(text for text, _ in headline.counts(fleet.seen, width)) for width in (58, 100)]
    assert said[0] == "hosts 0 online  jobs 1 running 1 pending 1 failed …"
    assert said[1].endswith("1 failed 1 completed 1 cancelled")
    watcher = Watcher(BrokerSettings(url="mqtt://127.0.0.1:1883"))
    watcher._contact.on_connected()
    said = ["".join(text for text, _ in headline.where(fleet.seen, watcher, width))
            for width in (24, 38, 58, 100)]  # fmt: skip
    assert said == [
        "fleet top online",
        "fleet top  coordinator online",
        "fleet top  mqtt://127.0.0.1:1883  coordinator online",
        "fleet top  mqtt://127.0.0.1:1883 fleet  coordinator online  operator:local",
    ]
    fleet.hears(TOPICS.summary(), Summary(jobs={}, hosts={}, plan="the summer's trees " * 3))
    said = ["".join(text for text, _ in headline.where(fleet.seen, watcher, width))
            for width in (24, 58, 82)]  # fmt: skip
    assert said == [
        "fleet top online",
        "fleet top  the summer's trees the…  coordinator online",
        "fleet top  the summer's trees the…  mqtt://127.0.0.1:1883  coordinator online",
    ]


def _shown(what: Any, window: int) -> str:
    out = Console(file=io.StringIO(), width=window)
    out.print(what)
    return str(out.file.getvalue())  # type: ignore[attr-defined] # it is a StringIO


def test_a_history_is_read_in_any_window() -> None:
    """Words that do not fit go on below themselves; a narrow window leaves columns out."""
    why = "its certificate was revoked by operator:alice, and it is given nothing more"
    event = {"at": "2026-01-02T12:00:00Z", "event": "released", "host": "media-box-4", "why": why,
             "who": "operator:root"}  # fmt: skip
    history = detail_pages.history({"events": [event]})
    for window in (51, 90):
        head, _, *body = _shown(history, window).splitlines()
        indent = head.index("WHY")
        assert body[0].index("its certificate") == indent
        assert body[1].startswith(" " * indent)
        assert " ".join(" ".join(line[indent:] for line in body).split()) == why
        assert ("BY" in head) == (window == 90)


def test_a_cell_has_its_width_in_any_script() -> None:
    """Wide characters count as two; what does not fit ends in an ellipsis."""
    assert layout.padded("機械学習", 6) == "機械 …"
    assert cell_len(layout.padded("機械学習", 6)) == 6
    assert layout.padded("abc", 5, right=True) == "  abc"
    assert layout.padded("abcdef", 4) == "abc…"


def test_a_curve_falls_from_its_highest_to_its_lowest() -> None:
    """However many epochs there are; a flat one is flat."""
    assert layout.spark([1.0, 0.5, 0.0], 8) == "█▅▁"
    assert layout.spark([0.3, 0.3], 8) == "▁▁"
    assert layout.spark([], 8) == ""
    assert layout.spark([-1.7e308, 0.0, 1.7e308], 8) == "▁▅█", "their distance is beyond a float"
    long = layout.spark([1 / (epoch + 1) for epoch in range(1000)], 12)
    assert len(long) == 12
    assert long.startswith("█")
    assert long.endswith("▁")


def test_a_row_says_what_the_list_says_of_it() -> None:
    """How long it took and will take, its result, its host; and nothing where there is nothing."""
    fleet = _Fleet()
    fleet.host("pi", "at-work")
    fleet.job("waits", attempt=0)
    fleet.job("at-work", "running", host="pi", started_at="2026-01-02T12:00:00Z")
    fleet.progress("at-work", "pi", 5, 0.1)
    for name, ran_s in (("short", 14.6), ("longer", 108.0), ("long", 3 * 3600.0)):
        fleet.job(name, "completed", host="pi", ran_s=ran_s, metrics={"auroc": 0.91239})
    seen = {}
    for line in job_table.lines(fleet.seen):
        row = line.row.model_dump(mode="json")
        row["left_s"] = line.going.ends_s and 125.0
        cells = _cells(line, job_table.COLUMNS, 160)
        seen[line.row.name] = [cells[name] for name in ("HOST", "AUROC", "TOOK", "ETA")]
        assert seen[line.row.name] == [
            words.host(row), words.score(row["metrics"]), words.took(row), words.left(row)
        ]  # fmt: skip
    assert seen["waits"] == ["", "", "", ""]
    assert seen["at-work"][3] == "2 min"
    assert [seen[name][2] for name in ("short", "longer", "long")] == ["15 s", "2 min", "3.0 h"]


def test_a_job_that_the_manifest_has_no_more_is_marked() -> None:
    """As in `fleet list`; the help says what the mark means."""
    fleet = _Fleet()
    fleet.job("trees-all", "completed", host="desk")
    fleet.job("replaced", "completed", host="desk", in_plan=False)
    fleet.job("waits", in_plan=False)
    for window in (57, 77, 160):
        states = {line.row.name: _cells(line, job_table.COLUMNS, window)["STATE"]
                  for line in job_table.lines(fleet.seen)}  # fmt: skip
        assert states == {"trees-all": "completed", "replaced": "completed*", "waits": "pending*"}
        (width,) = (width for column, width in layout.fit(job_table.COLUMNS, window)
                    if column.title == "STATE")  # fmt: skip
        assert max(map(len, states.values())) <= width
    assert "A state with *" in MARK


def test_a_job_that_was_cancelled_has_no_progress_to_show() -> None:
    """But how long it ran, if it did: no dashes under what only a running job has."""
    fleet = _Fleet()
    fleet.job("begun", "cancelled", started_at="2026-01-02T12:00:00Z",
              finished_at="2026-01-02T12:00:14.600Z")  # fmt: skip
    fleet.job("waited", "cancelled", finished_at="2026-01-02T12:00:15Z")
    said = {line.row.name: line.remark for line in job_table.lines(fleet.seen)}
    assert said == {"begun": ("took 15 s", layout.DIM), "waited": ("", layout.DIM)}


def test_what_runs_stands_first_and_what_is_done_last() -> None:
    """Pending jobs stand as they will be claimed; of what is over, the newest stands first."""
    fleet = _Fleet()
    fleet.job("old", "completed", finished_at="2026-01-02T12:00:00Z")
    fleet.job("new", "completed", finished_at="2026-01-02T13:00:00Z")
    fleet.job("second")
    fleet.job("broken", "failed", finished_at="2026-01-02T13:00:00Z", error="no memory\nTraceback")
    fleet.job("stopped", "cancelled", finished_at="2026-01-02T12:30:00Z")
    fleet.job("urgent", priority=5)
    fleet.job("at-work", "running", host="pi")
    assert fleet.names() == [
        "at-work", "urgent", "second", "broken", "new", "stopped", "old"
    ]  # fmt: skip
    rows = [row.model_dump(mode="json") for row in fleet.seen.jobs.values()]
    assert [row["name"] for row in sorted(rows, key=by_row)] == fleet.names(), "as in `fleet list`"
    assert fleet.names("name") == sorted(fleet.names())
    assert fleet.names(kind="failed") == ["broken"]
    assert fleet.names(kind="active") == ["at-work"]
    assert fleet.names(text="memory") == ["broken"]
    assert fleet.names(text=_id("new")[:6]) == ["new"]


def test_a_running_job_shows_how_far_it_is() -> None:
    """Bar, epochs, time left, loss and curve; of a phase after training the phase."""
    fleet = _Fleet()
    fleet.host("pi", "cnn")
    fleet.job("cnn", "running", host="pi", started_at="2026-01-02T12:00:00Z")
    for epoch, loss in ((1, 0.9), (2, 0.5), (5, 0.1)):
        fleet.progress("cnn", "pi", epoch, loss)
    (line,) = job_table.lines(fleet.seen)
    cells = _cells(line, job_table.COLUMNS, 80)
    assert cells["PROGRESS"] == "━━━━╌╌╌╌ 5/10"
    assert cells["ETA"] == "2 min"
    assert cells["LOSS"] == "0.1000"
    assert cells["CURVE"] == "█▅▁"
    assert "0.9000 → 0.1000, best 0.1000" in detail_pages.job_facts(line.row, fleet.seen, 76).plain


@pytest.mark.parametrize(("since_s", "left"), [(130.0, "soon"), (140.0, "late")])
def test_an_end_that_has_passed_is_said_to_be_late(since_s: float, left: str) -> None:
    """What its trainer said of it is that old."""
    fleet = _Fleet()
    fleet.job("cnn", "running", host="pi")
    fleet.wall_s = -since_s
    fleet.progress("cnn", "pi", 5, 0.1)
    (line,) = job_table.lines(fleet.seen)
    assert _cells(line, job_table.COLUMNS, 80)["ETA"] == left
    said = detail_pages.job_facts(line.row, fleet.seen, 76).plain
    assert ("it should be over" in said) is (left == "late")


def test_when_a_job_ends_whose_host_is_away_nobody_knows() -> None:
    """As `fleet list` has it."""
    fleet = _Fleet()
    fleet.host("pi", "cnn")
    fleet.job("cnn", "running", host="pi", started_at="2026-01-02T12:00:00Z")
    fleet.progress("cnn", "pi", 5, 0.1)
    fleet.hears(TOPICS.status("pi"), _status("offline", "lost"))
    (line,) = job_table.lines(fleet.seen)
    assert _cells(line, job_table.COLUMNS, 80)["ETA"] == "?"


def test_a_failed_job_shows_its_first_words_instead() -> None:
    """Where a running one has its progress; control characters of others are left out."""
    fleet = _Fleet()
    fleet.job("bad", "failed", error="\x1b[2JCUDA out of memory\nTraceback …")
    (line,) = job_table.lines(fleet.seen)
    assert line.remark == ("CUDA out of memory", layout.BAD)


def test_a_host_shows_its_load_and_what_it_does() -> None:
    """GPUs are counted together; a host that is away shows no old figures."""
    fleet = _Fleet()
    gpus = tuple(
        Gpu(index=n, vram_total_bytes=8 * GIB, vram_free_bytes=2 * GIB, use_percent=use, power_w=90)
        for n, use in enumerate((10.0, 95.0))
    )
    fleet.job("cnn", "running", host="pc")
    fleet.host("pc", "cnn", gpus=gpus)
    (line,) = host_table.lines(fleet.seen)
    cells = _cells(line, host_table.COLUMNS, 80)
    assert cells["CPU"].strip() == "30%"
    assert cells["GPU"].strip() == "95%"
    assert cells["VRAM"] == "12/16G"
    assert cells["POWER"] == "180W"
    assert cells["JOB"] == "cnn"
    fleet.hears(TOPICS.status("pc"), _status("offline", "lost"))
    (line,) = host_table.lines(fleet.seen)
    cells = _cells(line, host_table.COLUMNS, 80)
    assert cells["STATUS"] == "offline"
    assert cells["CPU"] == cells["GPU"] == cells["POWER"] == "-"
    assert host_table.is_of(line, "away")


def test_a_barred_host_says_so() -> None:
    """In a word as its status, with the reason in place of its job."""
    fleet = _Fleet()
    fleet.host("pi")
    why = "drained by operator:ann at 2026; `fleet resume pi` lifts it"
    fleet.mirror.load_hosts([{"host": "pi", "status": "online", "condition": "drained",
                              "barred": [why]}])  # fmt: skip
    (line,) = host_table.lines(fleet.seen)
    cells = _cells(line, host_table.COLUMNS, 160)
    assert (cells["STATUS"], cells["JOB"]) == ("drained", why)
    assert "State     drained" in detail_pages.host_facts(line.host, fleet.seen).plain
    assert host_table.is_of(line, "barred")
    assert "1 barred" in "".join(text for text, _ in headline.counts(fleet.seen, 80))


def test_trouble_is_told_and_nothing_else_is() -> None:
    """A coordinator that is away, a broker that is; at the start there is a moment of patience."""
    fleet = _Fleet()
    away = Outage("broker", 0.0, "refused")
    assert headline.trouble(fleet.seen, away, 1.0) == ""
    assert "NO COORDINATOR" in headline.trouble(fleet.seen, Outage("answer", 0.0), 9.0)
    fleet.hears(TOPICS.coordinator_status(), _status())
    assert headline.trouble(fleet.seen, None, 9.0) == ""
    silent = headline.trouble(fleet.seen, Outage("answer", 0.0), 70.0)
    assert "COORDINATOR SILENT for 70 s" in silent
    fleet.hears(TOPICS.coordinator_status(), _status("offline", "lost"))
    assert "COORDINATOR OFFLINE" in headline.trouble(fleet.seen, Outage("coordinator", 0.0), 9.0)
    lost = headline.trouble(fleet.seen, away, 9.0)
    assert "NOT CONNECTED to the broker for 9 s (refused)" in lost


def test_reasons_are_told_once_with_their_hosts() -> None:
    """As many hosts as there may be."""
    data = {
        "summary": "none of 9 known hosts can take it now",
        "hosts": [{"host": f"pi-{n}", "reasons": ["needs CUDA; this host has none"]}
                  for n in range(8)] + [{"host": "pc", "reasons": []}],
    }  # fmt: skip
    text = detail_pages.why(data).plain
    assert text.count("needs CUDA") == 1
    assert "8: pi-0, pi-1, pi-2, pi-3, pi-4, pi-5 and 2 more" in text
    assert "can take it\n  1: pc" in text


def test_what_no_waiting_ends_comes_before_what_passes_and_after_what_would_help() -> None:
    """As `fleet why` and the web page have it: a busy slot is not why a job never runs."""
    reasons = ["needs CUDA; this host has none", "its only slot is busy"]
    change = "if it did not say require_cuda, pi could take it"
    data = {"summary": "none of 1 known host can take it", "suitable": {}, "remedies": [change],
            "hosts": [{"host": "pi", "reasons": reasons}]}  # fmt: skip
    lines = detail_pages.why(data).plain.splitlines()
    assert [line.strip() for line in lines if line] == [
        "none of 1 known host can take it", "What would change that:", change, *reasons, "1: pi"
    ]  # fmt: skip
