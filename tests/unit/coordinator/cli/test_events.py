"""`fleet events`: how people write times, and how a line fits their window."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.cli import main
from coordinator.cli.events import moment, together
from coordinator.jobs.causes import cause
from coordinator.ui import terminal

ROW = {
    "at": "2026-05-28T20:26:57.250Z", "who": "operator:alice", "event": "cancel",
    "outcome": "refused", "job_id": "a" * 64, "name": "gbt-oracle", "host": None, "attempt": None,
    "from": None, "to": None, "why": {"code": "signature"},
}  # fmt: skip
any_option: Any = None


@pytest.fixture(autouse=True)
def window() -> Iterator[None]:
    """80 columns, and a clock that is two hours ahead of UTC."""
    if not hasattr(time, "tzset"):
        pytest.skip("this system cannot be told a time zone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("TZ", "UTC-2")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h", 3600), ("1.5h", 5400), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_so_long_ago(text: str, seconds: float) -> None:
    """By the clock of whoever asks."""
    assert moment(any_option, any_option, text) == pytest.approx(time.time() - seconds, abs=5)


@pytest.mark.parametrize(
    ("text", "wall_s"),
    [
        ("2026-05-28T20:30", 1_779_993_000),
        ("2026-05-28 20:30", 1_779_993_000),
        ("2026-05-28T20:30Z", 1_780_000_200),
    ],
)
def test_a_time_is_local_unless_it_says_otherwise(text: str, wall_s: float) -> None:
    """As people read it off the wall."""
    assert moment(any_option, any_option, text) == wall_s


@pytest.mark.parametrize("text", ["", "yesterday", "1", "-1h", "1y", "1h30", "9999-99-99", "1e9h"])
def test_what_is_no_time_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With how to write one; nobody is asked."""
    assert main(["events", "--since", text]) == 2
    assert "90s, 30m, 1h, 7d, or 2026-05-28T20:30" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"why": cause("text", text="x" * 500)},
        {"why": cause("text", text="several words that are longer than a line " * 12)},
        {"why": {}},
        {"name": None, "host": "h" * 63},
        {"name": "n" * 200, "host": "pi", "who": "operator:" + "w" * 63},
        {"name": "evil\x1b[2J\x07", "why": cause("text", text="\x1b]0;title\x07 and\nmore")},
        {"outcome": "done", "event": "assigned", "host": "pi", "attempt": 1,
         "why": cause("text", text="日本" * 60)},
    ],
)  # fmt: skip
def test_a_line_fits_the_window(change: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """And moves no cursor, whatever a host has called itself."""
    terminal.print_event({**ROW, **change})
    out = capsys.readouterr().out
    assert out.startswith("05-28 22:26:57  operator:"), "local time"
    assert max(map(len, out.splitlines())) <= 80
    assert not any(ord(sign) < 32 and sign != "\n" for sign in out)
    assert out.strip()


def test_what_was_refused_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """Who, what, on what, and why."""
    terminal.print_event(ROW)
    assert capsys.readouterr().out.split("\n") == [
        "05-28 22:26:57  operator:alice  cancel refused  gbt-oracle  signed with another",
        "                key, or altered",
        "",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"name": "transformer_ssl-realistic-0055", "host": "gaming-pc-1", "who": "coordinator"},
            ["transformer_ssl-realistic-0055 on gaming-pc-1  why not"],
        ),
        ({"host": None, "who": "host:gaming-pc-1"}, ["host", "gbt-oracle on gaming-pc-1  why not"]),
    ],
    ids=["a long name", "the host has it no more"],
)
def test_the_host_is_never_cut(
    change: Any, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on in the next line, and stands at one place."""
    event = {"outcome": "done", "event": "assigned", "why": cause("text", text="why not")}
    terminal.print_event({**ROW, **event, **change})
    out = capsys.readouterr().out
    words = out.replace("\n                ", " ")
    assert all(part in words for part in says), out
    assert "host:" not in out


def test_what_a_reload_did_to_many_jobs_is_one_line() -> None:
    """With their number and the first names; what else happened stands as it was."""
    left = [{**ROW, "event": "orphaned", "outcome": "done", "why": {"code": "not_in_manifest"},
             "who": "coordinator", "name": f"job-{n}"} for n in range(15)]  # fmt: skip
    later = {**left[0], "at": "2026-05-28T20:27:00.000Z", "name": "alone"}
    ends = [{**ROW, "event": "completed", "outcome": "done", "name": name} for name in ("a", "b")]
    shown = list(together([*left, later, *ends]))
    assert [row["name"] for row in shown] == [
        "15 jobs: job-0, job-1, job-2 and 12 more", "alone", "a", "b"
    ]  # fmt: skip
    assert shown[0]["why"] == {"code": "not_in_manifest"}
