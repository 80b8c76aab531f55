"""Jobs that come before another one, in words: `prep, which failed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# How such a job is, and what lets that go on, if it does not by itself.
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "uploading": ("{job}, whose result is on the way", ""),
    "failed": ("{job}, which failed", "`fleet requeue {job}` tries it again"),
    "cancelled": ("{job}, which was cancelled", "`fleet requeue {job}` brings it back"),
    "orphaned": ("{job}, which is no longer in the manifest", "put it back"),
    "gone": ("the result of {job}, which is gone from the store",
             "`fleet requeue {job}` makes it again"),
    "unknown": ("{job}, which the fleet does not know", "`fleet reload` may bring it back"),
}  # fmt: skip
_LASTING: Final = _STATES.keys() - {"uploading"}


def words(told: Mapping[str, Any]) -> tuple[str, str]:
    """Return which job another one waits for, and what lets that go on, if that is needed."""
    what, lifted = _STATES.get(str(told["state"]), ("{job}, which is {state}", ""))
    return what.format(**told), lifted.format(**told)


def passes(waits_for: Mapping[str, Any]) -> bool:
    """Whether what a job waits for comes by itself: a job before it that goes on."""
    return waits_for["what"] == "job" and waits_for["state"] not in _LASTING
