"""Why an agent takes no jobs, or has given one back, in words: `Why` of the messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from broker.figures import size, span
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
    "program": "its program could not be used there ({fault})",
    "dataset": "a dataset could not be used there ({fault})",
    "input": "an input could not be used there ({fault})",
    "drained": "drained by {by}",
    "snoozed": "snoozed{until} by {by}",
    "quiet": "quiet{until} by {by}",
    "in_use": "in use: {signs}",
}
# The figures are those of a `Fault`.
FAULTS: Final[Mapping[str, str]] = {
    "not-allowed": "its owner does not let it in",
    "no-signature": "it has no signature that the host can check",
    "bad-certificate": "the certificate of {signer} cannot be read",
    "other-ca": "the certificate of {signer} is not of the fleet's CA",
    "no-operator": "{name} is no operator",
    "other-signer": "the certificate of {signer} is that of {name}",
    "not-valid-yet": "the certificate of {signer} is valid from {day} on",
    "expired": "the certificate of {signer} expired on {day}",
    "bad-crl": "the list of revoked certificates is not the CA's",
    "signer-revoked": "the certificate of {signer} was revoked",
    "bad-signature": "the signature of {signer} is not of this program",
    "no-uv": "the host has no uv; install the extra `programs` there",
    "slow": "its packages were not installed in {limit_s}",
    "not-installed": "uv cannot install its packages: {quoted}",
    "not-sent": "nothing came for {limit_s}",
    "bad-content": "what came is not what was asked for",
    "too-large": "it is larger than {limit_bytes}",
    "no-room": "the host's disk has no room",
    "disk": "the host's disk refuses, by {name}",
    "gone": "it was deleted there meanwhile",
    "leaving": "its agent was told to end",
    "internal": "an error of the agent, {name}",
}
_WHOSE: Final = {"owner": "its owner", "manifest": "the manifest"}


def because(why: _Told) -> str:
    """Return why an agent takes no jobs, or has given one back, in words."""
    code, end = str(why["code"]), str(why.get("until", ""))
    if code == "quiet" and not end:
        return f"always quiet by {_whose(why)}"
    text = why.get("text", "")
    until = f" until {_local(end)}" if end else ""
    told = {
        "text": text, "fault": fault_words(why.get("fault")), "until": until, "by": _whose(why),
        "signs": ", ".join(_signs(why)),
    }  # fmt: skip
    return _WHY[code].format(**told) if code in _WHY else code  # of a newer agent


def fault_words(fault: _Told | None) -> str:
    """Return why something could not be used, in words."""
    if not fault:
        return "its agent does not say why"
    told: dict[str, str] = {key: _figure(key, value) for key, value in fault.items()}
    text = FAULTS.get(told["code"], told["code"])  # of a newer agent
    if "needed_bytes" in told:
        text += " for {needed_bytes}; {free_bytes} is free"
    return text.format_map(defaultdict(str, told)).rstrip(": .")


def _figure(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return size(value)
    return span(value) if key.endswith("_s") else f"{value}"


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
