"""Who gets which job, and how a host answers that: it accepts, refuses, starts, or is silent.

The decision and its explanation ask the same rules over the same views: `settle` by the queue,
`fleet why` by `host_views.explain`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.clock import Now, backoff_s
from broker.protocol.messages import Accepted, Assign, Checkpoint, Refused, Started
from broker.protocol.reasons import Reason, reason, uses_cuda
from broker.stream.stream import chunk_size
from coordinator.core import catalogue, leases, successors
from coordinator.core.entries import Claim
from coordinator.core.host_views import grace_over_s, host_view, refusals
from coordinator.core.receipts import is_receipt, receipt
from coordinator.core.retries import hold_back
from coordinator.core.state import RESEND_BASE_S, RESEND_CAP_S, World
from coordinator.core.stopping import current
from coordinator.jobs.causes import NONE, cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.states import Event, JobState
from coordinator.scheduler.queue import Queue
from coordinator.scheduler.rules import HostView

_CARRIED: Final = tuple(
    name
    for name in JobSpec.__slots__
    if name in Assign.model_fields and name not in {"inputs", "data"}
)


def settle(world: World, now: Now) -> None:
    """Give out jobs until something speaks against each pending job on every host."""
    while world.unsettled:
        give_out(world, now)
        world.unsettled = bool(world.changed_hosts)  # those that were given one


def give_out(world: World, now: Now) -> None:
    """Give every pending job that can start now to the host that suits it."""
    bring_up_to_date(world, now)
    for job, view in world.queue.assign(partial(refusals, world, now=now)):
        _assign(world, job, view, now)


def bring_up_to_date(world: World, now: Now) -> None:
    """Have the queue see what has changed: jobs, hosts, and what time has brought."""
    moved, names = world.book.take_moved(), [*world.changed_hosts]
    world.changed_hosts.clear()
    if not world.queue.is_of(world.plan, len(world.hosts)):
        world.queue = Queue(world.plan)
        moved, names = world.book.in_state(JobState.PENDING), [*world.hosts]
    queue = world.queue
    for name in names:
        view = host_view(world, name, now)
        if view is None:
            queue.leave(name)
            continue
        queue.see(view)
        if view.twins:
            world.timers.set(("alone", name), world.hosts[name].alone_s())
    due = map(world.book.known, queue.later.due(now.mono_s))
    for job in (*successors.with_successors(world, moved), *due):
        waits = job.state is JobState.PENDING and job.in_plan
        if not waits:
            world.behind.pop(job.job_id, None)
        if waits and not successors.holds(world, job, now):
            ready_s = world.timers.when_s(("retry", job.job_id)) or 0.0
            queue.place(job, ready_s, grace_over_s(world, job, now), now.mono_s)
        else:
            queue.remove(job.job_id)
    due_s = queue.later.next_deadline()
    if due_s is not None:
        world.timers.set(("waiting",), due_s)


def _assign(world: World, job: Job, view: HostView, now: Now) -> None:
    attempt = job.attempt + 1
    left_off = _left_off(world, job)
    why = cause("resumes", resumed_from=left_off.attempt) if left_off else NONE
    job = world.move(
        job, Event.ASSIGNED, now, "coordinator", why,
        host=view.host, attempt=attempt, instance=world.hosts[view.host].instance,
    )  # fmt: skip
    request = assign_request(world, job, cuda=uses_cuda(job.spec.needs, view.figures))
    successors.lend(world, request)
    world.claims[job.job_id] = Claim(
        request, view.host, now.mono_s + world.settings.claim_timeout_s, 0
    )
    send_claim(world, job.job_id, now)


def assign_request(world: World, job: Job, *, cuda: bool) -> Assign:
    """Return the assignment of a claimed job's newest attempt."""
    program = catalogue.program_of(world, job.spec)
    return Assign(
        **{name: getattr(job.spec, name) for name in _CARRIED},
        data=catalogue.data_of(world, job.spec),
        signatures=() if program is None else program.signatures,
        crl="" if job.spec.program is None else world.crl,
        id=world.new_id(),
        attempt=job.attempt,
        instance=job.instance or "-",
        use_cuda=cuda,
        checkpoint=_left_off(world, job),
        inputs=successors.inputs_of(world, job),
        void_attempt=job.void_attempt,
        receipt=receipt(world.settings.receipt_key, job.host or "-", job.job_id, job.attempt),
    )


def catch_up(
    world: World, host: str, job_id: str, attempt: int, said: str, now: Now
) -> None:  # fmt: skip
    """Take over an assignment that a restored ledger has lost, if its host shows the receipt."""
    job = world.book.get(job_id)
    if job is None or job.state is not JobState.PENDING or attempt <= job.attempt:
        return
    if is_receipt(world.settings.receipt_key, said, host, job_id, attempt):
        why = cause("before_restore")
        world.move(job, Event.RESTORED, now, f"host:{host}", why, host=host, attempt=attempt)


