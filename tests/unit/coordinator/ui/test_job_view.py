"""What there is to say of a job: datasets, jobs that come before it, limits, metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.jobs.plan_entries import spec_to_dict
from coordinator.ui.facts import Link
from coordinator.ui.job_view import asked, event_host, metrics
from tests.harness.coordinator import spec


def before(name: str, job_id: str, as_input: str = "") -> dict[str, Any]:
    """A job that comes before, as an answer to `show` has it."""
    return {"name": name, "job_id": job_id, "state": "running", "input": as_input}


def test_a_job_leads_to_its_datasets_and_to_the_jobs_that_come_before_it() -> None:
    one, two, three = "1" * 64, "2" * 64, "3" * 64
    told = dict(asked({
        "spec": spec_to_dict(spec()),
        "data": {"train": f"cifar@{'ab' * 32}"},
        "predecessors": [before("pretrain", one, "weights"), before("a", two), before("", three)],
    }))  # fmt: skip
    assert told["Data"] == (Link("train = cifar@abababababab", "/dataset/" + "ab" * 32),)
    assert told["Inputs"] == (Link("weights = pretrain (running)", f"/job/{one}"),)
    after = (Link("a (running)", f"/job/{two}"), Link(f"{'3' * 12} (running)", f"/job/{three}"))
    assert told["After"] == after


@pytest.mark.words
def test_what_is_as_usual_is_not_said() -> None:
    usual = replace(spec(), n_resamples=1000, stall_timeout_s=7200.0)
    odd = replace(spec(retries=0), stall_timeout_s=60.0, allowed_hosts=("pi", "pc"))
    told = [dict(asked({"spec": spec_to_dict(one)})) for one in (usual, odd)]
    more = told[1].keys() - told[0].keys()
    assert {name: told[1][name] for name in more} == {
        "Resamples": "10", "Retries": "0", "Stall timeout s": "60.0", "Allowed hosts": "pi, pc",
    }  # fmt: skip


@pytest.mark.words
def test_metrics_have_their_intervals_beside_them() -> None:
    told = {"auroc": 0.9, "auroc_ci": [0.8, 0.95], "note": "x", "bad": float("nan"), "n": 5}
    told |= {"long": 10**400, "n_ci": [-(10**400), 9], "ap": None}
    found = ["0.900 (0.800 to 0.950)", "5", "missing: no finite number"]
    assert metrics(told) == [*zip(("auroc", "n", "ap"), found)]


@pytest.mark.parametrize(
    ("event", "host"),
    [
        ({"host": "pi", "who": "operator:op"}, "pi"),
        ({"host": None, "who": "host:pi"}, "pi"),
        ({"host": None, "who": "operator:op"}, None),
    ],
)
def test_an_event_names_the_host_that_the_job_has_left(
    event: dict[str, Any], host: str | None
) -> None:
    assert event_host(event) == host
