"""Which host may take which job, and which one should: pure functions over what is known.

`reasons` returns every reason against a host; no reason means eligible. It has three parts, of the
host, of the job's kind and of the job itself. Assignment, `fleet why` and the forecast ask these
three and nothing else.

What a host declares in the manifest and what it detects are intersected: the more restrictive wins.
Free memory is what the newest heartbeat says, other people's processes counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from broker.protocol.hyperschema import check_hyper
from broker.protocol.messages import Capability, Gpu, Heartbeat, Needs, lacking
from coordinator.jobs.plan_entries import HostPolicy, JobSpec
from coordinator.jobs.reasons import Reason, reason

GIB: Final = 1024**3

Rank = tuple[int, bool, float, float, int, str]
# What jobs have in common of which `of_kind` says the same of every host; what hosts have in common
# that say the same of every job by `of_job`.
Kind = tuple[str, Needs, tuple[str, ...], tuple[str, ...]]
Profile = tuple[int, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as matchmaking sees it.

    `presence` is in one word how it is there. `joined`: its present process has said what it is and
    what it holds. `restraints` are what operators have decided. `untold`: it has not taken the
    manifest's rules yet. `twins`: two agents use its name.
    """

    host: str
    online: bool
    presence: str
    capability: Capability
    heartbeat: Heartbeat | None
    policy: HostPolicy
    used_slots: int = 0
    joined: bool = True
    restraints: tuple[Reason, ...] = ()
    untold: bool = False
    twins: bool = False

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

    def profile(self) -> Profile:
        """Return its profile. Equal sets of trainers are the same object, see `TrainerSets`."""
        return id(self.capability.trainers), self.policy.allow_jobs, self.policy.deny_jobs

    def size(self) -> tuple[object, ...]:
        """Return what it has that decides whether it can ever take a job of some kind."""
        has, limit = self.capability, self.policy
        totals = [gpu.vram_total_bytes for gpu in has.gpus]
        return (
            has.physical_cores, has.ram_total_bytes, *totals, has.data_id is None,
            limit.max_ram_gib, limit.max_vram_gib, limit.cuda, self.free_vram_bytes() is None,
        )  # fmt: skip

    def has_cuda(self) -> bool:
        """Return whether it has a CUDA device that the manifest lets it use."""
        return bool(self.capability.gpus) and self.policy.cuda is not False

    def gpus(self) -> Sequence[Gpu]:
        """Return its CUDA devices with the newest figures."""
        if not self.has_cuda():
            return ()
        measured = self.heartbeat.gpus if self.heartbeat else ()
        return measured or self.capability.gpus

    def free_ram_bytes(self) -> float:
        """Return the RAM that is available now, within what is declared."""
        beat = self.heartbeat
        free = beat.ram_available_bytes if beat else self.capability.ram_available_bytes
        return _within(free, self.policy.max_ram_gib)

    def free_vram_bytes(self) -> float | None:
        """Return the VRAM that is free on the best device, or none if that is not known."""
        free = [gpu.vram_free_bytes for gpu in self.gpus() if gpu.vram_free_bytes is not None]
        return _within(max(free), self.policy.max_vram_gib) if free else None


def slots(capability: Capability, policy: HostPolicy) -> int:
    """Return how many jobs a host may run at once."""
    return capability.slots if policy.slots is None else min(policy.slots, capability.slots)


def prefers_cuda(job: JobSpec) -> bool:
    """Whether the job waits for a CUDA host for a while."""
    return job.needs.prefer_cuda and not job.needs.require_cuda


def kind_of(job: JobSpec) -> Kind:
    """Return the kind of a job."""
    return job.model, job.needs, job.allowed_hosts, job.denied_hosts


def reasons(
    job: JobSpec, view: HostView, waited_s: float, grace_s: float, more: Iterable[Reason] = ()
) -> tuple[Reason, ...]:
    """Return every reason against giving `job` to the host now; none means eligible.

    `waited_s` is for how long the job has been pending, `grace_s` for how long a `prefer_cuda` job
    waits for a CUDA host. `more` are what is known of this job and host beside.
    """
    return (*more, *_reasons(job, view, waited_s, grace_s))


