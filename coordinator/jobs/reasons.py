"""What each reason against a host means: how it ends, and where `fleet why` shows it.

A new reason is one row here, beside its words (`reason_words`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from broker.protocol.messages import AMOUNTS
from broker.protocol.reasons import Reason


class Wait(IntEnum):
    """What a reason ends with; what takes longer is greater."""

    NOTHING = 0  # there is none
    RELEASE = 1  # a job of ours on that host ends
    GRACE = 2  # the job's grace for CUDA ends
    QUIET = 3  # the host, or time, ends it
    RETURN = 4  # the host comes back
    DATA = 5  # somebody mounts a disk
    RESUME = 6  # an operator resumes the host
    PREDECESSOR = 7  # an operator lets a job before it go on
    UNPAUSE = 8  # an operator lets the fleet go on
    EVER = 9  # nothing ends it, as things are: who is enrolled again begins anew

    @property
    def passes(self) -> bool:
        """Whether it ends without anybody's doing."""
        return self <= Wait.RETURN


class Nature(NamedTuple):
    """What a reason ends with, and the clause of `fleet why` that shows it."""

    wait: Wait
    clause: str


def _of_amounts() -> dict[str, Nature]:
    found: dict[str, Nature] = {}
    for what, amount in AMOUNTS.items():
        found |= dict.fromkeys((what, f"{what}-unknown"), Nature(Wait.EVER, amount.need))
    return found


def _of_amounts_now() -> dict[str, Nature]:
    return {
        f"{what}-now": Nature(Wait.RELEASE if amount.total else Wait.QUIET, f"{what}_now")
        for what, amount in AMOUNTS.items()
    }


# In the order in which people look at what stands in the way.
NATURES: Final[Mapping[str, Nature]] = {
    "no-trainer": Nature(Wait.EVER, "trainer"),
    "hyper": Nature(Wait.EVER, "trainer"),
    "other-version": Nature(Wait.EVER, "trainer"),
    "no-programs": Nature(Wait.EVER, "program"),
    "not-pinned": Nature(Wait.EVER, "program"),
    "not-signed": Nature(Wait.EVER, "program"),
    "unusable": Nature(Wait.EVER, "program"),
    "no-environment": Nature(Wait.EVER, "program"),
    "no-data": Nature(Wait.DATA, "data"),
    "no-cuda": Nature(Wait.EVER, "require_cuda"),
    "cuda-off": Nature(Wait.EVER, "require_cuda"),
    **_of_amounts(),
    "cores": Nature(Wait.EVER, "min_cores"),
    "not-allowed": Nature(Wait.EVER, "allowed_hosts"),
    "denied": Nature(Wait.EVER, "denied_hosts"),
    "allow-jobs": Nature(Wait.EVER, "allow_jobs"),
    "deny-jobs": Nature(Wait.EVER, "deny_jobs"),
    "no-slots": Nature(Wait.EVER, "slots"),
    "revoked": Nature(Wait.EVER, "revoked"),
    "drained": Nature(Wait.RESUME, "barred"),
    "quarantine": Nature(Wait.RESUME, "barred"),
    "waits": Nature(Wait.QUIET, "after"),
    "waits-failed": Nature(Wait.PREDECESSOR, "after"),
    "paused": Nature(Wait.UNPAUSE, "paused"),
    "offline": Nature(Wait.RETURN, "online"),
    "joining": Nature(Wait.QUIET, "online"),
    "twins": Nature(Wait.QUIET, "online"),
    "refuses": Nature(Wait.QUIET, "takes"),
    "snoozed": Nature(Wait.QUIET, "takes"),
    "rules": Nature(Wait.QUIET, "takes"),
    **_of_amounts_now(),
    "grace": Nature(Wait.GRACE, "prefer_cuda"),
    "refused": Nature(Wait.QUIET, "refused"),
    "retry": Nature(Wait.QUIET, "retry"),
    "busy": Nature(Wait.QUIET, "free"),
    "not-free": Nature(Wait.QUIET, "free"),
}
UNUSABLE: Final = frozenset({"program", "dataset", "input"})  # what a host could not use or have
CLAUSES: Final = tuple(dict.fromkeys(nature.clause for nature in NATURES.values()))
# What `fleet resume` lifts of a host, and ends.
BARRED: Final = frozenset(code for code in NATURES if NATURES[code].wait is Wait.RESUME)
RESUMED: Final = BARRED | {"snoozed"}


def wait(reasons: Iterable[Reason]) -> Wait:
    """Return what a host has to be waited for: the slowest that these reasons end with."""
    return max((NATURES[one.code].wait for one in reasons), default=Wait.NOTHING)
