"""What is read of a machine's use, and the file by which its owner wants it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.effects import Snooze
from agent.host.usage import (
    SNOOZE_FILE,
    Eyes,
    Load,
    by_logind,
    end_snooze,
    in_words,
    read_pmon,
    read_snooze,
    write_snooze,
)

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
NOW_S = 1_000_000.0
PMON = """# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0       1111     G     3     1     -     -   Xorg
    0       2222     C    92    40     -     -   python
    0       3333     G    41    12     -     -   /opt/games/doom --full
    0       4444     C     -     -     -     -   idle-notebook
    1          -     -     -     -     -     -   -
"""


def _session(**said: str) -> str:
    fields = {"Type": "wayland", "Class": "user", "State": "active", "IdleHint": "no",
              "IdleSinceHint": "0", "LockedHint": "no"} | said  # fmt: skip
    return "\n".join(f"{key}={value}" for key, value in fields.items())


@pytest.mark.parametrize(
    ("sessions", "idle_s"),
    [
        ([_session()], [0.0]),
        ([_session(IdleHint="yes", IdleSinceHint="999400000000")], [600.0]),
        ([_session(LockedHint="yes")], [86_400.0]),
        ([_session(Type="tty"), _session(Class="greeter"), _session(State="closing")], []),
        ([_session(IdleHint="yes", IdleSinceHint="999400000000"), _session(Type="x11")],
         [600.0, 0.0]),
        ([""], []),
        (["Failed to connect to bus: no such file"], []),
    ],
)  # fmt: skip
def test_logind_tells_of_graphical_sessions(sessions: list[str], idle_s: list[float]) -> None:
    found = [seconds for _, seconds in by_logind("\n\n".join(sessions), NOW_S)]
    assert found == pytest.approx(idle_s)


def test_other_programs_on_the_gpu_are_named() -> None:
    assert read_pmon(PMON, {2222}) == ("doom",)
    assert read_pmon(PMON, set()) == ("python", "doom")


@pytest.mark.parametrize("text", ["", "Not supported on the device(s)", "# gpu pid\n garbage", "#"])
def test_a_gpu_that_nobody_tells_of_is_not_in_use(text: str) -> None:
    """Windows and WSL say little."""
    assert read_pmon(text, set()) == ()


@pytest.mark.system
def test_what_this_process_does_is_not_others() -> None:
    load, begun = Load(), datetime.now(UTC)
    assert load.others_percent(0.0) is None
    total = 0
    while datetime.now(UTC) - begun < timedelta(seconds=0.3):
        total += sum(range(1000))
    percent = load.others_percent(0.3)
    assert total
    assert percent is not None
    assert 0.0 <= percent <= 100.0
    assert in_words().startswith(("keyboard and mouse", "load"))


@pytest.mark.system
def test_a_look_says_the_time_and_leaves_the_rest_unless_asked(tmp_path: Path) -> None:
    seen = Eyes(tmp_path).look(idle=False)
    assert seen.local.tzinfo is None
    assert abs((datetime.now() - seen.local).total_seconds()) < 60  # noqa: DTZ005 - it is a wall's
    assert (seen.snooze, seen.input_idle_s, seen.gpu_users, seen.others_percent) == (
        None, None, (), None
    )  # fmt: skip
    (tmp_path / SNOOZE_FILE).touch()
    assert Eyes(tmp_path).look(idle=True).snooze == Snooze()


def test_a_snooze_is_read_as_it_was_written(tmp_path: Path) -> None:
    later = NOW + timedelta(hours=3)
    write_snooze(tmp_path, later, at_once=True)
    assert read_snooze(tmp_path, NOW) == Snooze(later.replace(tzinfo=None), now=True)
    east = NOW.astimezone(datetime.fromisoformat("2026-03-02T00:00+05:30").tzinfo)
    found = read_snooze(tmp_path, east)
    assert found is not None
    assert str(found.until) == "2026-03-02 17:30:00"
    assert read_snooze(tmp_path, later) is None
    assert not list(tmp_path.iterdir())
    write_snooze(tmp_path, None, at_once=False)
    assert read_snooze(tmp_path, NOW) == Snooze()
    assert end_snooze(tmp_path)
    assert not end_snooze(tmp_path)
    assert read_snooze(tmp_path, NOW) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"tomorrow", b"x" * 10_000, b"2026", b"9999-12-31T23:59-12:00"],
)
def test_what_cannot_be_understood_holds_until_it_is_deleted(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / SNOOZE_FILE).write_bytes(content)
    assert read_snooze(tmp_path, NOW) == Snooze()
    assert (tmp_path / SNOOZE_FILE).exists()
