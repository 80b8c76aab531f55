"""What the page of a job tells of datasets, and of jobs that come before it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra of the web page is not installed")
from coordinator.web.pages.job_parts import reads_of
from coordinator.web.parts import Link


def before(name: str, job_id: str, as_input: str = "") -> dict[str, Any]:
    """A job that comes before, as an answer to `show` has it."""
    return {"name": name, "job_id": job_id, "state": "running", "input": as_input}


def test_a_job_leads_to_the_jobs_that_come_before_it() -> None:
    one, two, three = "1" * 64, "2" * 64, "3" * 64
    told = reads_of({
        "data": {"train": f"cifar@{'ab' * 32}"},
        "predecessors": [before("pretrain", one, "weights"), before("a", two), before("", three)],
    })  # fmt: skip
    assert told == {
        "data.train": Link("cifar@abababababab", "/dataset/" + "ab" * 32),
        "inputs.weights": Link("pretrain", f"/job/{one}"),
        "after": (Link("a", f"/job/{two}"), Link("3" * 12, f"/job/{three}")),
    }


def test_most_jobs_read_nothing_of_others() -> None:
    assert not any(reads_of({}).values())
