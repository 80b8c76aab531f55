"""Which job a request means."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from coordinator.core.authorization import RequestRefused, refused
from coordinator.core.state import World
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job

_ASKED_CHARS: Final = 200  # as many of what was asked for are said again
_MEANT: Final = 8  # jobs that a text may mean are named
_MOST_NAMESAKES: Final = 16  # each change of an entry of the plan leaves one


def find(world: World, text: str) -> Job:
    """Return the job that a request names. Raises `RequestRefused` unless it is one."""
    jobs = world.book.find(text)
    if len(jobs) == 1:
        return jobs[0]
    asked = text[:_ASKED_CHARS]
    if not jobs:
        raise RequestRefused(cause("no_job", asked=asked), "not_found")
    known = sorted((job.spec.name, job.job_id) for job in jobs)
    raise refused(
        "ambiguous",
        asked=asked,
        jobs=[{"name": name, "job_id": job_id} for name, job_id in known[:_MEANT]],
        more=max(0, len(jobs) - _MEANT),
        alike=len({name for name, _ in known}) == 1,
    )


def others(world: World, job: Job) -> list[JsonValue]:
    """Return what tells the other jobs of its name from a job: of the newest of them."""
    return [
        {"job_id": one.job_id, "state": one.state.value, "host": one.host, "in_plan": one.in_plan}
        for one in world.book.namesakes(job)[-_MOST_NAMESAKES:]
    ]
