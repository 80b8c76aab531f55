"""Presence and heartbeats: who is there, and what each host says that it holds.

A heartbeat's list of held jobs is complete, so it repairs whatever a lost message left behind: a
job that is listed has its lease renewed, a job that is void is told to stop, and a job that a
restarted agent no longer lists is lost at once instead of at the end of its lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.clock import Now
from broker.protocol import messages as m
from coordinator.core import give_back, host_rules, leases
from coordinator.core.assignment import catch_up, resume, take_back, void_claims
from coordinator.core.effects import KeepPoint, Warn
from coordinator.core.retries import lose, put_back
from coordinator.core.state import MAX_HOSTS, World
from coordinator.core.stopping import is_late, on_return, tell_to_stop, why_void
from coordinator.jobs.causes import cause
from coordinator.jobs.hosts import TWIN_WINDOW_S, Host
from coordinator.jobs.states import FINAL, Event, JobState

_DONE: Final = frozenset({"bundling", "reporting", "uploading"})
_HANDS_OVER: Final = frozenset({"reporting", "uploading"})
_AT_WORK: Final = frozenset({"running", "stopping", "bundling", "reporting", "uploading"})
ASK_AFTER_S: Final = 5.0
SPREAD_A_HOST_S: Final = 0.005  # an answer has 14 KB: hosts are not asked all at once
AGAIN_S: Final = 10.0  # until the same host may be asked again


def host_of(world: World, name: str) -> Host | None:
    """Return the host, made known if it is new; none when there are too many already."""
    host = world.hosts.get(name)
    if host is None and len(world.hosts) < MAX_HOSTS:
        host = world.hosts[name] = Host(name)
    if host is None:
        world.drop("hosts", f"more than {MAX_HOSTS} hosts; {name!r} is not taken in")
    return host


def on_status(
    world: World, name: str, status: m.Status, now: Now, *, retained: bool = False
) -> None:
    """A host comes or goes."""
    host = host_of(world, name)
    if host is None or not host.on_status(status, now, retained=retained):
        return
    world.look_at(name)
    world.timers.set(("summary",), now.mono_s + 0.2)
    if host.online:
        _warn_of_twin(world, host, now)
        _listen_for(world, host, now)
        void_claims(world, name, status.instance, now)
        _resend_claims(world, host, now)
        on_return(world, name, now)
        if host.early is not None and host.early.session == host.session:
            on_heartbeat(world, name, host.early, now)
        if not host.has_joined():
            expect_birth(world, host, now)
    else:
        world.timers.cancel(("silence", name))
        if status.reason == "goodbye":
            _let_go(world, host, status.owes, now)


def on_capability(world: World, name: str, payload: bytes) -> None:
    """A host says what it is, often in the same words as before. Raises `BadMessage`."""
    capability = world.trainers.share(m.decode(m.CAPABILITY, payload))
    host = host_of(world, name)
    if host is not None and host.capability != capability:
        before = host.capability.trainers if host.capability else {}
        for model, trainer in capability.trainers.items():
            was = before[model].version if model in before else ""
            if was and trainer.version and was != trainer.version:
                world.edited[model] = trainer.version
        if host.capability and host.capability.instance != capability.instance:
            host.unusable = {}
        host.capability = capability
        world.look_at(name)


def on_heartbeat(world: World, name: str, heartbeat: m.Heartbeat, now: Now) -> None:
    """A host says what it is doing."""
    host = host_of(world, name)
    if host is None:
        return
    before = host.heartbeat
    known = host.on_heartbeat(heartbeat, now)
    if not known or not host.has_joined():
        expect_birth(world, host, now)
    if not known:
        return
    _listen_for(world, host, now)
    void_claims(world, name, heartbeat.instance, now)
    is_newest = host.heartbeat is heartbeat
    for held in heartbeat.jobs:
        if is_newest:
            on_held(world, host, held, now)
            give_back.on_held(world, name, held, now)
    leases.on_heartbeat(world, name, heartbeat, now)
    host_rules.on_heartbeat(world, host, heartbeat, now)
    if is_newest:
        _miss_absent(world, host, before, heartbeat, now)
    world.look_at(name)


def on_listening(world: World, now: Now) -> None:
    """Renew every lease: nobody could be heard before this connection, or during a suspension."""
    leases.renew_all(world, now)
    for host in world.hosts.values():
        if host.online:
            _listen_for(world, host, now)


def on_disconnected(world: World, now: Now) -> None:
    """Suspend silence timers: without a connection nobody can be heard."""
    for host in world.hosts.values():
        if host.doubt(now):
            world.look_at(host.name)
        world.timers.cancel(("silence", host.name))


def on_inherited(world: World, now: Now) -> None:
    """Set the timers of hosts that were taken over from another core."""
    for host in world.hosts.values():
        world.look_at(host.name)
        if host.online:
            _listen_for(world, host, now)


def on_held(world: World, host: Host, held: m.HeldJob, now: Now) -> None:
    """A host says that it holds an attempt of a job."""
    catch_up(world, host.name, held.job_id, held.attempt, held.receipt, now)
    job = world.book.get(held.job_id)
    if job is None or job.state in FINAL or not job.is_at(host.name, held.attempt):
        if job is not None and job.state is JobState.COMPLETED and held.phase in _HANDS_OVER:
            return  # its report is answered
        if is_late(job, host.name, held.attempt) and held.phase in _DONE:
            return  # it is about to hand its result over
        tell_to_stop(world, host.name, held.job_id, held.attempt, why_void(job), now)
        return
    if job.state is JobState.PENDING:
        job = resume(world, job, host.name, held.attempt, host.instance or "-", now)
    if job.state is JobState.CLAIMED:
        take_back(world, job)
        if held.phase in _AT_WORK:
            job = world.move(
                job, Event.STARTED, now, f"host:{host.name}", cause("seen"),
                instance=host.instance, started_at=now.text(),
            )  # fmt: skip


def on_progress(world: World, name: str, job_id: str, progress: m.Progress, now: Now) -> None:
    """A trainer's progress, kept for whoever looks at the job; what is retained comes again."""
    job, host = world.book.get(job_id), world.hosts.get(name)
    if host is None or job is None or host.progress.get(job_id) == progress:
        return
    if job.is_held and job.is_at(name, progress.attempt):
        host.progress[job_id], host.told_s[job_id] = progress, now.mono_s
        world.do(KeepPoint(job_id, progress))


