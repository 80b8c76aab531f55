"""Answers to operators: what is asked for, or why not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pydantic import JsonValue

from broker.messages import OperatorResponse
from coordinator import hostnames
from coordinator.jobs import Job

MOST_NAMESAKES: Final = 16  # each change of an entry of the plan leaves one


def given(request_id: str, data: JsonValue) -> OperatorResponse:
    """Return an answer with what was asked for.

    `data` is our own: to look through it again would take longer than to make a page of hosts.
    """
    return OperatorResponse.model_construct(id=request_id, ok=True, data=data)


def told_apart(namesakes: Sequence[Job]) -> list[JsonValue]:
    """Return what tells other jobs of the same name from the one that was meant: the newest."""
    return [
        {"job_id": job.job_id, "state": job.state.value, "host": job.host, "in_plan": job.in_plan}
        for job in namesakes[-MOST_NAMESAKES:]
    ]


def moved(request_id: str, job: Job, **more: JsonValue) -> OperatorResponse:
    """Return the answer to a command that has moved a job; `more` is what else it tells."""
    known = {"job_id": job.job_id, "name": job.spec.name, "state": job.state.value}
    return given(request_id, {**known, **more})


def refusal(request_id: str, code: Any, message: str, data: JsonValue = None) -> OperatorResponse:
    """Return an answer that says no; `code` is one of `OperatorResponse`."""
    return OperatorResponse(id=request_id, ok=False, code=code, message=message, data=data)


def no_host(request_id: str, name: str, known: Collection[str]) -> OperatorResponse:
    """Return the answer to whoever names a host that is not among those that are `known`."""
    message = f"{hostnames.doubt(name, known)}; `fleet workers` shows them"
    return refusal(request_id, "not_found", message.replace("?;", "?"))
