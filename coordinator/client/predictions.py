"""Predictions: what is asked of the coordinator for them. The plan is played through here.

The coordinator has heartbeats to listen to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from broker.errors import RemoteError
from broker.protocol.messages import AskAttempts, AskPlan, Capability, Heartbeat, TrainerInfo
from broker.protocol.reasons import from_dict
from broker.system.machine import new_id
from coordinator.client.contact import NotDone, Unreachable
from coordinator.jobs import host_paging
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, policy_from_dict, spec_from_dict
from coordinator.jobs.reasons import RESUMED
from coordinator.scheduler.durations import History, default_epochs
from coordinator.scheduler.feasibility import Waiting
from coordinator.scheduler.forecast import Forecast, forecast
from coordinator.scheduler.play import Held
from coordinator.scheduler.rules import HostView

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

LIVE: Final = ("pending", "claimed", "running")
HISTORY: Final = 4000  # attempts that a prediction rests on


@dataclass(frozen=True, slots=True)
class Planned:
    """A job of the running plan, as the coordinator tells it: `row` has the rest of it."""

    spec: JobSpec
    row: Mapping[str, Any]

    def waiting(self, spec: JobSpec | None = None) -> Waiting:
        """Return it as a job to be placed, with another spec if there is one."""
        row = self.row
        return Waiting(
            spec or self.spec,
            row["created_at"],
            row.get("waited_s", 0.0),
            row.get("ready_in_s", 0.0),
            row["host"],
            tuple(sorted(row.get("refused", {}).items())),
            tuple(map(from_dict, row.get("behind", ()))),
            tuple((host, from_dict(why)) for host, why in row.get("unusable", {}).items()),
        )

    def held(self) -> Held:
        """Return it as a job that a host is at."""
        row = self.row
        return Held(
            self.spec,
            row["host"],
            row["elapsed_s"],
            row.get("share"),
            row.get("eta_s"),
            row["uses_slot"],
            row.get("begun", 0.0),
            is_stuck=bool(row.get("no_room")) or row["host"] in row.get("unusable", {}),
            is_claimed=row["state"] == "claimed",
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a prediction is made of, at one moment.

    A `paused` fleet is predicted as if it went on now. `policies` are those in force, of each host
    that is known or that the plan names, `known` the names of the former. `plans_grace_s` is none
    where `grace_s` is the coordinator's own, whatever a plan says.
    """

    jobs: Sequence[Planned]
    views: Sequence[HostView]
    history: History
    grace_s: float
    plans_grace_s: float | None = None
    name: str = ""
    policies: Mapping[str, HostPolicy] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    paused: bool = False

    def held(self) -> list[Held]:
        """Return the jobs that hosts are at."""
        return [job.held() for job in self.jobs if job.row["state"] in {"claimed", "running"}]

    def forecast(self) -> Forecast:
        """Return what is to be expected of the running plan."""
        waiting = [
            job.waiting()
            for job in self.jobs
            if job.row["state"] == "pending" and job.row["in_plan"]
        ]
        return self.predict(waiting, self.views, self.grace_s)

    def predict(
        self, waiting: Sequence[Waiting], views: Sequence[HostView], grace_s: float
    ) -> Forecast:
        """Return what is to be expected if these jobs were to be placed, on hosts such as these."""
        found = forecast(waiting, self.held(), views, self.history, grace_s)
        return replace(found, paused=self.paused)


def look(client: OperatorClient, states: Sequence[Any] = LIVE) -> Picture:
    """Ask for the jobs in `states`, the hosts, and what is over. Raises `RemoteError`."""
    try:
        jobs, said = _plan(client, states)
        views, policies, known = _hosts(client)
        grace_s, plans_grace_s = said["grace_s"], said["plans_grace_s"]
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise RemoteError(f"the coordinator's answer cannot be used: {error!r}"[:300]) from None
    wanted = AskAttempts(id=new_id(), ends=("completed",))
    past = History(attempts(client, wanted, HISTORY), epochs_by_default(views))
    return Picture(
        jobs, views, past, grace_s, plans_grace_s, said["name"], policies, known,
        paused=bool(said["paused"]),
    )  # fmt: skip


