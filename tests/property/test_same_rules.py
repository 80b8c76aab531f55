"""The agent refuses a job for the very reasons for which the coordinator does not give it one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.core.effects import Probed
from broker.protocol import messages as m
from coordinator.jobs.plan_entries import HostPolicy, JobSpec
from coordinator.scheduler.rules import HostView, reasons
from tests.harness.agent import GIB, JOB, Agent

TRAINERS = {"gbt": m.TrainerInfo(hyper_schema={"properties": {"depth": {"maximum": 5}}})}
amounts_gib = st.none() | st.integers(1, 20)
needs = st.builds(
    m.Needs, require_cuda=st.booleans(), prefer_cuda=st.booleans(), min_vram_gib=amounts_gib,
    min_ram_gib=amounts_gib, min_disk_gib=amounts_gib, min_cores=st.none() | st.integers(1, 8),
)  # fmt: skip
sizes = st.none() | st.integers(0, 20).map(lambda gib: gib * GIB)
gpus = st.lists(
    st.builds(m.Gpu, index=st.just(3), vram_free_bytes=sizes, vram_total_bytes=sizes), max_size=1
)
hosts = st.fixed_dictionaries({
    "gpus": gpus.map(tuple), "ram_gib": st.integers(0, 16), "disk_gib": st.integers(0, 20),
    "data": st.sampled_from(("d", "d", None)),
})  # fmt: skip


@given(hosts, needs, st.sampled_from(("gbt", "gbt", "cnn")), st.integers(4, 6))
def test_both_sides_judge_alike(
    traits: dict[str, Any], need: m.Needs, model: str, depth: int
) -> None:
    agent = Agent(**traits)
    capability = agent.core.state.capability
    assert capability is not None
    agent.handle(Probed(capability.model_copy(update={"trainers": TRAINERS})))
    beat = agent.said(m.Heartbeat)[-1]
    capability = agent.said(m.Capability)[-1]
    view = HostView("pi", True, "online", capability, beat, HostPolicy("pi"))
    uses = bool(traits["gpus"]) and (need.require_cuda or need.prefer_cuda)
    agent.assigned(model=model, needs=need, hyper={"depth": depth}, use_cuda=uses)
    found = [one for said in agent.said(m.Refused) for one in said.reasons]
    job = JobSpec(
        job_id=JOB, name="job", model=model, mode="oracle", hyper={"depth": depth},
        split_recipe="host", seed=0, n_resamples=1, priority=0, needs=need,
    )  # fmt: skip
    expected = [one.to_dict() for one in reasons(job, view)]
    assert [{"code": one.code, **one.figures()} for one in found] == expected
