"""Which host may take which job, and which one should: pure functions over what is known.

`reasons` returns every reason against a host; no reason means eligible. It has three parts, of the
host, of the job's kind and of the job itself. Assignment, `fleet why` and the forecast ask these
three and nothing else. What a job needs is judged by `broker.protocol.reasons`, as the agent does.

What a host declares in the manifest and what it detects are intersected: the more restrictive wins.
Free memory is what the newest heartbeat says, other people's processes counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from broker.protocol.messages import Capability, Dataset, Heartbeat, Needs, Program
from broker.protocol.reasons import (
    Figures,
    Reason,
    figures,
    of_needs,
    of_trainer,
    reason,
)
from coordinator.jobs.plan_entries import HostPolicy, JobSpec

Rank = tuple[bool, int, bool, int, float, float, int, str]
# What jobs have in common of which `of_kind` says the same of every host; what hosts have in common
# that say the same of every job by `of_job`.
Kind = tuple[str, Program | None, Needs, tuple[Dataset, ...], tuple[str, ...], tuple[str, ...]]
Profile = tuple[int, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class HostView:
    """A host as matchmaking sees it.

    `presence` is in one word how it is there. `ahead`: how many jobs it may have beside those in
    its slots, since one will be free in a moment. `joined`: its present process has said what it is
    and what it holds. `restraints` are what operators have decided. `untold`: it has not taken the
    manifest's rules yet. `twins`: two agents use its name. `unusable` has by its digest each
    program that it could not use, with the reason.
    """

    host: str
    online: bool
    presence: str
    capability: Capability
    heartbeat: Heartbeat | None
    policy: HostPolicy
    used_slots: int = 0
    ahead: int = 0
    joined: bool = True
    restraints: tuple[Reason, ...] = ()
    untold: bool = False
    twins: bool = False
    unusable: Mapping[str, Reason] = field(default_factory=dict)

    def without(self, *codes: str) -> HostView:
        """Return the view as it is once some restraints are lifted."""
        kept = tuple(one for one in self.restraints if one.code not in codes)
        return replace(self, restraints=kept)

    def slots(self) -> int:
        """Return how many jobs it may run at once."""
        return slots(self.capability, self.policy)

    def free_slots(self) -> int:
        """Return how many more jobs it may take now."""
        return max(0, self.slots() - self.used_slots)

    def lacks(self, job: JobSpec) -> dict[str, int]:
        """Return the sizes of the job's program and datasets that it does not hold, by digest."""
        held = self.capability.holdings
        needs = {one.digest: one.size_bytes for one in job.data}
        if job.program is not None:
            needs[job.program.digest] = job.program.size_bytes
        return {digest: needs[digest] for digest in needs if digest not in held}

    def with_parts(self, job: JobSpec) -> HostView:
        """Return the view as it is once it holds what the job needs."""
        holdings = (*self.capability.holdings, *self.lacks(job))
        capability = self.capability.model_copy(update={"holdings": holdings})
        return replace(self, capability=capability)

    def profile(self) -> Profile:
        """Return its profile. Equal sets of trainers are the same object, see `TrainerSets`."""
        return id(self.capability.trainers), self.policy.allow_jobs, self.policy.deny_jobs

    @cached_property
    def figures(self) -> Figures:
        """Return what it has, within what is declared."""
        limit = self.policy
        return figures(
            self.capability,
            self.heartbeat or self.capability,
            () if limit.cuda is False else None,
            {"ram": limit.max_ram_gib, "vram": limit.max_vram_gib},
        )

    def size(self) -> tuple[object, ...]:
        """Return what it has that decides whether it can ever take a job of some kind."""
        has = self.figures
        rooms = [(room.free is None, room.total) for room in has.rooms.values()]
        return has.cores, has.has_data, has.cuda, has.programs, (*self.unusable,), *rooms


def slots(capability: Capability, policy: HostPolicy) -> int:
    """Return how many jobs a host may run at once."""
    return capability.slots if policy.slots is None else min(policy.slots, capability.slots)


def prefers_cuda(job: JobSpec) -> bool:
    """Whether the job waits for a CUDA host for a while."""
    return job.needs.prefer_cuda and not job.needs.require_cuda


def kind_of(job: JobSpec) -> Kind:
    """Return the kind of a job."""
    return job.model, job.program, job.needs, job.data, job.allowed_hosts, job.denied_hosts