def _left_off(world: World, job: Job) -> Checkpoint | None:
    left_off = job.checkpoint
    if left_off is None or left_off.artifact_id not in world.stored:
        return None
    return Checkpoint(
        artifact_id=left_off.artifact_id,
        size_bytes=left_off.size_bytes,
        chunk_bytes=chunk_size(left_off.size_bytes),
        attempt=left_off.attempt,
    )


def send_claim(world: World, job_id: str, now: Now) -> None:
    """Send an assignment, again and again until it is answered or given up."""
    claim = world.claims.get(job_id)
    job = world.book.get(job_id)
    if claim is None or job is None or job.state is not JobState.CLAIMED:
        return
    if now.mono_s >= claim.until_s:
        hold_back(world, job, claim.host, (reason("silent"),), now)
        why = cause("no_answer", host=claim.host)
        world.move(job, Event.UNANSWERED, now, "coordinator", why)
        return
    request = claim.request
    if len(request.inputs) == len(job.spec.inputs):  # else one was made anew since it was given out
        world.publish(world.topics.request(claim.host), request)
    wait_s = backoff_s(claim.sent, RESEND_BASE_S, RESEND_CAP_S, world.rng)
    world.claims[job_id] = Claim(request, claim.host, claim.until_s, claim.sent + 1)
    world.timers.set(("assign", job_id), min(now.mono_s + wait_s, claim.until_s))


def void_claims(world: World, host: str, instance: str, now: Now) -> None:
    """Another process of the agent is there: the one that was asked will not answer any more."""
    for job in world.book.held_by(host):
        claim = world.claims.get(job.job_id)
        if claim is not None and claim.request.instance != instance:
            world.move(job, Event.UNANSWERED, now, "coordinator", cause("process_gone"))


def take_back(world: World, job: Job) -> None:
    """The claim is answered: stop repeating it."""
    world.claims.pop(job.job_id, None)
    world.timers.cancel(("assign", job.job_id))


def on_accepted(world: World, host: str, report: Accepted, now: Now) -> None:
    """An agent takes a job."""
    job = _taken_up(world, host, report, now)
    if job is not None:
        take_back(world, job)
        leases.grant(world, host, report.id, [job], now)


def on_refused(world: World, host: str, report: Refused, now: Now) -> None:
    """An agent does not take a job, and says why."""
    job = world.book.get(report.job_id)
    if job is None or job.state is not JobState.CLAIMED or not job.is_at(host, report.attempt):
        return
    reasons = tuple(Reason(one.code, one.figures()) for one in report.reasons)
    hold_back(world, job, host, reasons, now)
    why = cause("refused", reasons=[one.to_dict() for one in reasons])
    world.move(job, Event.REFUSED, now, f"host:{host}", why, host=None)


def on_started(world: World, host: str, report: Started, now: Now) -> None:
    """A trainer runs."""
    job = _taken_up(world, host, report, now)
    if job is None:
        return
    world.holdbacks.get(job.job_id, {}).pop(host, None)
    if job.state is JobState.CLAIMED:
        take_back(world, job)
        figures = {"resumes": report.resumes, "slot": report.slot, "pid": report.pid}
        why = cause("started", **figures, **report.lead())
        job = world.move(
            job, Event.STARTED, now, f"host:{host}", why,
            instance=report.instance, started_at=now.text(),
        )  # fmt: skip
    leases.renew(world, job, now)


def on_wait_over(world: World, key: tuple[str, ...]) -> None:
    """What kept jobs from being assigned has passed: of a host, or of a job."""
    world.unsettled = True
    if key[0] in {"alone", "holdback"}:
        world.look_at(key[-1])


def _taken_up(world: World, host: str, report: Accepted | Started, now: Now) -> Job | None:
    """Return the job of a report, resumed if it was given up; none: the report does not count."""
    job = current(world, host, report.job_id, report.attempt, now)
    if job is None or job.state is not JobState.PENDING:
        return job
    known = world.hosts.get(host)
    if known is not None and known.instance not in {None, report.instance}:
        return None  # it is of an earlier process of that agent
    return resume(world, job, host, report.attempt, report.instance, now)


def resume(world: World, job: Job, host: str, attempt: int, instance: str, now: Now) -> Job:
    """Let a host go on with an attempt that was given up, since nobody else was given the job."""
    return world.move(
        job, Event.RESUMED, now, f"host:{host}", cause("at_work"),
        host=host, attempt=attempt, instance=instance, started_at=now.text(),
    )  # fmt: skip


def on_claims_loaded(world: World, now: Now) -> None:
    """After a restart: grant fresh leases, ask for every unanswered claim again."""
    leases.renew_all(world, now)
    for job in world.book.in_state(JobState.CLAIMED):
        if job.host is not None:
            may = world.policy(job.host).cuda is not False
            cuda = job.spec.needs.require_cuda or (job.spec.needs.prefer_cuda and may)
            # Its host may have accepted it, and been granted a lease, before the restart.
            until_s = now.mono_s + leases.lease_s(world, job.host)
            request = assign_request(world, job, cuda=cuda)
            successors.lend(world, request)
            world.claims[job.job_id] = Claim(request, job.host, until_s, 0)
            world.timers.set(("assign", job.job_id), now.mono_s + RESEND_BASE_S)
