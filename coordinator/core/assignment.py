"""Who gets which job, and what becomes of a claim: answered, refused, unanswered, lost.

The decision and its explanation ask the same rules over the same views: `settle` by the queue,
`fleet why` by `host_views.explain`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from broker.clock import Now, backoff_s, rfc3339, until
from broker.protocol.messages import Accepted, Assign, Checkpoint, Failed, Refused, Started
from broker.stream.stream import chunk_size
from coordinator.core import earlier_attempts, host_rules
from coordinator.core.entries import Claim, Holdback
from coordinator.core.host_views import host_view, refusals
from coordinator.core.receipts import is_receipt, receipt
from coordinator.core.state import RESEND_BASE_S, RESEND_CAP_S, World
from coordinator.core.stopping import current
from coordinator.jobs.causes import NONE, Cause, cause, in_words
from coordinator.jobs.jobs import Job
from coordinator.jobs.reasons import Reason, reason
from coordinator.jobs.states import FINAL, Event, JobState
from coordinator.scheduler.queue import Queue
from coordinator.scheduler.rules import HostView, of_host, use_cuda

HOLDBACK_BASE_S: Final = 30.0
HOLDBACK_CAP_S: Final = 600.0
RETRY_BASE_S: Final = 30.0
RETRY_CAP_S: Final = 1800.0
_SOON_S: Final = 0.001


def settle(world: World, now: Now) -> None:
    """Give every pending job that can start now to the host that suits it."""
    if not world.fleet.paused:  # which is a reason against every host
        bring_up_to_date(world, now)
        for job, view in world.queue.assign(world.book.known, partial(refusals, world, now=now)):
            _assign(world, job, view, now)
    world.unsettled = False


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
        if view is not None:
            queue.learn(view)
            if view.twins and view.online and view.joined and view.free_slots():
                alone_in_s = world.hosts[name].alone_in_s(now) + _SOON_S
                world.timers.set(("alone", name), now.mono_s + alone_in_s)
        if view is None or any(of_host(view)):
            queue.dismiss(name)
        else:
            queue.admit(view)
    for job in (*moved, *map(world.book.known, queue.later.due(now.mono_s))):
        if job.state is JobState.PENDING and job.in_plan:
            since_s = world.pending_since_s.get(job.job_id, now.mono_s)
            ready_s = world.retry_at_s.get(job.job_id, 0.0)
            queue.place(job, ready_s, since_s + world.grace_s(), now.mono_s)
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
    request = assign_request(world, job, cuda=use_cuda(job.spec, view))
    world.claims[job.job_id] = Claim(
        request, view.host, now.mono_s + world.settings.claim_timeout_s, 0
    )
    send_claim(world, job.job_id, now)


def assign_request(world: World, job: Job, *, cuda: bool) -> Assign:
    """Return the assignment of a claimed job's newest attempt."""
    spec = job.spec
    return Assign(
        id=world.new_id(),
        job_id=spec.job_id,
        attempt=job.attempt,
        instance=job.instance or "-",
        name=spec.name,
        model=spec.model,
        mode=spec.mode,
        hyper=dict(spec.hyper),
        split_recipe=spec.split_recipe,
        train_hosts=spec.train_hosts,
        seed=spec.seed,
        n_resamples=spec.n_resamples,
        needs=spec.needs,
        use_cuda=cuda,
        timeout_s=spec.timeout_s,
        stall_timeout_s=spec.stall_timeout_s,
        on_lost=spec.on_lost,
        checkpoint=_left_off(world, job),
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
        _hold_back(world, job, claim.host, (reason("silent"),), now)
        why = cause("no_answer", host=claim.host)
        world.move(job, Event.UNANSWERED, now, "coordinator", why)
        return
    request = claim.request
    if not job.spec.needs.require_cuda and world.policy(claim.host).cuda is False:
        # A claim that was loaded is older than the manifest, which is read after the ledger.
        request = request.model_copy(update={"use_cuda": False})
    world.publish(world.topics.request(claim.host), request)
    wait_s = backoff_s(claim.sent, RESEND_BASE_S, RESEND_CAP_S, world.rng)
    world.claims[job_id] = Claim(request, claim.host, claim.until_s, claim.sent + 1)
    world.timers.set(("assign", job_id), min(now.mono_s + wait_s, claim.until_s))


def void_claims(world: World, host: str, instance: str, now: Now) -> None:
    """Another process of the agent is there: the one that was asked will not answer any more."""
    for job in world.held_at(host):
        claim = world.claims.get(job.job_id)
        if claim is not None and claim.request.instance != instance:
            world.move(job, Event.UNANSWERED, now, "coordinator", cause("process_gone"))


def take_back(world: World, job: Job) -> None:
    """The claim is answered: stop repeating it."""
    world.claims.pop(job.job_id, None)
    world.timers.cancel(("assign", job.job_id))


def on_accepted(world: World, host: str, report: Accepted, now: Now) -> None:
    """An agent takes a job."""
    job = current(world, host, report.job_id, report.attempt, now)
    if job is None:
        return
    if job.state is JobState.PENDING:
        if is_of_old_process(world, host, report.instance):
            return
        job = resume(world, job, host, report.attempt, report.instance, now)
    take_back(world, job)
    world.holdbacks.get(job.job_id, {}).pop(host, None)
    world.grant_leases(host, report.id, [job], now)


def on_refused(world: World, host: str, report: Refused, now: Now) -> None:
    """An agent does not take a job, and says why."""
    job = world.book.get(report.job_id)
    if job is None or job.state is not JobState.CLAIMED or not job.is_at(host, report.attempt):
        return
    reasons = tuple(Reason(one.code, one.figures()) for one in report.reasons)
    _hold_back(world, job, host, reasons, now)
    why = cause("refused", reasons=[one.to_dict() for one in reasons])
    world.move(job, Event.REFUSED, now, f"host:{host}", why, host=None)


def on_started(world: World, host: str, report: Started, now: Now) -> None:
    """A trainer runs."""
    job = current(world, host, report.job_id, report.attempt, now)
    if job is None:
        return
    if job.state is JobState.PENDING:
        if is_of_old_process(world, host, report.instance):
            return
        job = resume(world, job, host, report.attempt, report.instance, now)
    if job.state is JobState.CLAIMED:
        take_back(world, job)
        why = cause("started", resumes=report.resumes, slot=report.slot, pid=report.pid)
        job = world.move(
            job, Event.STARTED, now, f"host:{host}", why,
            instance=report.instance, started_at=now.text(),
        )  # fmt: skip
    world.renew_lease(job, now)


def on_failed(world: World, host: str, report: Failed, now: Now) -> None:
    """A trainer failed."""
    job = world.book.get(report.job_id)
    if job is None or job.state in FINAL or not job.is_at(host, report.attempt):
        world.note(host, report, "superseded")
        return
    error = report.error.strip() or f"exit code {report.exit_code}"
    text = error.splitlines()[0][:500]
    if report.transient:
        host_rules.note_failure(world, host, job.job_id)
    if report.transient and job.failures < job.spec.retries:
        _retry(world, job, host, report, text, now)
    else:
        world.move(
            job, Event.FAILED, now, f"host:{host}", cause("error", text=text),
            error=error, host=host, attempt=report.attempt,
            ran_s=earlier_attempts.ran_s(world, report, now),
        )  # fmt: skip
    world.note(host, report, "recorded")


def _retry(world: World, job: Job, host: str, report: Failed, text: str, now: Now) -> None:
    """Let a job that failed try again after a while, on another host if there is one."""
    wait_s = backoff_s(job.failures, RETRY_BASE_S, RETRY_CAP_S, world.rng)
    failures = job.failures + 1
    why = cause("error", text=text, retry=failures, retries=job.spec.retries)
    world.move(
        job, Event.RETRIED, now, f"host:{host}", why, host=None, attempt=report.attempt,
        failures=failures, not_before=rfc3339(now.wall_s + wait_s),
        ran_s=earlier_attempts.ran_s(world, report, now),
    )  # fmt: skip
    world.pending_since_s.setdefault(job.job_id, now.mono_s)
    set_retry(world, job.job_id, now.mono_s + wait_s)
    _hold_back(world, job, host, (reason("failed"),), now)


def set_retry(world: World, job_id: str, at_s: float) -> None:
    """Keep a pending job from being assigned until then."""
    world.retry_at_s[job_id] = at_s
    world.timers.set(("retry", job_id), at_s)


def on_wait_over(world: World, key: tuple[str, ...]) -> None:
    """What kept jobs from being assigned has passed: of a host, or of a job."""
    world.unsettled = True
    if key[0] in {"alone", "holdback"}:
        world.look_at(key[-1])


def is_of_old_process(world: World, host: str, instance: str) -> bool:
    """Whether another process of that agent is known to be there now."""
    known = world.hosts.get(host)
    return known is not None and known.instance not in {None, instance}


def resume(world: World, job: Job, host: str, attempt: int, instance: str, now: Now) -> Job:
    """Let a host go on with an attempt that was given up, since nobody else was given the job."""
    return world.move(
        job, Event.RESUMED, now, f"host:{host}", cause("at_work"),
        host=host, attempt=attempt, instance=instance, started_at=now.text(),
    )  # fmt: skip


def lose(world: World, job: Job, now: Now, who: str, why: Cause, **changes: Any) -> None:
    """An attempt is lost; after too many the job fails. Its host may still come back to it."""
    losses = job.losses + 1
    if losses >= world.settings.max_attempts:
        error = f"lost {losses} times, the last time on {job.host}: {in_words(why)}"
        changes |= {"error": error, "losses": losses, "checkpoint": None}
        world.move(job, Event.EXHAUSTED, now, who, why, **changes)
    else:
        world.move(job, Event.LOST, now, who, why, losses=losses, **changes)


def put_back(world: World, job: Job, now: Now, why: Cause) -> None:
    """The agent dropped an attempt without a report: it is lost, unless a rival stopped it."""
    who = f"host:{job.host}"
    if world.has_rival:
        world.move(job, Event.RELEASED, now, who, {**why, "rival": True})
    else:
        lose(world, job, now, who, why)


def on_lease_expired(world: World, job_id: str, now: Now) -> None:
    """No heartbeat has vouched for a held job for a whole lease."""
    job = world.book.get(job_id)
    if job is None or not job.is_held:
        return
    if not world.connected:
        world.renew_lease(job, now)  # it is not the host that is silent
    else:
        host = world.hosts.get(job.host or "")
        away = None if host is None or host.online else host.presence(now)
        lose(world, job, now, "coordinator", cause("silent", presence=away))


def on_claims_loaded(world: World, now: Now) -> None:
    """After a restart: grant fresh leases, ask for every unanswered claim again."""
    for job in world.book.in_state(JobState.PENDING):
        wait_s = until(job.not_before, now)
        if wait_s > 0:
            set_retry(world, job.job_id, now.mono_s + min(wait_s, RETRY_CAP_S))
    for job in world.book.in_state(JobState.CLAIMED, JobState.RUNNING):
        world.renew_lease(job, now)
        if job.state is JobState.CLAIMED and job.host is not None:
            cuda = job.spec.needs.require_cuda or job.spec.needs.prefer_cuda
            # Its host may have accepted it, and been granted a lease, before the restart.
            until_s = now.mono_s + world.lease_s(job.host)
            request = assign_request(world, job, cuda=cuda)
            world.claims[job.job_id] = Claim(request, job.host, until_s, 0)
            world.timers.set(("assign", job.job_id), now.mono_s + RESEND_BASE_S)


def _hold_back(world: World, job: Job, host: str, why: tuple[Reason, ...], now: Now) -> None:
    held_back = world.holdbacks.setdefault(job.job_id, {})
    earlier = held_back.get(host)
    times = earlier.times + 1 if earlier else 0
    wait_s = backoff_s(times, HOLDBACK_BASE_S, HOLDBACK_CAP_S, world.rng)
    held_back[host] = Holdback(now.mono_s + wait_s, times, why)
    world.timers.set(("holdback", job.job_id, host), now.mono_s + wait_s)