def reasons(
    job: JobSpec, view: HostView, left_s: float = 0.0, grace_s: float = 0.0
) -> Iterator[Reason]:
    """Yield every reason against giving `job` to the host now; none means eligible.

    For `left_s` of `grace_s` more a `prefer_cuda` job waits for a CUDA host.
    """
    yield from of_host(view)
    yield from of_kind(job, view, left_s, grace_s)
    yield from of_job(job, view)


def of_host(view: HostView) -> Iterator[Reason]:
    """Yield what speaks against giving the host any job now."""
    if not view.online:
        yield reason("offline", presence=view.presence)
    elif not view.joined:
        yield reason("joining", presence=view.presence)
    elif view.heartbeat is not None and view.heartbeat.refuses:
        yield reason("refuses", holds=[one.told() for one in view.heartbeat.refuses])
    if view.twins:
        # With TLS it is the certificate that has the name.
        yield reason("twins", tls=bool(view.capability.certificate_expires_at))
    if view.online and view.joined and view.untold:
        yield reason("rules")
    yield from view.restraints
    if view.slots() == 0:
        yield reason("no-slots")
    elif view.used_slots >= view.slots() + view.ahead:
        yield reason("busy", available=view.slots())


def of_kind(
    job: JobSpec, view: HostView, left_s: float = 0.0, grace_s: float = 0.0
) -> Iterator[Reason]:
    """Yield what speaks against giving the host jobs of this kind, see `kind_of`."""
    if job.allowed_hosts and view.host not in job.allowed_hosts:
        yield reason("not-allowed")
    if view.host in job.denied_hosts:
        yield reason("denied")
    yield from of_needs(job.model, job.program, job.needs, view.figures, brings_data=bool(job.data))
    if (unusable := view.unusable.get(job.program_digest())) is not None:
        yield unusable
    if prefers_cuda(job) and not view.figures.cuda and left_s > 0:
        yield reason("grace", left_s=round(left_s), grace_s=grace_s)


def of_job(job: JobSpec, view: HostView) -> Iterator[Reason]:
    """Yield what speaks against this very job: its name, version and hyperparameters."""
    policy = view.policy
    denied = _matching(job, policy.deny_jobs)
    if denied is not None:
        yield reason("deny-jobs", host=view.host, pattern=denied)
    elif policy.allow_jobs and _matching(job, policy.allow_jobs) is None:
        yield reason("allow-jobs", host=view.host)
    if job.program is None:
        yield from of_trainer(job.model, job.version, job.hyper, view.capability.trainers)


def choose(
    job: JobSpec, views: Iterable[HostView], left_s: float = 0.0, last_host: str | None = None
) -> HostView | None:
    """Return the host that suits the job best, or none.

    A host with a free slot first; then a higher host priority; a CUDA host for a job that would use
    it, and rather another for one that would not; then `last_host`, which may still have a
    checkpoint of it; then the host that has to fetch the least (program, datasets); then the host
    where the least memory is left over; then by name.
    """
    eligible = [view for view in views if not any(reasons(job, view, left_s))]
    return min(eligible, key=lambda view: preferred(rank(job, view), last_host), default=None)


def rank(job: JobSpec, view: HostView) -> Rank:
    """Return how well a host suits a job's kind: the least is the best. The host's name is last."""
    has = view.figures
    mismatch = bool(has.cuda) != (job.needs.require_cuda or job.needs.prefer_cuda)
    spare_vram, spare_ram = (has.rooms[what].free or 0.0 for what in ("vram", "ram"))
    waits, lacks_bytes = view.free_slots() == 0, sum(view.lacks(job).values())
    return (
        waits, -view.policy.priority, mismatch, lacks_bytes, spare_vram, spare_ram, has.cores,
        view.host,
    )  # fmt: skip


def preferred(rank: Rank, last_host: str | None) -> tuple[object, ...]:
    """Return the rank for a job that was at `last_host` before."""
    waits, priority, mismatch, *rest = rank
    return (waits, priority, mismatch, rank[-1] != last_host, *rest)


def _matching(job: JobSpec, patterns: Iterable[str]) -> str | None:
    for pattern in patterns:
        if fnmatchcase(job.name, pattern) or fnmatchcase(job.model, pattern):
            return pattern
    return None
