"""Groups hosts that judge every single job alike, so that one of each group is asked."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import Final

from broker.protocol.messages import TrainerInfo
from coordinator.jobs.plan_entries import JobSpec
from coordinator.scheduler.rules import HostView, of_job

MOST: Final = 256  # schemas, and groups of hosts, that are remembered


class Judges:
    """Remembers what `of_job` said."""

    def __init__(self) -> None:
        """Start without any."""
        self._schemas: dict[int, tuple[TrainerInfo, str]] = {}
        self._verdicts: dict[Hashable, dict[str, bool]] = {}

    def of(self, view: HostView, model: str) -> Hashable:
        """Return what hosts have in common for which `takes` says the same of a model's jobs."""
        trainer = view.capability.trainers.get(model)
        schema = None if trainer is None else self._schema(trainer)
        return schema, view.policy.allow_jobs, view.policy.deny_jobs

    def differing(self, views: Iterable[HostView], model: str) -> list[HostView]:
        """Return one host of each group that judges a model's jobs alike."""
        return [*{self.of(view, model): view for view in views}.values()]

    def takes(self, spec: JobSpec, view: HostView) -> bool:
        """Whether nothing speaks against this very job there."""
        judge = self.of(view, spec.model)
        if judge not in self._verdicts and len(self._verdicts) >= MOST:
            self._verdicts.clear()
        known = self._verdicts.setdefault(judge, {})
        if spec.job_id not in known:
            known[spec.job_id] = not any(of_job(spec, view))
        return known[spec.job_id]

    def forget(self, job_id: str) -> None:
        """The job may be another now."""
        for known in self._verdicts.values():
            known.pop(job_id, None)

    def _schema(self, trainer: TrainerInfo) -> str:
        known = self._schemas.get(id(trainer))
        if known is None:
            if len(self._schemas) >= MOST:
                self._schemas.clear()
            # That the trainer is kept as well keeps its id from being given to another one.
            known = trainer, json.dumps(trainer.hyper_schema, sort_keys=True)
            self._schemas[id(trainer)] = known
        return known[1]
