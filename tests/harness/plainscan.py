"""The plain way to assign: look at every pending job and every host, each time anew.

What the coordinator's board decides has to be the same. `compared` has each of its decisions made
both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from broker.clock import Now
from coordinator.core import assignment, host_views
from coordinator.core.state import World
from coordinator.jobs.states import JobState
from coordinator.scheduler.rules import choose


class OtherwiseDecided(AssertionError):  # noqa: N818 - what it is called
    """The board has decided otherwise than the plain scan."""


def plain_scan(world: World, now: Now) -> list[tuple[str, str]]:
    """Return which job would be given to which host, in this order; change nothing."""
    if world.fleet.paused:
        return []
    given = []
    views = {view.host: view for view in host_views.host_views(world, now)}
    pending = world.book.in_state(JobState.PENDING)
    for job in sorted(pending, key=lambda job: (-job.spec.priority, job.created_at, job.spec.name)):
        if not job.in_plan or host_views.retry_wait_s(world, job, now) > 0:
            continue
        over_s = world.pending_since_s[job.job_id] + world.grace_s()
        waited_s = world.grace_s() if now.mono_s >= over_s else 0.0
        not_now = host_views.refusals(world, job, now)
        candidates = [view for view in views.values() if view.host not in not_now]
        chosen = choose(job.spec, candidates, waited_s, world.grace_s(), job.host)
        if chosen is not None:
            given.append((job.spec.name, chosen.host))
            views[chosen.host] = replace(chosen, used_slots=chosen.used_slots + 1)
    return given


@contextmanager
def compared() -> Iterator[list[int]]:
    """Make each decision both ways; give the list of how many jobs each of them has assigned.

    Raises `OtherwiseDecided` at the first that differs.
    """
    settle, sizes = assignment.settle, list[int]()

    def both(world: World, now: Now) -> None:
        expected = plain_scan(world, now)
        earlier = len(world.claims)
        settle(world, now)
        claims = [*world.claims.values()][earlier:]
        found = [(claim.request.name, claim.host) for claim in claims]
        if found != expected:
            raise OtherwiseDecided(f"{found}, not {expected}")
        sizes.append(len(found))

    with patch.object(assignment, "settle", both):
        yield sizes
