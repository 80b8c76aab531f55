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
    assert moment(any_option, any_option, text) == wall_s


@pytest.mark.parametrize("text", ["", "yesterday", "1", "-1h", "1y", "1h30", "9999-99-99", "1e9h"])
def test_what_is_no_time_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--since", text]) == 2
    assert "90s, 30m, 1h, 7d, or 2026-05-28T20:30" in " ".join(capsys.readouterr().err.split())


@pytest.mark.words
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
        {"name": "transformer_ssl-realistic-0055", "host": "gaming-pc-1", "who": "coordinator"},
        {"host": None, "who": "host:gaming-pc-1"},
    ],
)  # fmt: skip
def test_a_line_fits_the_window(change: Any, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_event({**ROW, **change})
    out = capsys.readouterr().out
    assert out.startswith("05-28 22:26:57  "), "local time"
    if "gaming-pc-1" in str(change):
        words = out.replace("\n                ", " ")
        assert " on gaming-pc-1 " in words, "a host is never cut, and stands at one place"
        assert "host:" not in words
    assert max(map(len, out.splitlines())) <= 80
    assert not any(ord(sign) < 32 and sign != "\n" for sign in out)
    assert out.strip()


@pytest.mark.words
def test_what_was_refused_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_event(ROW)
    assert capsys.readouterr().out.split("\n") == [
        "05-28 22:26:57  operator:alice  cancel refused  gbt-oracle  signed with another",
        "                key, or altered",
        "",
    ]


@pytest.mark.words
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
