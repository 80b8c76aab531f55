"""What people read: tables that fit, times, sizes, and words that came from elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from broker.wrapping import printable
from coordinator.jobs import reason_words
from coordinator.ui import follow, terminal
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.terminal import Text
from tests.harness.drawn import drawn
from tests.harness.mirrored import Mirrored

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
REASON = "denied by [hosts.pi] deny_jobs 'cnn*' :warning: [/bold]"


def _print(thing: Any, width: int = 80, **console: Any) -> str:
    out = io.StringIO()
    made = terminal.console() if not console else Console(**console)
    made.file = out
    made.width = width
    made.print(thing)
    return out.getvalue()


@pytest.mark.words
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
    assert terminal.ago(at, NOW) == said


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(time, "tzset"):
        pytest.skip("Windows has no TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.words
@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("2026-07-01T23:30:00.000Z", "snoozed until 2026-07-02 01:30 CEST by al"),
        ("2026-11-24T01:50:26.584Z", "snoozed until 2026-11-24 02:50 CET by al"),
        ("2026-13-99", "snoozed until 2026-13-99 by al"),
    ],
)
def test_times_within_words_are_those_of_the_reader(until: str, said: str) -> None:
    snoozed = {"code": "snoozed", "host": "pi", "until": until, "who": "al"}
    assert reason_words.words(snoozed, remedy=False) == said
    assert _print(terminal.Line(f"at {until}")).strip() == f"at {until}"
    assert said == f"snoozed until {reason_words.moment(until)} by al"
    assert terminal.local("2026-07-01T23:30:00.000Z") == "07-02 01:30:00"
    assert terminal.local("at some time") == "at some time"


def test_reasons_hang_beside_their_host() -> None:
    text = "pi  snoozed until Monday; `fleet resume pi` ends it\n      b"
    said = terminal.paragraph(text, 2, hang=4)
    lines = _print(said, 40, force_terminal=True, color_system=None).splitlines()
    assert [line.rstrip() for line in lines] == [
        "  pi  snoozed until Monday;",
        "      `fleet resume pi` ends it",
        "      b",
    ]
    whole = drawn([said], terminal.PIPE_WIDTH).splitlines()
    assert whole[0] == f"  {text.splitlines()[0]}", "whole in a pipe"


@pytest.mark.parametrize("width", [80, 160])
def test_tables_fit_the_window(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [("transformer_ssl-realistic" * 3, terminal.state("completed"), 123456, "a" * 12)]
    columns = (Column("JOB", least=12), Column("STATE"), Column("PRIO"), Column("ID", least=4))
    text = _print(Table(columns, rows), width)
    assert max(map(len, text.splitlines())) <= width
    assert "completed  123456  aaaaaaa" in text
    assert ("…" in text) == (width == 80)


def test_brackets_in_a_reason_are_text() -> None:
    assert REASON in _print(REASON)
    assert REASON in _print(Table([Column("WHY")], [(REASON,)]))


def test_a_host_cannot_move_the_cursor() -> None:
    evil = "\x1b]0;title\x07\x1b[2Jerror\x9b1m\r"
    assert printable(evil) == "]0;titleerror"
    assert printable("tab\tand\nline") == "tab\tand\nline"
    assert "\x1b" not in _print(Table([Column("X"), Column("Y")], [(evil, evil)]))
    assert terminal.first_line(f"\n{evil}\nmore") == "]0;titleerror"


def test_colour_is_for_terminals_and_not_for_those_who_do_not_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    failed = Text("failed", style="red")
    assert "\x1b" not in _print(failed)
    assert "\x1b[31m" in _print(failed, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in _print(failed, force_terminal=True)


@pytest.mark.words
@pytest.mark.parametrize("wide", [False, True])
def test_the_live_table_shows_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    monkeypatch.setenv("COLUMNS", "160" if wide else "80")
    fleet = Mirrored()
    name = "cnn-oracle" + "-long" * 4
    fleet.job(name, "running", host="pi-in-the-attic")
    fleet.host("pi-in-the-attic", name)
    fleet.progress(name, "pi-in-the-attic", 5, 0.25)
    job = fleet.job_row(name)
    over = {"state": "pending", "ends": None, "loss": None}
    rows = [*(job | over | {"id": str(n)} for n in range(40)), job]
    counts = "1 running, 40 pending"
    text = _print(follow.live_table(rows, counts, 30), 160 if wide else 80)
    assert "━━━╌╌╌ 5/10" in text
    assert "0.2500" in text
    assert "1 running, 40 pending, 11 more jobs not shown" in text
    assert text.count("cnn-oracle") == 30
    assert max(map(len, text.splitlines())) <= (160 if wide else 80)
