"""What people read: tables that fit, times, sizes, and words that came from elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from broker.sentences import printable
from coordinator.ui import job_board, outlook, terminal
from coordinator.ui.terminal import Text

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
REASON = "denied by [hosts.pi] deny_jobs 'cnn*' :warning: [/bold]"


def _print(thing: Any, width: int = 80, **console: Any) -> str:
    out = io.StringIO()
    made = terminal.console() if not console else Console(**console)
    made.file = out
    made.width = width
    made.print(thing)
    return out.getvalue()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-01-02T11:59:59.500Z", "now"),
        ("2026-01-02T11:59:15.000Z", "45 s ago"),
        ("2026-01-02T11:57:00.000Z", "3 min ago"),
        ("2026-01-02T09:30:00.000Z", "2.5 h ago"),
        ("2025-12-29T12:00:00.000Z", "4 d ago"),
        (None, ""),
    ],
)
def test_times_are_relative(at: str | None, said: str) -> None:
    """As people say them."""
    assert terminal.ago(at, NOW) == said


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's clock is Berlin's."""
    if not hasattr(time, "tzset"):
        pytest.skip("Windows has no TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("snoozed until 2026-07-01 23:30 UTC by al", "snoozed until 2026-07-02 01:30 CEST by al"),
        ("until 2026-11-24T01:50:26.584Z; it", "until 2026-11-24 02:50 CET; it"),
        ("at 2026-11-24 01:50 CET", "at 2026-11-24 01:50 CET"),
        ("no such day: 2026-13-99 01:50 UTC", "no such day: 2026-13-99 01:50 UTC"),
        ("quiet hours until 22:00", "quiet hours until 22:00"),  # the host's own clock
        ("run-2026-11-24T01:50:26Zulu", "run-2026-11-24T01:50:26Zulu"),
    ],
)
def test_times_within_words_are_those_of_the_reader(words: str, said: str) -> None:
    """With the zone, whoever wrote them: tables, lines and sentences say the same hour."""
    assert terminal.told(words) == said
    assert _print(terminal.Line(words)).strip() == said
    assert _print(terminal.table(["WHY"], [(words,)])).splitlines()[-1].strip() == said


@pytest.mark.usefixtures("in_berlin")
def test_a_time_of_its_own_has_its_zone() -> None:
    """The one in an answer is the one in the reasons."""
    assert terminal.moment("2026-07-01T23:30:00.000Z") == "2026-07-02 01:30 CEST"
    assert terminal.local("2026-07-01T23:30:00.000Z") == "07-02 01:30:00"
    assert terminal.local("at some time") == "at some time"


def test_reasons_hang_beside_their_host() -> None:
    """On a terminal what does not fit goes on below itself, and a command stays whole."""
    out = Console(file=io.StringIO(), force_terminal=True, width=40, color_system=None)
    outlook.say_beside(
        out, Text("pi  "), ["snoozed until Monday; `fleet resume pi` ends it", "b"], 2
    )
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined] # it is a StringIO
    assert [line.rstrip() for line in lines] == [
        "  pi  snoozed until Monday;",
        "      `fleet resume pi` ends it",
        "      b",
    ]


def test_a_metric_has_its_interval_where_there_is_one() -> None:
    """And a metric that is missing is nothing."""
    metrics = {"auroc": 0.91239, "auroc_ci": [0.9, 0.95], "f1": 0.5, "f1_ci": [None, None]}
    assert terminal.figure(metrics, "auroc") == "0.912 [0.90, 0.95]"
    assert terminal.figure(metrics, "f1") == "0.500"
    assert terminal.figure(metrics, "accuracy") == terminal.figure(None, "f1") == ""
    odd = {"auroc": 0.9, "auroc_ci": ["0.8", "0.95"], "f1": 10**400}
    assert terminal.figure(odd, "auroc") == "0.900", "as a trainer of somebody's own may say it"
    assert terminal.figure(odd, "f1") == ""


@pytest.mark.parametrize("width", [80, 160])
def test_tables_fit_the_window(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The id gives way, then a long name; the figures in the middle stay whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [("transformer_ssl-realistic" * 3, terminal.state("completed"), 123456, "a" * 12)]
    text = _print(terminal.table(("JOB", "STATE", ">PRIO", "ID"), rows), width)
    assert max(map(len, text.splitlines())) <= width
    assert "completed  123456  aaaaaaa" in text
    assert ("…" in text) == (width == 80)


def test_brackets_in_a_reason_are_text() -> None:
    """A reason names a table of the manifest; that is no markup and no emoji."""
    assert REASON in _print(REASON)
    assert REASON in _print(terminal.table(("WHY",), [(REASON,)]))


def test_a_host_cannot_move_the_cursor() -> None:
    """Control characters of others are left out, in tables and in lines."""
    evil = "\x1b]0;title\x07\x1b[2Jerror\x9b1m\r"
    assert printable(evil) == "]0;titleerror"
    assert printable("tab\tand\nline") == "tab\tand\nline"
    assert "\x1b" not in _print(terminal.table(("X", "Y"), [(evil, evil)]))
    assert terminal.first_line(f"\n{evil}\nmore") == "]0;titleerror"


def test_colour_is_for_terminals_and_not_for_those_who_do_not_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No escape in a pipe, nor under NO_COLOR."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    failed = Text("failed", style="red")
    assert "\x1b" not in _print(failed)
    assert "\x1b[31m" in _print(failed, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in _print(failed, force_terminal=True)


@pytest.mark.parametrize("wide", [False, True])
def test_the_live_table_shows_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    """Bar and epoch; the loss where there is room; what runs comes first, the rest is counted."""
    monkeypatch.setenv("COLUMNS", "160" if wide else "80")
    job = {
        "job_id": "a" * 64, "name": "cnn-oracle" + "-long" * 8, "state": "running",
        "host": "pi-in-the-attic", "metrics": {"auroc": 0.9}, "started_at": "2026-01-02T11:00:00Z",
        "attempt": 1, "progress": {"epoch": 3, "epochs": 6, "val_loss": 0.25, "phase": "train"},
    }  # fmt: skip
    rows = [*({**job, "job_id": str(n), "state": "pending"} for n in range(40)), job]
    counts = "1 running, 40 pending"
    text = _print(job_board.live_table(rows, counts, 30), 160 if wide else 80)
    assert "━━━━━━╌╌╌╌╌╌ 3/6" in text
    assert ("0.2500" in text) == wide
    assert "1 running, 40 pending, 11 more jobs not shown" in text
    assert text.count("cnn-oracle") == 30
    assert max(map(len, text.splitlines())) <= (160 if wide else 80)
