"""The plain way to assign: ask for every pending job and every host what `fleet why` would say.

What the coordinator's queue decides has to be the same: a job is given to a host that nothing
speaks against, and no turn ends with a job left that nothing speaks against on some host.
`compared` checks each decision and each turn of each core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from broker.clock import Now
from coordinator.core import assignment, successors
from coordinator.core.host_views import against, host_views
from coordinator.core.reactor import Core
from coordinator.core.state import World
from coordinator.jobs.jobs import claim_order
from coordinator.jobs.states import JobState
from coordinator.scheduler.rules import choose


class OtherwiseDecided(AssertionError):  # noqa: N818 - what it is called
    """The queue has decided otherwise than the plain scan."""


def plain_scan(world: World, now: Now) -> list[tuple[str, str]]:
    """Return which job would be given to which host, in this order; change nothing."""
    given = []
    views = {view.host: view for view in host_views(world, now)}
    for job in sorted(world.book.in_state(JobState.PENDING), key=claim_order):
        if not job.in_plan or any(successors.unmet(world, job)):
            continue
        eligible = [one for one in views.values() if not any(against(world, job, one, now))]
        chosen = choose(job.spec, eligible, last_host=job.host)
        if chosen is not None:
            given.append((job.spec.name, chosen.host))
            views[chosen.host] = replace(chosen, used_slots=chosen.used_slots + 1)
    return given


@contextmanager
def compared() -> Iterator[list[int]]:
    """Make each decision both ways; give the list of how many jobs each of them has assigned.

    Raises `OtherwiseDecided` at the first that differs.
    """
    take, give_out, sizes = Core.take, assignment.give_out, list[int]()

    def both(world: World, now: Now) -> None:
        expected, earlier = plain_scan(world, now), len(world.claims)
        give_out(world, now)
        claims = [*world.claims.values()][earlier:]
        found = [(claim.request.name, claim.host) for claim in claims]
        if found != expected:
            raise OtherwiseDecided(f"{found}, not {expected}")
        sizes.append(len(found))

    def turn(core: Core) -> Any:
        taken = take(core)
        if left := plain_scan(core.world, core._now):
            raise OtherwiseDecided(f"nothing speaks against {left}")
        return taken

    with patch.object(assignment, "give_out", both), patch.object(Core, "take", turn):
        yield sizes