def predicted(client: OperatorClient) -> Forecast | None:
    """Return the forecast of the running plan; none where nobody answers what it needs.

    Then the coordinator is of another version, or away: what was asked for is shown without it.
    """
    try:
        return look(client).forecast()
    except (NotDone, RemoteError, Unreachable):
        return None


def epochs_by_default(views: Iterable[HostView]) -> dict[tuple[str, str], float]:
    """Return each trainer's default epochs by model and host ("": of any host)."""
    from coordinator.manifest.builtin import builtin_trainers

    found: dict[tuple[str, str], float] = {}
    for view in views:
        for model, trainer in view.capability.trainers.items():
            epochs = default_epochs(trainer.hyper_schema)
            found[model, view.host] = found[model, ""] = epochs
    for model, trainer in builtin_trainers().items():
        found[model, ""] = default_epochs(trainer.hyper_schema)
    return found


def attempts(
    client: OperatorClient, wanted: AskAttempts, most: int | None = None
) -> list[dict[str, Any]]:
    """Return attempts that have ended, newest first: all, or about as many as `most`."""
    found: list[dict[str, Any]] = []
    for page in client.pages(wanted):
        found += page["attempts"]
        if most is not None and len(found) >= most:
            break
    return found


def _plan(client: OperatorClient, states: Sequence[Any]) -> tuple[list[Planned], Mapping[str, Any]]:
    """Return the jobs in `states`, and what the last page says of the plan as a whole."""
    jobs: dict[str, Planned] = {}  # a job that moves while we page may come twice
    page: Mapping[str, Any] = {}
    for page in client.pages(AskPlan(id=new_id(), states=tuple(states))):
        for row in page["jobs"]:
            spec = spec_from_dict(row["spec"])
            jobs[spec.job_id] = Planned(spec, row)
    return list(jobs.values()), page


def _hosts(
    client: OperatorClient,
) -> tuple[list[HostView], dict[str, HostPolicy], frozenset[str]]:
    """Return the hosts with a capability, the policies of all hosts, and the known names."""
    views: list[HostView] = []
    policies: dict[str, HostPolicy] = {}
    known: set[str] = set()
    for page in client.host_pages(absent=True):
        rows = host_paging.whole(page)
        there = views_of(rows)
        views += there
        policies |= {view.host: view.policy for view in there}
        for row in (*rows, *page["others"]):
            if row["host"] not in policies:
                policies[row["host"]] = policy_from_dict(row["policy"])
        known |= host_paging.known_names(page)
    return views, policies, frozenset(known)


def views_of(rows: Iterable[Mapping[str, Any]]) -> list[HostView]:
    """Return as matchmaking sees them those of `hostpages.whole` that have said what they are."""
    # The rows of a page have their trainers in common; to look through them takes fifty times what
    # the rest of a host does, and matchmaking asks once of hosts that share them.
    known: dict[int, Mapping[str, TrainerInfo]] = {}
    found = []
    for row in rows:
        if (told := row["capability"]) is None:
            continue
        key = id(told["trainers"])
        is_known = key in known
        capability = Capability.model_validate({**told, "trainers": {}} if is_known else told)
        trainers = known.setdefault(key, capability.trainers)
        found.append(_view(row, capability.model_copy(update={"trainers": trainers})))
    return found


def _view(row: Mapping[str, Any], capability: Capability) -> HostView:
    return HostView(
        host=row["host"],
        online=row["status"] == "online",
        presence=row["presence"],
        capability=capability,
        heartbeat=Heartbeat.model_validate(row["heartbeat"]) if row["heartbeat"] else None,
        policy=policy_from_dict(row["policy"]),
        restraints=tuple(
            one for one in map(from_dict, row["barred"]) if one.code in RESUMED | {"revoked"}
        ),
        twins=row["presence"] == "twins",
        unusable={digest: from_dict(one) for digest, one in row.get("unusable", {}).items()},
    )
