"""Whether a job's history and its row tell the same story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordinator.jobs.jobs import Job
from coordinator.jobs.states import HELD, TRANSITIONS, Event, JobState, leads_to

# Whatever leaves a job in its state leaves it at its host, and so does the start of its trainer;
# but an assignment that the ledger had lost comes with another host.
_AT_SAME_HOST: Final = frozenset(
    {event for event, (_, target) in TRANSITIONS.items() if target is None} | {Event.STARTED}
) - {Event.RESTORED}


def contradiction(job: Job, events: Sequence[Mapping[str, Any]]) -> str:
    """Replay a job's newest events, oldest first; return what does not fit, or nothing.

    `events` are as `Ledger.events` returns them. The history may have lost its beginning: it is
    replayed from whatever state its first event came in.
    """
    if not events:
        return "no events"
    before: Mapping[str, Any] | None = None
    for number, event in enumerate(events, 1):
        try:
            wrong = _step(before, event)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            return f"event {number} of {len(events)} ({event['event']}, {event['at']}): {wrong}"
        before = event
    return _end(job, events)


def _step(before: Mapping[str, Any] | None, event: Mapping[str, Any]) -> str:
    """Return why `event` cannot follow `before`, or nothing."""
    word, state = Event(event["event"]), JobState(event["to"])
    if state in HELD and (event["host"] is None or event["attempt"] < 1):
        return f"{state.value} without a host or an attempt"
    if word is Event.ADDED:
        fits = before is None and event["from"] is None and state is JobState.PENDING
        return "" if fits and event["attempt"] == 0 else "a job is added once, and pending"
    came_from = JobState(event["from"])
    if leads_to(came_from, word) is not state:
        return f"does not lead from {came_from.value} to {state.value}"
    return "" if before is None else _follows(before, word, event)


def _follows(before: Mapping[str, Any], word: Event, event: Mapping[str, Any]) -> str:
    if event["from"] != before["to"]:
        return f"comes out of {event['from']}, the event before led to {before['to']}"
    grown = event["attempt"] - before["attempt"]
    # The result of an earlier attempt may complete a job.
    if (grown < 0 and word is not Event.COMPLETED) or (word is Event.ASSIGNED and grown != 1):
        return f"attempt {event['attempt']} after {before['attempt']}"
    # What nobody works on any more may let go of its host: that has given it back.
    lets_go = event["host"] is None and JobState(event["to"]) is JobState.PENDING
    if word in _AT_SAME_HOST and event["host"] != before["host"] and not lets_go:
        return f"host {event['host']}, the event before had {before['host']}"
    return ""


def _end(job: Job, events: Sequence[Mapping[str, Any]]) -> str:
    last = events[-1]
    # The result of an earlier attempt completes a job that keeps its newest attempt.
    newest = max(event["attempt"] for event in events[-2:])
    ended = (last["to"], newest, last["host"])
    row = (job.state.value, job.attempt, job.host)
    if ended == row:
        return ""
    names = ("state", "attempt", "host")
    pairs = [
        f"{name} {told}, the row has {has}"
        for name, told, has in zip(names, ended, row)
        if told != has
    ]
    return f"the events lead to {'; '.join(pairs)}"