def on_silence(world: World, name: str, now: Now) -> None:
    """Nothing was heard from a host for too long, and no broker told why."""
    host = world.hosts.get(name)
    if host is not None and host.online:
        host.silent()
        world.look_at(name)
        world.timers.set(("summary",), now.mono_s + 0.2)


def _warn_of_twin(world: World, host: Host, now: Now) -> None:
    key = ("twins", host.name)
    if host.has_twin(now) and key not in world.timers:
        world.timers.set(key, now.mono_s + TWIN_WINDOW_S)
        remedy = "give one of them another --host"
        if host.capability is not None and host.capability.certificate_expires_at:
            remedy = "each needs a certificate of its own, `fleet enroll` another name"
        world.do(Warn(f"two agents use the name {host.name!r}, and neither works well; {remedy}"))


def _listen_for(world: World, host: Host, now: Now) -> None:
    world.timers.set(("silence", host.name), now.mono_s + world.settings.host_timeout_s)


def _resend_claims(world: World, host: Host, now: Now) -> None:
    for job in world.book.held_by(host.name):
        if job.job_id in world.claims:
            world.timers.set(("assign", job.job_id), now.mono_s)


def _is_newest(world: World, owed: m.OwedResult) -> bool:
    job = world.book.get(owed.job_id)
    return job is not None and job.attempt == owed.attempt


def _miss_absent(
    world: World, host: Host, before: m.Heartbeat | None, heartbeat: m.Heartbeat, now: Now
) -> None:
    """Take as lost what the host should hold, and does not list.

    What an earlier process of this agent held is lost at once, unless that process may come back.
    What this one has listed before is put back at once. So is what it has yet to list, as after the
    ledger was restored, but later: a heartbeat may be older than the job's start.
    """
    if len(heartbeat.jobs) >= m.MAX_LISTED:
        return  # there may be more
    holds = world.book.held_by(host.name)
    if not holds:
        return
    held = {(job.job_id, job.attempt) for job in heartbeat.jobs}
    listed = before.jobs if before is not None and before.instance == heartbeat.instance else ()
    known = {(job.job_id, job.attempt) for job in listed}
    since, host.unlisted = host.unlisted, {}
    for job in holds:
        key = (job.job_id, job.attempt)
        if key in held or job.job_id in world.claims:
            continue
        if job.instance not in {None, heartbeat.instance}:
            if not host.may_have_twin(now):
                lose(world, job, now, f"host:{host.name}", cause("restarted"))
            continue
        host.unlisted[key] = since.get(key, now.mono_s)
        if key in known or now.mono_s - host.unlisted[key] > world.settings.host_timeout_s:
            put_back(world, job, now, cause("dropped"))


def _let_go(world: World, host: Host, owes: Sequence[m.OwedResult], now: Now) -> None:
    """Take back what a host held that said goodbye, save what it has finished and will upload.

    `owes` is what it says of that itself: it may have finished while no coordinator was there. Of
    two agents of one name, the one that goes speaks for itself alone.
    """
    awaited = world.expected.values()
    finished = {expected.job_id for expected in awaited if not expected.is_checkpoint}
    finished |= {owed.job_id for owed in owes if _is_newest(world, owed)}
    for job in world.book.held_by(host.name):
        others = host.may_have_twin(now) and job.instance not in {None, host.instance}
        if job.job_id not in finished and not others:
            world.move(job, Event.RELEASED, now, f"host:{host.name}", cause("goodbye"), host=None)


def expect_birth(world: World, host: Host, now: Now) -> None:
    """The rest of a host's birth is to come; it may be lost, or wait behind those of others."""
    key = ("birth", host.name)
    if key not in world.timers and ("reborn", host.name) not in world.timers:
        spread_s = SPREAD_A_HOST_S * len(world.hosts) * world.rng.random()
        world.timers.set(key, now.mono_s + ASK_AFTER_S + spread_s)


def ask_birth(world: World, host: Host, now: Now) -> None:
    """Have a host state its birth now."""
    world.timers.set(("reborn", host.name), now.mono_s + AGAIN_S)
    world.publish(world.topics.request(host.name), m.Rebirth(id=world.new_id()))


def on_birth_due(world: World, name: str, now: Now) -> None:
    """Ask a host for what is lacking of its birth."""
    host = world.hosts.get(name)
    if host is not None and (host.early is not None or not host.has_joined()):
        ask_birth(world, host, now)
