"""Which host may take which job, and which one should: pure functions over what is known.

`reasons` returns every reason against a host, in an operator's words; no reason means eligible. It
has three parts, of the host, of the job's kind and of the job itself. Assignment, `fleet why` and
the forecast ask these three and nothing else.

What a host declares in the manifest and what it detects are intersected: the more restrictive wins.
Free memory is what the newest heartbeat says, other people's processes counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from broker.protocol.hyperschema import check_hyper
from broker.protocol.messages import Capability, Gpu, Heartbeat, Needs
from coordinator.jobs.plan_entries import HostPolicy, JobSpec

GIB: Final = 1024**3
# What an operator lifts, by `fleet resume` or `fleet pause --off`, or by mounting a disk: the host
# suits all the same.
_NO_DATA: Final = "no-data"
_LIFTED: Final = frozenset({"barred", "paused", _NO_DATA})
NO_DATA: Final = "has no prepared data (start its agent with --data, or mount that folder again)"

Rank = tuple[int, bool, float, float, int, str]
# What jobs have in common of which `of_kind` says the same of every host; what hosts have in common
# that say the same of every job by `of_job`.
Kind = tuple[str, Needs, tuple[str, ...], tuple[str, ...]]
Profile = tuple[int, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a host does not take a job. `passing`: it may change without anybody's doing."""

    code: str
    text: str
    passing: bool = False

    @property
    def lasts(self) -> bool:
        """Whether neither time ends it, nor an operator's word to the host or the fleet, nor data.

        A certificate that was taken back is not lifted: who is enrolled again begins anew. By this
        alone a job that no host can ever run is told from one that waits for a host.
        """
        return not self.passing and self.code not in _LIFTED


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as matchmaking sees it.

    `joined`: its present process has said what it is and what it holds. `refused`: why it refused
    this very job a moment ago. `revoked`: that its certificate was taken back, with the remedy.
    `barred`: why it is given no jobs at all, until an operator lifts it; `snoozed`: until the
    snooze ends; `paused`: why nobody is given any. `untold`: it has not taken the manifest's rules
    yet. `twins`: two agents use its name.
    """

    host: str
    online: bool
    offline_why: str
    capability: Capability
    heartbeat: Heartbeat | None
    policy: HostPolicy
    used_slots: int = 0
    refused: tuple[str, ...] = ()
    joined: bool = True
    revoked: str = ""
    barred: tuple[str, ...] = ()
    snoozed: str = ""
    paused: str = ""
    untold: bool = False
    twins: bool = False

    def slots(self) -> int:
        """Return how many jobs it may run at once."""
        return slots(self.capability, self.policy)

    def free_slots(self) -> int:
        """Return how many more jobs it may take now."""
        return max(0, self.slots() - self.used_slots)

    def with_one_more(self) -> HostView:
        """Return the view after it was given a job."""
        return replace(self, used_slots=self.used_slots + 1)

    def refusing(self, why: tuple[str, ...]) -> HostView:
        """Return the view for a job that it has just refused."""
        return replace(self, refused=why)

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


def reasons(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> tuple[Reason, ...]:
    """Return every reason against giving `job` to the host now; none means eligible.

    `waited_s` is for how long the job has been pending, `grace_s` for how long a `prefer_cuda` job
    waits for a CUDA host.
    """
    return tuple(_reasons(job, view, waited_s, grace_s))


def _reasons(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> Iterator[Reason]:
    yield from of_host(view)
    yield from of_kind(job, view, waited_s, grace_s)
    yield from of_job(job, view)


def of_host(view: HostView) -> Iterator[Reason]:
    """Yield what speaks against giving the host any job now."""
    yield from _by_presence(view)
    yield from _by_people(view)
    yield from _by_slots(view)


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


def _by_presence(view: HostView) -> Iterable[Reason]:
    if not view.online:
        yield Reason("offline", f"offline ({view.offline_why or 'unknown'})", passing=True)
    elif not view.joined:
        yield Reason("joining", "has just come; its first heartbeat is awaited", passing=True)
    elif view.heartbeat is not None and view.heartbeat.refuses:
        text = f"takes no jobs now: {view.heartbeat.refuses}"
        yield Reason("refuses", text, passing=True)
    if view.twins:
        yield Reason("twins", _why_twins(view.capability), passing=True)
    if view.online and view.joined and view.untold:
        text = "its agent has not taken the manifest's quiet hours yet (is it of this version?)"
        yield Reason("rules", text, passing=True)


def _by_people(view: HostView) -> Iterable[Reason]:
    if view.revoked:
        yield Reason("revoked", view.revoked)
    for why in view.barred:
        yield Reason("barred", why)
    if view.snoozed:
        yield Reason("snoozed", view.snoozed, passing=True)
    if view.paused:
        yield Reason("paused", view.paused)


def _by_slots(view: HostView) -> Iterable[Reason]:
    slots = view.slots()
    if slots == 0:
        yield Reason("no-slots", "[hosts] gives it no slots")
    elif view.free_slots() == 0:
        busy = "its only slot is busy" if slots == 1 else f"all {slots} slots are busy"
        yield Reason("busy", busy, passing=True)
    for why in view.refused:
        yield Reason("refused", f"refused a moment ago: {why}", passing=True)


def _why_twins(capability: Capability) -> str:
    if capability.certificate_expires_at:  # with TLS the certificate has the name
        return "two agents use its certificate; `fleet enroll` another name for one of them"
    return "two agents use its name; start one of them with another --host"


def _by_hosts(job: JobSpec, view: HostView) -> Iterable[Reason]:
    if job.allowed_hosts and view.host not in job.allowed_hosts:
        yield Reason("not-allowed", "not among the job's allowed_hosts")
    if view.host in job.denied_hosts:
        yield Reason("denied", "among the job's denied_hosts")


def _by_name(job: JobSpec, view: HostView) -> Iterable[Reason]:
    policy = view.policy
    denied = _matching(job, policy.deny_jobs)
    if denied is not None:
        text = f"[hosts.{view.host}] deny_jobs has {denied!r}"
        yield Reason("deny-jobs", text)
    elif policy.allow_jobs and _matching(job, policy.allow_jobs) is None:
        yield Reason("allow-jobs", f"[hosts.{view.host}] allow_jobs does not have it")


def _matching(job: JobSpec, patterns: Iterable[str]) -> str | None:
    for pattern in patterns:
        if fnmatchcase(job.name, pattern) or fnmatchcase(job.model, pattern):
            return pattern
    return None


def _by_trainer(job: JobSpec, view: HostView) -> Iterable[Reason]:
    if job.model not in view.capability.trainers:
        yield Reason("no-trainer", f"has no trainer for {job.model!r}")


def _by_hyper(job: JobSpec, view: HostView) -> Iterable[Reason]:
    trainer = view.capability.trainers.get(job.model)
    if trainer is not None:
        for key, message in check_hyper(job.hyper, trainer.hyper_schema, job.model):
            yield Reason("hyper", f"its trainer does not take hyper.{key}: {message}")


def _by_hardware(job: JobSpec, view: HostView) -> Iterable[Reason]:
    capability = view.capability
    if capability.data_id is None:
        yield Reason(_NO_DATA, NO_DATA)
    need = job.needs
    if need.require_cuda and not view.has_cuda():
        if capability.gpus:
            yield Reason("cuda-off", f"needs CUDA; [hosts.{view.host}] says cuda = false")
        else:
            yield Reason("no-cuda", "needs CUDA; this host has none")
    cores = capability.physical_cores
    if need.min_cores is not None and cores < need.min_cores:
        yield Reason("cores", f"needs {need.min_cores} cores; this host has {cores}")


def _by_memory(job: JobSpec, view: HostView) -> Iterable[Reason]:
    need = job.needs
    if need.min_ram_gib is not None:
        most = _within(view.capability.ram_total_bytes, view.policy.max_ram_gib)
        free = min(view.free_ram_bytes(), most)
        if most < need.min_ram_gib * GIB:
            text = f"needs {need.min_ram_gib:g} GiB of RAM; this host has {_gib(most)}"
            yield Reason("ram", text)
        elif free < need.min_ram_gib * GIB:
            text = (
                f"needs {need.min_ram_gib:g} GiB of RAM; {_gib(free)} is available now"
                f" (of {_gib(most)})"
            )
            yield Reason("ram-now", text, passing=True)
    if need.min_vram_gib is not None and use_cuda(job, view):
        yield from _by_vram(need.min_vram_gib, view)


def _by_vram(need_gib: float, view: HostView) -> Iterable[Reason]:
    totals = [gpu.vram_total_bytes for gpu in view.capability.gpus if gpu.vram_total_bytes]
    most = _within(max(totals), view.policy.max_vram_gib) if totals else None
    free = view.free_vram_bytes()
    if most is not None and most < need_gib * GIB:
        yield Reason("vram", f"needs {need_gib:g} GiB of VRAM; this host has {_gib(most)}")
    elif free is None and most is None:
        text = f"needs {need_gib:g} GiB of VRAM; what is free here is unknown"
        yield Reason("vram-unknown", text)
    elif free is not None and free < need_gib * GIB:
        of = f" (of {_gib(most)})" if most is not None else ""
        text = f"needs {need_gib:g} GiB of VRAM; {_gib(free)} is free now{of}"
        yield Reason("vram-now", text, passing=True)


def _by_grace(job: JobSpec, view: HostView, waited_s: float, grace_s: float) -> Iterable[Reason]:
    if prefers_cuda(job) and not view.has_cuda() and waited_s < grace_s:
        text = (
            f"prefers CUDA, which this host has not; waits {grace_s - waited_s:.0f} s more"
            f" (of {grace_s:g} s) for a host that has"
        )
        yield Reason("grace", text, passing=True)


def _within(size_bytes: float, limit_gib: float | None) -> float:
    return size_bytes if limit_gib is None else min(size_bytes, limit_gib * GIB)


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
