"""What a host gives back is not lost: from when it is told that the job has come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from broker.protocol.link_events import Incoming, Outgoing
from broker.protocol.messages import (
    AGENT_REQUEST,
    Noted,
    Released,
    decode,
    decode_reports,
)
from coordinator.jobs.jobs import Change, Job
from coordinator.jobs.records import Record
from coordinator.jobs.states import FINAL, Event, JobState

from .checks import Checker
from .nodes import TOPICS
from .trainer_checks import Violation

RULE: Final = "what is given back is not lost"
_LOSSES: Final = frozenset({Event.LOST, Event.EXHAUSTED})


class GivenBack:
    """Watches what the coordinator hears and says of jobs that come back unfinished.

    An agent repeats `released` until `noted` has answered it, and then has nothing more to say of
    that attempt: whatever of it is still at that host by then is lost later.
    """

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._reports: dict[str, Released] = {}
        self._held: dict[str, Job] = {}  # the rows that the reports of this turn are about
        self._taken: dict[tuple[str, int], str] = {}  # attempt -> which agent was told so
        self._anew: dict[str, int] = {}  # job -> newest attempt whose checkpoint is not kept

    def heard(self, events: Sequence[Any]) -> None:
        """The coordinator hears these, in one turn."""
        self._held.clear()
        for event in events:
            if not isinstance(event, Incoming) or not event.topic.endswith("/job/response"):
                continue
            if b'"released"' not in event.payload:
                continue  # `AgentNode.publish` has decoded it
            for report in decode_reports(event.payload):
                if isinstance(report, Released):
                    self._on_released(TOPICS.parse(event.topic).host, report)

    def _on_released(self, host: str, report: Released) -> None:
        self._reports[report.id] = report
        row = self._checker.rows.get(report.job_id)
        if row is not None and row.is_held and row.is_at(host, report.attempt):
            self._held[report.id] = row

    def committed(self, changes: Sequence[Change | Record]) -> None:
        """The ledger has taken these changes, in one commit."""
        for change in changes:
            if isinstance(change, Change) and change.before is not None:
                self._one(change, change.before)

    def _one(self, change: Change, before: Job) -> None:
        after, job_id = change.after, change.after.job_id
        if change.event is Event.REQUEUED:
            self._anew[job_id] = before.attempt
        costs = after.losses - before.losses
        if change.event is Event.RELEASED and (costs or after.state is not JobState.PENDING):
            text = f"{after.spec.name} is {after.state}, {costs} times lost by it"
            raise Violation(RULE, text, job_id)
        told = self._taken.get((job_id, before.attempt))
        if change.event in _LOSSES and told is not None and told == before.instance:
            text = f"attempt {before.attempt} of {after.spec.name} had come back, and is lost"
            raise Violation(RULE, text, job_id)

    def said(self, messages: Sequence[Outgoing]) -> None:
        """The coordinator says these, after its commit."""
        for message in messages:
            if b'"noted"' in message.payload[:60]:
                noted = decode(AGENT_REQUEST, message.payload)
                if not isinstance(noted, Noted):
                    continue
                if noted.report_id in self._reports:
                    self._noted(self._reports[noted.report_id], noted.verdict)

    def _noted(self, report: Released, verdict: str) -> None:
        """The agent forgets the attempt when it hears this."""
        row = self._checker.rows.get(report.job_id)
        if row is None:
            return
        about = f"attempt {report.attempt} of {row.spec.name}"
        same = (row.attempt, row.instance) == (report.attempt, report.instance)
        if row.is_held and same:
            text = f"{about} was given back ({verdict}), and is {row.state} there still"
            raise Violation(RULE, text, row.job_id)
        self._taken[(row.job_id, report.attempt)] = report.instance
        if verdict == "superseded":
            return
        held = self._held.get(report.id)
        # A later process of the agent may have said before, in this turn, that it has it no more.
        mine = held is not None and held.instance == report.instance and not report.interrupted
        if mine and held is not None and row.losses > held.losses:
            raise Violation(RULE, f"{about} was given back, and counts as a loss", row.job_id)
        if row.state in FINAL or self._anew.get(row.job_id, 0) >= report.attempt:
            return
        kept = row.checkpoint.attempt if row.checkpoint is not None else 0
        if report.artifact_id is not None and kept < report.attempt:
            raise Violation(RULE, f"{about} has lost the checkpoint that came home", row.job_id)
