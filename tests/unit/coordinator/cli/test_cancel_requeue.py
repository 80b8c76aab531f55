"""Verbs for several jobs: as few requests as answers hold, and what came of each job."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from broker.protocol.messages import MAX_JOBS
from broker.system.settings import BrokerSettings
from coordinator.cli import main
from coordinator.ui import EXIT_UNREACHABLE, candidates
from tests.harness.fleet import wait_until

ROW = {
    "state": "pending", "finished_at": None, "priority": 0, "created_at": "t", "in_plan": True,
    "host": None,
}  # fmt: skip


def _rows(count: int) -> list[dict[str, Any]]:
    return [ROW | {"name": f"job{n}", "job_id": f"{n:064x}"} for n in range(count)]


def test_what_was_done_before_a_silence_is_told_with_what_was_not(
    at: list[str], peer: Any, says: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(MAX_JOBS + 2)

    def answer(ask: Any, client: str) -> list[Any]:
        if ask.type == "list":
            return [says(client, ask.id, {"jobs": rows, "next": None})]
        if len(ask.jobs) < MAX_JOBS:
            return []
        done = [{"ok": True, "state": "cancelled", "name": one[-3:]} for one in ask.jobs]
        return [says(client, ask.id, {"jobs": done})]

    coordinator = peer(answer)
    chosen = ["cancel", "--status", "pending", "--yes", "--timeout", "3", "--json"]
    assert main([*chosen, *at]) == EXIT_UNREACHABLE
    told = json.loads(capsys.readouterr().out)
    assert [one["ok"] for one in told] == [True] * MAX_JOBS + [False] * 2
    assert {one["code"] for one in told[MAX_JOBS:]} == {"unreachable"}
    assert "may still be done" in told[-1]["why"]["text"]
    asked = {one.id: one for one in coordinator.requests if one.type == "each"}
    assert [(len(one.jobs), one.states) for one in asked.values()] == [
        (MAX_JOBS, ("pending",)), (2, ("pending",)),
    ]  # fmt: skip


def test_a_job_that_is_in_the_line_is_not_offered_again(
    where: BrokerSettings, peer: Any, says: Any
) -> None:
    """Whoever presses Tab for the second of several jobs."""
    peer(lambda ask, client: [says(client, ask.id, {"jobs": _rows(3), "next": None})])
    context = click.Context(click.Command("cancel"), info_name="cancel")
    context.params = {"jobs": ("job1",), "broker": where.url, "root": where.topic_root}
    jobs = click.Argument(["jobs"], nargs=-1)

    def offered() -> list[str]:  # nothing, where a busy machine takes longer than who presses Tab
        return [one.value for one in candidates.complete_job(context, jobs, "job")]

    wait_until(lambda: offered() == ["job0", "job2"], "the two that are left")
