"""Jobs that come after others (`after`, `inputs`): what one waits for, now and in a forecast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from broker.protocol.messages import WaitsFor
from broker.protocol.reasons import Reason, reason
from coordinator.jobs.plan_entries import JobSpec

PASSES: Final = "waits"
LASTS: Final = "waits-failed"
_ENDED: Final = frozenset({"failed", "cancelled"})
_DIGITS: Final = 12  # of an id that no job has

_Entry = TypeVar("_Entry")


class Before(NamedTuple):
    """A job that comes before another. `has_result`: its artifact is in the store.

    `state` is that of the job, `uploading` while its result is on the way.
    """

    name: str
    state: str
    in_plan: bool = True
    has_result: bool = True


def unmet(spec: JobSpec, find: Callable[[str], Before | None]) -> Iterator[Reason]:
    """Yield what a job still waits for of the jobs before it, which `find` returns by id.

    `waits` ends by itself. `waits-failed` does not: that job failed, was cancelled, is `orphaned`
    (no longer in the plan) or `unknown`, or its artifact, which is an input, is `gone`.
    """
    inputs = {*spec.inputs.values()}
    for job_id in spec.predecessors():
        before = find(job_id)
        if before is None:
            yield reason(LASTS, job=job_id[:_DIGITS], job_id=job_id, state="unknown")
            continue
        code, state = PASSES, before.state
        if state == "completed":
            if before.has_result or job_id not in inputs:
                continue
            code, state = LASTS, "gone"
        elif state in _ENDED:
            code = LASTS
        elif state == "pending" and not before.in_plan:
            code, state = LASTS, "orphaned"
        yield reason(code, job=before.name, job_id=job_id, state=state)


def waits_for(reasons: Iterable[Reason]) -> WaitsFor | None:
    """Return what a job waits for, first what does not pass; none: for no other job."""
    found = sorted(reasons, key=lambda one: one.code != LASTS)
    if not found:
        return None
    job, state = str(found[0].figures["job"]), str(found[0].figures["state"])
    return WaitsFor(what="job", hosts=(), more=len(found) > 1, job=job, state=state)


# In a forecast


def cut_off(
    links: Mapping[str, Collection[str]], failing: Iterable[str]
) -> dict[str, str]:  # fmt: skip
    """Return which jobs cannot begin since one before them does not end, each with that one.

    `links` has by job those before it; `failing` are jobs that will not end.
    """
    behind = _turned(links)
    found: dict[str, str] = {}
    ended = [*failing]
    for before in ended:  # it grows
        for job_id in behind.get(before, ()):
            if job_id not in found:
                found[job_id] = before
                ended.append(job_id)
    return found


class LetIn(NamedTuple):
    """When a job could begin, in seconds from now, and after which job.

    `vague`: nobody knows when one of those before it ends.
    """

    at_s: float
    after: str
    vague: bool


class Gate(Generic[_Entry]):
    """Holds jobs back until those before them have ended."""

    def __init__(self, links: Mapping[str, Collection[str]]) -> None:
        """`links` has by job those before it that are still to end."""
        self._links = links
        self._left = {job_id: len(before) for job_id, before in links.items()}
        self._behind = _turned(links)
        self._held: dict[str, _Entry] = {}
        self._vague: set[str] = set()
        self._let_in: dict[str, LetIn] = {}

    def holds(self, job_id: str, entry: _Entry) -> bool:
        """Keep the entry of a job, if that has to wait."""
        if not self._left.get(job_id):
            return False
        self._held[job_id] = entry
        return True

    def ended(self, job_id: str, at_s: float, *, vague: bool) -> Iterator[_Entry]:
        """Yield the entries of the jobs that waited for this one last."""
        if vague:
            self._vague.add(job_id)
        for other in self._behind.get(job_id, ()):
            self._left[other] -= 1
            if not self._left[other] and other in self._held:
                is_vague = not self._vague.isdisjoint(self._links[other])
                self._let_in[other] = LetIn(at_s, job_id, is_vague)
                yield self._held.pop(other)

    def let_in(self, job_id: str) -> LetIn | None:
        """Return when a job was let in; none: it did not have to wait."""
        return self._let_in.get(job_id)


def _turned(links: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    behind: dict[str, list[str]] = {}
    for job_id, before in links.items():
        for one in before:
            behind.setdefault(one, []).append(job_id)
    return behind
