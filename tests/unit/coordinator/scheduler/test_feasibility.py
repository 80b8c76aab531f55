"""What a job waits for, found by groups of hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.messages import TrainerInfo
from coordinator.scheduler.feasibility import ORDER, Places, What, what
from coordinator.scheduler.rules import HostView, reasons
from tests.unit.coordinator.scheduler.test_rules import CLOSED, gpu, host, job, needs

TRAINERS = {"gbt": TrainerInfo(hyper_schema=CLOSED)}


@st.composite
def fleets(draw: st.DrawFn) -> list[HostView]:
    """Up to six hosts, some of which differ in one thing only."""
    names = [f"h{number}" for number in range(draw(st.integers(0, 6)))]
    return [
        host(
            name, ram_gib=draw(st.integers(0, 16)), cores=draw(st.sampled_from((2, 8))),
            gpus=tuple(gpu(draw(st.sampled_from((None, 4))), draw(st.sampled_from((None, 12))), n)
                       for n in range(draw(st.integers(0, 1)))),
            trainers=TRAINERS, busy=draw(st.integers(0, 1)), online=draw(st.booleans()),
            data=draw(st.sampled_from(("d", None))),
            policy={"cuda": draw(st.sampled_from((None, False))),
                    "slots": draw(st.sampled_from((None, 0))),
                    "deny_jobs": draw(st.sampled_from(((), ("jo*",)))),
                    "max_ram_gib": draw(st.sampled_from((None, 3.0)))},
        )
        for name in names
    ]  # fmt: skip


@given(needs, fleets(), st.sampled_from(((), ("h0",), ("h1", "h2"))), st.booleans())
def test_a_job_waits_for_the_host_that_it_may_have_soonest(
    need: dict[str, Any], views: list[HostView], named: tuple[str, ...], denies: bool
) -> None:
    """As if the rules were asked about every host, one by one."""
    lists = {"denied": named} if denies else {"allowed": named}
    one = replace(job(**need, **lists), name="job")
    plain: dict[What, list[str]] = {}
    for view in views:
        if (awaits := what(reasons(one, view, 0.0, 300.0))) is not None:
            plain.setdefault(awaits, []).append(view.host)
    first = min(plain, key=ORDER.index, default=None)
    assert Places(views).soonest(one) == (first, plain[first] if first else [])
