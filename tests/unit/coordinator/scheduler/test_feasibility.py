"""What a job waits for, found by groups of hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol.messages import TrainerInfo
from coordinator.jobs.reasons import Wait, wait
from coordinator.scheduler.feasibility import Places, soonest
from coordinator.scheduler.rules import HostView, reasons
from tests.unit.coordinator.scheduler.test_rules import CLOSED, gpu, host, job, needs

TRAINERS = {"gbt": TrainerInfo(hyper_schema=CLOSED)}


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """A value that is the usual one in most cases."""
    return st.sampled_from((*[usual] * 4 * len(others), *others))


TRAITS: dict[str, st.SearchStrategy[Any]] = {
    "ram_gib": mostly(16, 2), "cores": mostly(4, 8), "busy": mostly(0, 1),
    "online": mostly(True, False), "data": mostly("d", None), "cuda": mostly(None, False),
    "gpus": mostly((gpu(4, 12),), (), (gpu(None, 12),), (gpu(None, None),)),
    "slots": mostly(None, 0), "deny_jobs": mostly((), ("jo*",)), "max_ram_gib": mostly(None, 3.0),
}  # fmt: skip
OF_POLICY = ("cuda", "slots", "deny_jobs", "max_ram_gib")


@st.composite
def fleets(draw: st.DrawFn) -> list[HostView]:
    """Up to six hosts, each of which differs from the first in one thing at most."""
    first = draw(st.fixed_dictionaries(TRAITS))
    found = []
    for number in range(draw(st.integers(0, 6))):
        trait = draw(st.sampled_from([*TRAITS]))
        traits = first | {trait: draw(TRAITS[trait])}
        policy = {name: traits.pop(name) for name in OF_POLICY}
        view = host(f"h{number}", policy=policy, **traits)
        shared = view.capability.model_copy(update={"trainers": TRAINERS})
        found.append(replace(view, capability=shared))
    return found


@settings(max_examples=300)
@given(needs, fleets(), st.sampled_from(((), ("h0",), ("h1", "h2"))), st.booleans())
def test_a_job_waits_for_the_host_that_it_may_have_soonest(
    need: dict[str, Any], views: list[HostView], named: tuple[str, ...], denies: bool
) -> None:
    """As if the rules were asked about every host, one by one."""
    lists = {"denied": named} if denies else {"allowed": named}
    one = replace(job(**need, **lists), name="job")
    plain: dict[Wait, list[str]] = {}
    for view in views:
        awaits = max(wait(reasons(one, view)), Wait.QUIET)
        plain.setdefault(awaits, []).append(view.host)
    assert Places(views).soonest(one) == soonest(plain)