def _reasons(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> Iterator[Reason]:
    yield from of_host(view)
    yield from of_kind(job, view, waited_s, grace_s)
    yield from of_job(job, view)


def of_host(view: HostView) -> Iterator[Reason]:
    """Yield what speaks against giving the host any job now."""
    if not view.online:
        yield reason("offline", presence=view.presence)
    elif not view.joined:
        yield reason("joining", presence=view.presence)
    elif view.heartbeat is not None and view.heartbeat.refuses:
        yield reason("refuses", said=view.heartbeat.refuses)
    if view.twins:
        # With TLS it is the certificate that has the name.
        yield reason("twins", tls=bool(view.capability.certificate_expires_at))
    if view.online and view.joined and view.untold:
        yield reason("rules")
    yield from view.restraints
    if view.slots() == 0:
        yield reason("no-slots")
    elif view.free_slots() == 0:
        yield reason("busy", available=view.slots())


def of_kind(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> Iterator[Reason]:
    """Yield what speaks against giving the host jobs of this kind, see `kind_of`."""
    yield from _by_hosts(job, view)
    yield from _by_trainer(job, view)
    yield from _by_hardware(job, view)
    yield from _by_memory(job, view)
    yield from _by_grace(job, view, waited_s, grace_s)


def of_job(job: JobSpec, view: HostView) -> Iterator[Reason]:
    """Yield what speaks against this very job: its name, its hyperparameters."""
    yield from _by_name(job, view)
    yield from _by_hyper(job, view)


def could_take(job: JobSpec, view: HostView, grace_s: float) -> bool:
    """Whether the host could take the job, now or once what holds it up has passed by itself."""
    return all(reason.passing for reason in _reasons(job, view, grace_s, grace_s))


def choose(
    job: JobSpec,
    views: Iterable[HostView],
    waited_s: float,
    grace_s: float,
    last_host: str | None = None,
) -> HostView | None:
    """Return the host that suits the job best, or none.

    A higher host priority first; a CUDA host for a job that would use it, and rather another for
    one that would not; then `last_host`, which may still have a checkpoint of it; then the host
    where the least memory is left over; then by name.
    """
    eligible = [view for view in views if not any(_reasons(job, view, waited_s, grace_s))]
    return min(eligible, key=lambda view: preferred(rank(job, view), last_host), default=None)


def use_cuda(job: JobSpec, view: HostView) -> bool:
    """Return whether the job gets the CUDA device of its slot on this host."""
    return view.has_cuda() and (job.needs.require_cuda or job.needs.prefer_cuda)


def rank(job: JobSpec, view: HostView) -> Rank:
    """Return how well a host suits a job's kind: the least is the best. The host's name is last."""
    mismatch = view.has_cuda() != (job.needs.require_cuda or job.needs.prefer_cuda)
    spare_vram = view.free_vram_bytes() or 0.0
    cores = view.capability.physical_cores
    return (
        -view.policy.priority, mismatch, spare_vram, view.free_ram_bytes(), cores, view.host
    )  # fmt: skip


def preferred(rank: Rank, last_host: str | None) -> tuple[object, ...]:
    """Return the rank for a job that was at `last_host` before."""
    priority, mismatch, *rest = rank
    return (priority, mismatch, rank[-1] != last_host, *rest)


def _by_hosts(job: JobSpec, view: HostView) -> Iterable[Reason]:
    if job.allowed_hosts and view.host not in job.allowed_hosts:
        yield reason("not-allowed")
    if view.host in job.denied_hosts:
        yield reason("denied")


def _by_name(job: JobSpec, view: HostView) -> Iterable[Reason]:
    policy = view.policy
    denied = _matching(job, policy.deny_jobs)
    if denied is not None:
        yield reason("deny-jobs", host=view.host, pattern=denied)
    elif policy.allow_jobs and _matching(job, policy.allow_jobs) is None:
        yield reason("allow-jobs", host=view.host)


def _matching(job: JobSpec, patterns: Iterable[str]) -> str | None:
    for pattern in patterns:
        if fnmatchcase(job.name, pattern) or fnmatchcase(job.model, pattern):
            return pattern
    return None


def _by_trainer(job: JobSpec, view: HostView) -> Iterable[Reason]:
    if job.model not in view.capability.trainers:
        yield reason("no-trainer", said=job.model)


def _by_hyper(job: JobSpec, view: HostView) -> Iterable[Reason]:
    trainer = view.capability.trainers.get(job.model)
    if trainer is not None:
        for key, message in check_hyper(job.hyper, trainer.hyper_schema, job.model):
            yield reason("hyper", key=key, said=message)


def _by_hardware(job: JobSpec, view: HostView) -> Iterable[Reason]:
    capability = view.capability
    if capability.data_id is None:
        yield reason("no-data")
    need = job.needs
    if need.require_cuda and not view.has_cuda():
        yield reason("cuda-off", host=view.host) if capability.gpus else reason("no-cuda")
    cores = capability.physical_cores
    if need.min_cores is not None and cores < need.min_cores:
        yield reason("cores", needed=need.min_cores, available=cores)


def _by_memory(job: JobSpec, view: HostView) -> Iterable[Reason]:
    need = job.needs
    if need.min_ram_gib is not None:
        most = _within(view.capability.ram_total_bytes, view.policy.max_ram_gib)
        yield from _short("ram", need.min_ram_gib, min(view.free_ram_bytes(), most), most)
    if view.heartbeat is not None:
        yield from (Reason(one.code, one.figures()) for one in lacking(need, view.heartbeat))
    if need.min_vram_gib is not None and use_cuda(job, view):
        totals = [gpu.vram_total_bytes for gpu in view.capability.gpus if gpu.vram_total_bytes]
        total = _within(max(totals), view.policy.max_vram_gib) if totals else None
        yield from _short("vram", need.min_vram_gib, view.free_vram_bytes(), total)


def _short(
    what: str, needed: float, free_bytes: float | None, most_bytes: float | None
) -> Iterable[Reason]:
    """Yield that a host has less than is needed in all, or less than that is free now."""
    if most_bytes is not None and most_bytes < needed * GIB:
        yield reason(what, needed=needed, available=_gib(most_bytes))
    elif free_bytes is None and most_bytes is None:
        yield reason(f"{what}-unknown", needed=needed)
    elif free_bytes is not None and free_bytes < needed * GIB:
        total = {} if most_bytes is None else {"total": _gib(most_bytes)}
        yield reason(f"{what}-now", needed=needed, available=_gib(free_bytes), **total)


def _by_grace(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> Iterable[Reason]:
    if prefers_cuda(job) and not view.has_cuda() and waited_s < grace_s:
        yield reason("grace", left_s=round(grace_s - waited_s), grace_s=grace_s)


def _within(size_bytes: float, limit_gib: float | None) -> float:
    return size_bytes if limit_gib is None else min(size_bytes, limit_gib * GIB)


def _gib(size_bytes: float) -> float:
    return round(size_bytes / GIB, 3)
