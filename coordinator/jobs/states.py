"""The six states of a job and every way from one to another, as data.

Whoever asks how a job can leave `running` reads `TRANSITIONS`; the diagram in architecture.md
is drawn from it.

The attempt is the fencing token: it grows at `assigned`, and at `restored`, which takes over what a
ledger that was restored from a backup has forgotten; at nothing else. A late message is
judged by (host, attempt): while both are still the job's newest, its sender may go on, even when
the lease has run out meanwhile (`resumed`, and `completed` out of `pending`). A job that was lost
too often stays `failed`; should its last attempt finish after all, the result is `kept`, and
`requeued` takes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What moved a job; the history shows these words."""

    ADDED = "added"
    CHANGED = "changed"
    ORPHANED = "orphaned"
    ADOPTED = "adopted"
    ASSIGNED = "assigned"
    UNANSWERED = "unanswered"
    REFUSED = "refused"
    STARTED = "started"
    RELEASED = "released"
    LOST = "lost"
    EXHAUSTED = "exhausted"
    RESUMED = "resumed"
    RETRIED = "retried"
    FAILED = "failed"
    COMPLETED = "completed"
    KEPT = "kept"
    RESTORED = "restored"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"


FINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
HELD: Final = frozenset({JobState.CLAIMED, JobState.RUNNING})
OF_PLAN: Final = frozenset({Event.ADDED, Event.CHANGED, Event.ORPHANED, Event.ADOPTED})
TROUBLE: Final = frozenset({Event.LOST, Event.EXHAUSTED, Event.RETRIED, Event.FAILED})

_P, _C, _R = JobState.PENDING, JobState.CLAIMED, JobState.RUNNING
_SAME: Final = None

# event -> (the states it may come in, the state it leads to; none: it stays where it is)
TRANSITIONS: Final[dict[Event, tuple[frozenset[JobState], JobState | None]]] = {
    Event.CHANGED: (frozenset(JobState), _SAME),
    Event.ORPHANED: (frozenset(JobState), _SAME),
    Event.ADOPTED: (frozenset(JobState), _SAME),
    Event.ASSIGNED: (frozenset({_P}), _C),
    Event.UNANSWERED: (frozenset({_C}), _P),
    Event.REFUSED: (frozenset({_C}), _P),
    Event.STARTED: (frozenset({_C}), _R),
    Event.RELEASED: (HELD, _P),
    Event.LOST: (HELD, _P),
    Event.EXHAUSTED: (HELD, JobState.FAILED),
    Event.RESUMED: (frozenset({_P}), _R),
    Event.RETRIED: (HELD | {_P}, _P),
    Event.FAILED: (HELD | {_P}, JobState.FAILED),
    Event.COMPLETED: (HELD | {_P}, JobState.COMPLETED),
    Event.RESTORED: (frozenset({_P}), _SAME),
    Event.KEPT: (frozenset({JobState.FAILED}), _SAME),
    Event.CANCELLED: (HELD | {_P}, JobState.CANCELLED),
    Event.REQUEUED: (frozenset(JobState) - {_P}, _P),
}


def leads_to(state: JobState, event: Event) -> JobState | None:
    """Return the state after `event`, or none when it may not happen in `state`."""
    sources, target = TRANSITIONS[event]
    if state not in sources:
        return None
    return target or state
