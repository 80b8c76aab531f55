"""Quiet hours: `Mon-Fri 08:00-18:00`, `22:00-07:00`, `Sat,Sun`, by the host's local time.

A period that passes midnight belongs to the day on which it begins. The agent keeps them
(agent/core/owner.py); those of the manifest reach it by coordinator/core/host_rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator

from broker.errors import ConfigError
from broker.figures import span_s

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MIN: Final = 24 * 60
MAX_CHARS: Final = 100
_FORM: Final = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z, -]*?))?\s*(?:(?P<from>\d{1,2}:\d\d)\s*-\s*(?P<to>\d{1,2}:\d\d))?"
)
_EXAMPLES: Final = 'write it like "Mon-Fri 08:00-18:00", "22:00-07:00" or "Sat,Sun"'


@dataclass(frozen=True, slots=True)
class Hours:
    """One period on some days (0 is Monday); minutes after midnight, `to_min` may pass midnight."""

    days: frozenset[int]
    from_min: int
    to_min: int

    def end(self, local: datetime) -> datetime | None:
        """Return when the period around `local` ends; none if there is none."""
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        for day in (midnight, midnight - timedelta(days=1)):
            begins = day + timedelta(minutes=self.from_min)
            ends = day + timedelta(minutes=self.to_min)
            if day.weekday() in self.days and begins <= local < ends:
                return ends
        return None


def _checked(text: str) -> str:
    try:
        parse_hours(text)
    except ConfigError as error:  # pydantic takes none but its own kinds
        raise ValueError(str(error)) from None
    return text


HoursText = Annotated[str, AfterValidator(_checked)]  # of a model


def parse_hours(text: str) -> Hours:
    """Return the period that `text` describes. Raises `ConfigError` with the remedy."""
    found = _FORM.fullmatch(text.strip()) if len(text) <= MAX_CHARS else None
    if found is None or not text.strip():
        raise ConfigError(f"{text[:60]!r} are no hours; {_EXAMPLES}")
    days = _days(found["days"], text)
    if found["from"] is None:
        return Hours(days, 0, DAY_MIN)
    begin, end = _minutes(found["from"], text), _minutes(found["to"], text)
    if begin in {end, DAY_MIN}:
        raise ConfigError(f"{text!r} is empty; a whole day is 00:00-24:00")
    return Hours(days, begin, end if end > begin else end + DAY_MIN)


def quiet_until(hours: Iterable[Hours], local: datetime) -> datetime | None:
    """Return when the quiet hours around `local` end; none outside them, or if they never end."""
    known, until = list(hours), local
    while known and until <= local + timedelta(days=8):
        ends = [end for one in known if (end := one.end(until)) is not None]
        if not ends:
            break
        until = max(ends)
    return None if until == local else until


def told(until: datetime, local: datetime) -> str:
    """Return an end in words: `until 18:00`, `until Mon 08:00`, `always`."""
    if until > local + timedelta(days=7):
        return "always"
    day = f"{DAYS[until.weekday()]} " if until - local >= timedelta(days=1) else ""
    return f"until {day}{until:%H:%M}"


def _days(text: str | None, whole: str) -> frozenset[int]:
    if not text:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        begin, end = _day(first, whole), _day(last if dash else first, whole)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(found)


def _day(word: str, whole: str) -> int:
    names = [name.lower() for name in DAYS]
    if word[:3].lower() not in names or not word.isalpha():
        raise ConfigError(f"{_within(word, whole)} is no day of the week; {_EXAMPLES}")
    return names.index(word[:3].lower())


def _minutes(text: str, whole: str) -> int:
    hour, _, minute = text.partition(":")
    at_min = 60 * int(hour) + int(minute)
    if int(minute) > 59 or at_min > DAY_MIN:
        raise ConfigError(f"{_within(text, whole)} is no time of the day; {_EXAMPLES}")
    return at_min


def _within(part: str, whole: str) -> str:
    """Return the wrong part, with its context."""
    return repr(part) if part == whole.strip() else f"{part!r} in {whole!r}"


_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)")


def seconds_until(text: str, now: datetime) -> float:
    """Return the seconds from `now` to `30m`, `2d`, `18:00` or `2026-05-28T18:00`."""
    remedy = f"{text[:60]!r}: write 30m, 3h, 2d, 18:00 or 2026-05-28T18:00"
    left_s = span_s(text)
    if left_s is None:
        try:
            moment = _named(text, now)
        except (ValueError, OverflowError):
            raise ConfigError(remedy) from None
        left_s = moment.timestamp() - now.timestamp()
    if not 0 < left_s <= 1e7:
        raise ConfigError(f"{remedy}; it must be in the future, and within 115 days")
    return left_s


def _named(text: str, now: datetime) -> datetime:
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    moment = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
    return moment if moment > now else moment + timedelta(days=1)
