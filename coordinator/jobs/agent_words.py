"""Why an agent takes no jobs, or has given one back, in words: `Why` of the messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from broker.figures import span
from broker.protocol.messages import Why
from broker.protocol.quiet_hours import DAYS

_Told = Mapping[str, Any]
_WHY: Final[Mapping[str, str]] = {
    "starting": "it is starting",
    "leaving": "its agent was told to end",
    "interrupted": "its agent was killed while it ran",
    "lease": "the coordinator did not renew its lease in time",
    "busy": "no slot came free",
    "data": "its prepared data is not there ({text})",
    "program": "its program could not be used there ({text})",
    "dataset": "a dataset could not be used there ({text})",
    "input": "an input could not be used there ({text})",
    "drained": "drained by {by}",
    "snoozed": "snoozed{until} by {by}",
    "quiet": "quiet{until} by {by}",
    "in_use": "in use: {signs}",
}
_WHOSE: Final = {"owner": "its owner", "manifest": "the manifest"}


def because(why: _Told) -> str:
    """Return why an agent takes no jobs, or has given one back, in words."""
    code, end = str(why["code"]), str(why.get("until", ""))
    if code == "quiet" and not end:
        return f"always quiet by {_whose(why)}"
    text = why.get("text", "")
    until = f" until {_local(end)}" if end else ""
    told = {"text": text, "until": until, "by": _whose(why), "signs": ", ".join(_signs(why))}
    return _WHY[code].format(**told) if code in _WHY else code  # of a newer agent


def _whose(why: _Told) -> str:
    by = str(why.get("by", ""))
    return _WHOSE.get(by, by)


def _local(at: str) -> str:
    """Return a time by a host's own clock, which may be in another zone: `Mon 2026-05-25 18:00`."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at
    return f"{DAYS[then.weekday()]} {then:%Y-%m-%d %H:%M}"


def _signs(why: _Told) -> Iterator[str]:
    """Yield the signs that somebody uses a machine."""
    if (idle_s := why.get("input_idle_s")) is not None:
        yield "keyboard " + ("now" if idle_s < 60 else f"{span(idle_s)} ago")
    if users := why.get("gpu_users"):
        yield f"GPU by {', '.join(users)}"
    if (percent := why.get("others_percent")) is not None:
        yield f"{percent:.0f} % of the CPU by others"


def holds(told: Iterable[_Told | Why]) -> str:
    """Return why a host takes no jobs by its own word, in one line."""
    return "; ".join(because(one.told() if isinstance(one, Why) else one) for one in told)
