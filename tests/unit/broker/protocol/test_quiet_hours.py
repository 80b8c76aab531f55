"""Quiet hours, by the clock on the wall."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent.service.settings import AgentSettings
from broker.errors import ConfigError
from broker.protocol.quiet_hours import parse_hours, quiet_until, seconds_until, told


def at(text: str) -> datetime:
    """A time in a week that begins on Monday, 2 March 2026: `Wed 09:30`."""
    day, _, clock = text.partition(" ")
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    hour, minute = clock.split(":")
    return datetime(2026, 3, 2 + days.index(day), int(hour), int(minute))  # noqa: DTZ001 - a wall's


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        ("Mon-Fri 08:00-18:00", "Mon 08:00", "until 18:00"),
        ("Mon-Fri 08:00-18:00", "Mon 07:59", ""),
        ("Mon-Fri 08:00-18:00", "Mon 18:00", ""),
        ("Mon-Fri 08:00-18:00", "Sat 12:00", ""),
        ("22:00-07:00", "Tue 23:30", "until 07:00"),
        ("22:00-07:00", "Tue 06:59", "until 07:00"),
        ("22:00-07:00", "Tue 07:00", ""),
        ("Fri 22:00-07:00", "Sat 03:00", "until 07:00"),
        ("Fri 22:00-07:00", "Fri 03:00", ""),
        ("Sun 22:00-07:00", "Mon 03:00", "until 07:00"),
        ("Sat,Sun", "Sat 10:00", "until Mon 00:00"),
        ("sat-mon 10:00-11:00", "Mon 10:30", "until 11:00"),
        ("Fri-Mon", "Sun 10:00", "until Tue 00:00"),
        ("Monday 9:00-24:00", "Mon 23:59", "until 00:00"),
        ("00:00-24:00", "Thu 12:00", "always"),
    ],
)
def test_when_it_is_quiet_and_until_when(hours: str, now: str, end: str) -> None:
    until = quiet_until([parse_hours(hours)], at(now))
    assert ("" if until is None else told(until, at(now))) == end


def test_stretches_that_touch_are_one() -> None:
    hours = [parse_hours("08:00-18:00"), parse_hours("18:00-22:00"), parse_hours("21:00-23:00")]
    assert quiet_until(hours, at("Mon 09:00")) == at("Mon 23:00")


@pytest.mark.parametrize(
    "text",
    ["", "8-18", "08:00", "08:00-08:00", "08:61-09:00", "25:00-26:00", "24:00-08:00", "Mo-Fr",
     "Mon-Funday 08:00-18:00", "Mon-Fri 08:00-18:00 please", "08:00 18:00", "Mon--Fri", "Mon Tue",
     "-08:00", "x" * 5000],
)  # fmt: skip
def test_what_is_no_hours_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"08:00-18:00|00:00-24:00"):
        parse_hours(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Funday", "'Funday' is no day of the week; "),
        ("Mon,Fx 08:00-18:00", "'Fx' in 'Mon,Fx 08:00-18:00' is no day of the week; "),
        ("Mon 08:00-25:00", "'25:00' in 'Mon 08:00-25:00' is no time of the day; "),
    ],
)
def test_what_is_wrong_in_hours_is_told_once(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'[agent]\nquiet_hours = ["Sat", "{text}"]\n')
    with pytest.raises(ConfigError) as refusal:
        AgentSettings.load(file, None, {})
    said = str(refusal.value)
    assert said.startswith(f"{file}: [agent] quiet_hours: {told}write it like ")
    assert said.count(text) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("30m", 1800), ("3h", 10_800), ("1.5h", 5400), ("2d", 172_800),
        ("18:00", 9 * 3600), ("09:00", 24 * 3600), ("8:30", 23.5 * 3600),
        ("2026-03-02T12:00", 3 * 3600), ("2026-03-02T12:00+00:00", 4 * 3600),
    ],
)  # fmt: skip
def test_how_long_until(text: str, seconds: float) -> None:
    now = datetime(2026, 3, 2, 9, 0, tzinfo=timezone(timedelta(hours=1)))
    assert seconds_until(text, now) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3", "0h", "h", "-3h", "25:00", "2020-01-01T00:00", "900d"])
def test_a_time_that_is_none_or_past_is_told(text: str) -> None:
    now = datetime(2026, 3, 2, 9, 0, tzinfo=timezone(timedelta(hours=1)))
    with pytest.raises(ConfigError, match="30m, 3h, 2d, 18:00"):
        seconds_until(text, now)
