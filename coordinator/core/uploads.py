"""Receives artifacts: a report that announces one, grants, chunks, `noted`.

An agent's report of a finished job, or of one that it gives back with a checkpoint, announces the
artifact; the receiver's grants draw the missing chunks. The file is hashed, renamed into the store
and fsynced by the shell, then the job is moved in the ledger, then the report is answered. A job
that is given back stays at its host until its checkpoint is stored.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import AgentResponse, Finished, Grant, Rejected, Released
from broker.protocol.reasons import Reason
from broker.protocol.topics import user_of
from broker.stream.ranges import RangeSet
from broker.stream.stream import WINDOW_BYTES, Complete, Receiver, ReceiverEffect, WriteChunk
from coordinator.core import effects as fx
from coordinator.core import filing, leases, run_times
from coordinator.core.assignment import resume, take_back
from coordinator.core.entries import Expected, Upload
from coordinator.core.receipts import is_receipt
from coordinator.core.retries import hold_back, hold_back_program, lose
from coordinator.core.state import World
from coordinator.core.stopping import is_late
from coordinator.core.stored_artifacts import complete, wanted
from coordinator.jobs.causes import cause
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import CHECKPOINTS
from coordinator.jobs.reasons import UNUSABLE
from coordinator.jobs.states import FINAL, Event, JobState

MAX_UPLOADS: Final = 24
MAX_OF_HOST: Final = 2  # its agent announces the next one when one of them is stored
IDLE_S: Final = 10.0
ABANDONED_S: Final = 60.0
_LASTING: Final = frozenset({  # faults of a program that time alone does not mend
    "no-signature", "bad-certificate", "other-ca", "no-operator", "other-signer",
    "expired", "bad-crl", "signer-revoked", "bad-signature", "no-uv", "slow", "not-installed",
})  # fmt: skip


def on_finished(world: World, host: str, report: Finished, now: Now) -> None:
    """A job is trained; its artifact waits on the agent's disk."""
    job = world.book.get(report.job_id)
    if job is not None and job.state in FINAL and job.artifact_id is not None:
        same = job.artifact_id == report.artifact_id
        world.note(host, report, "stored" if same else "superseded")
        return
    if job is None or not _may_finish(world, job, host, report):
        world.note(host, report, "superseded")
        return
    if job.is_at(host, report.attempt):
        if job.state is JobState.PENDING:
            job = resume(world, job, host, report.attempt, report.instance, now)
        if job.is_held:
            take_back(world, job)
            leases.renew(world, job, now)
    elif _awaits_newer(world, job, report.attempt):
        return  # the report is repeated, and accepted if the newer result does not arrive
    world.expect(report.artifact_id, Expected(host, report))
    world.unsettled = True
    if report.artifact_id in world.stored and report.artifact_id not in world.unfiled:
        # Somebody may have deleted it by hand: the agent still has the only other copy.
        world.do(fx.VerifyStored(report.artifact_id))
    elif report.artifact_id in world.unfiled:
        on_part_stored(world, report.artifact_id, world.stored[report.artifact_id], now)
    elif (data := _bundle(report)) is not None and report.artifact_id not in world.uploads:
        filing.keep(world, job, report.artifact_id, data, now)
        on_part_stored(world, report.artifact_id, len(data), now)
    else:
        receive(world, _upload(host, job, report.artifact_id, report), now)


def _may_finish(world: World, job: Job, host: str, report: Finished) -> bool:
    """Whether a result is taken: of the newest attempt, or of a lost one that shows its receipt."""
    if job.is_at(host, report.attempt):
        return job.state not in FINAL or is_late(job, host, report.attempt)
    known = is_receipt(
        world.settings.receipt_key, report.receipt, host, job.job_id, report.attempt
    )  # fmt: skip
    return known and is_late(job, host, report.attempt)


def _awaits_newer(world: World, job: Job, attempt: int) -> bool:
    awaited = world.expected.get(world.awaits.get(job.job_id, ""))
    return awaited is not None and not awaited.is_checkpoint and awaited.report.attempt > attempt


def _bundle(report: Finished) -> bytes | None:
    """Return the small artifact that has come whole with its report; else it has to be fetched."""
    try:
        data = base64.b64decode(report.bundle, validate=True)
    except ValueError:
        return None
    whole = data and len(data) == report.size_bytes
    return data if whole and sha256(data).hexdigest() == report.artifact_id else None


def has_come(job: Job, report: AgentResponse) -> bool:
    """Whether the report repeats one whose checkpoint has been stored already."""
    kept = job.checkpoint
    return (
        isinstance(report, Released)
        and kept is not None
        and (kept.artifact_id, kept.attempt) == (report.artifact_id, report.attempt)
    )


def on_released(world: World, host: str, report: Released, now: Now) -> None:
    """An agent gives a job back unfinished; that costs the job nothing."""
    job = world.book.get(report.job_id)
    if job is not None and has_come(job, report):
        world.note(host, report, "stored")
        return
    if job is None or job.state in FINAL or not job.is_at(host, report.attempt):
        world.note(host, report, "superseded")
        return
    if report.artifact_id is None:
        ran_s, because = run_times.ran_s(world, report, now), report.why.told()
        if job.is_held and report.interrupted:
            lose(world, job, now, f"host:{host}", cause("released", because=because), host=None)
        elif job.is_held:
            why = cause("released", because=because)
            if report.why.code in UNUSABLE:
                _do_without(world, job, host, report, now)
            world.move(job, Event.RELEASED, now, f"host:{host}", why, host=None, ran_s=ran_s)
        else:
            # It was given up; a heartbeat from before may yet come, and has no word in it any more.
            why = cause("given_back", because=because)
            world.move(job, Event.CHANGED, now, f"host:{host}", why, host=None, ran_s=ran_s)
        world.note(host, report, "recorded")
        return
    if job.is_held:
        take_back(world, job)
        leases.renew(world, job, now)
    world.expect(report.artifact_id, Expected(host, report))
    if report.artifact_id in world.stored:
        complete(world, report.artifact_id, now)
        world.note(host, report, "stored")
    else:
        receive(world, _upload(host, job, report.artifact_id, report), now)


def _do_without(world: World, job: Job, host: str, report: Released, now: Now) -> None:
    """Give a job no more to a host that cannot use what it needs: for a while, or its program.

    A program whose signatures do not count there, or whose packages it cannot install, is given to
    the host again when its agent starts anew, or `programs.trust_anew` is called, or after a while.
    """
    fault, known, digest = report.why.fault, world.hosts.get(host), job.spec.program_digest()
    figures: dict[str, JsonValue] = {} if fault is None else {"fault": fault.told()}
    if fault is not None and fault.code in _LASTING and digest and known is not None:
        hold_back_program(world, known, digest, Reason("unusable", figures), now)
        return
    hold_back(world, job, host, (Reason(report.why.code, figures),), now)


def _upload(host: str, job: Job, artifact_id: str, report: Finished | Released) -> Upload:
    mode = CHECKPOINTS if isinstance(report, Released) else job.spec.mode
    return Upload(artifact_id, host, report.size_bytes, report.chunk_bytes, job.spec.model, mode)


def receive(world: World, wanted: Upload, now: Now) -> None:
    """Grant what is missing of an artifact that is announced; perhaps not now.

    It is announced again until it is stored: by then there may be a place.
    """
    upload = world.uploads.get(wanted.artifact_id)
    if upload is not None and _is_taken(upload, wanted.host, now):
        return
    if upload is None or upload.cut() != wanted.cut():
        _open(world, wanted)
    elif upload.receiver is not None:
        _perform(world, upload, upload.receiver.ask(now.mono_s))


def on_chunk(world: World, host: str, artifact_id: str, index: int, data: bytes, now: Now) -> None:
    """A chunk arrives. Raises `BadStream` when it does not fit the artifact."""
    upload = world.uploads.get(artifact_id)
    if upload is None or upload.receiver is None or upload.host != host or upload.finishing:
        return  # late, or of an upload that was dropped
    effects = upload.receiver.on_chunk(index, len(data), now.mono_s)
    for effect in effects:
        if isinstance(effect, WriteChunk):
            # As a rule it is all new: no copy of it is made then.
            piece = data[effect.begin : effect.end]
            world.do(fx.WriteChunk(artifact_id, effect.index, piece))
    _perform(world, upload, effects)


def on_part_opened(
    world: World, artifact_id: str, have: RangeSet, part: int, now: Now
) -> None:  # fmt: skip
    """The part file is open: the first grant goes out."""
    upload = world.uploads.get(artifact_id)
    if upload is None:
        world.do(fx.DropPart(artifact_id))
    elif upload.part == part:
        filing.has_room(world, artifact_id, now)
        upload.receiver = Receiver(upload.size_bytes, upload.chunk_bytes, have)
        _share_window(world)
        _perform(world, upload, upload.receiver.ask(now.mono_s))


def on_part_written(world: World, artifact_id: str, part: int, length: int, now: Now) -> None:
    """A piece has been written to the part file: the window has room again."""
    upload = world.uploads.get(artifact_id)
    if upload is not None and upload.receiver is not None and upload.part == part:
        _perform(world, upload, upload.receiver.on_written(length, now.mono_s))


def on_part_failed(world: World, failed: fx.PartFailed, now: Now) -> None:
    """The disk refused, or the hash was wrong: the agent is to check its bundle and try again."""
    artifact_id = failed.artifact_id
    upload = world.uploads.get(artifact_id)
    if upload is None or upload.part != failed.part:
        return  # it was opened again since
    _end(world, artifact_id)
    reason: Literal["corrupt", "disk", "no_room"] = "corrupt" if failed.corrupt else "disk"
    if failed.no_room is not None:
        filing.lacks_room(world, artifact_id, failed.no_room, now)
        reason = "no_room"
    world.publish(_grant_topic(world, upload), Rejected(reason=reason))


def on_part_stored(world: World, artifact_id: str, size_bytes: int, now: Now) -> None:
    """The artifact is in the store: the job is completed, and the report is answered."""
    world.stored[artifact_id] = size_bytes
    _end(world, artifact_id)
    expected = world.expected.get(artifact_id)
    complete(world, artifact_id, now)
    if expected is not None:
        world.note(expected.host, expected.report, "stored")


def on_artifact_lost(world: World, artifact_id: str) -> None:
    """An artifact is gone from the store, unless the ledger has it meanwhile."""
    if artifact_id in world.unfiled or artifact_id in world.filed:
        return
    if world.stored.pop(artifact_id, None) is not None:
        text = f"artifact {artifact_id} is gone from the store, or damaged; `fleet fsck` tells more"
        world.do(fx.Warn(text))
        for job in world.book.in_state(JobState.COMPLETED):
            if job.artifact_id == artifact_id:  # no job after it may start any more
                world.book.look_at(job.job_id)
                world.unsettled = True


def on_upload_timer(world: World, artifact_id: str, now: Now) -> None:
    """Progress stalls: grant again; after a while give its place away, and keep the part file."""
    upload = world.uploads.get(artifact_id)
    if upload is None or upload.receiver is None or upload.finishing:
        return
    if not upload.is_push and wanted(world, artifact_id) is None:
        _abandon(world, upload)
    elif now.mono_s - upload.receiver.idle_since > ABANDONED_S:
        _leave(world, upload)
    else:
        _perform(world, upload, upload.receiver.on_timer(now.mono_s))


def _open(world: World, upload: Upload) -> None:
    if upload.artifact_id not in world.uploads and not _has_place(world, upload.host):
        return
    world.parts_opened += 1
    upload.part = world.parts_opened
    world.uploads[upload.artifact_id] = upload
    world.do(fx.OpenPart(upload.artifact_id, upload.size_bytes, upload.chunk_bytes, upload.part))


def _has_place(world: World, host: str) -> bool:
    of_host = sum(upload.host == host for upload in world.uploads.values())
    return of_host < MAX_OF_HOST and len(world.uploads) < MAX_UPLOADS


def _leave(world: World, upload: Upload) -> None:
    _end(world, upload.artifact_id)
    world.do(fx.LeavePart(upload.artifact_id))


def _abandon(world: World, upload: Upload) -> None:
    """Nobody wants it any more; whoever sends it reports it again, and is told."""
    _end(world, upload.artifact_id)
    world.do(fx.DropPart(upload.artifact_id))


def _end(world: World, artifact_id: str) -> None:
    world.uploads.pop(artifact_id, None)
    _share_window(world)
    world.timers.cancel(("upload", artifact_id))


def _share_window(world: World) -> None:
    """Divide what may be under way among the uploads, so that none crowds out another."""
    window_bytes = world.settings.window_bytes // max(1, len(world.uploads))
    for upload in world.uploads.values():
        if upload.receiver is not None:
            upload.receiver.window_bytes = min(WINDOW_BYTES, window_bytes)


def _is_taken(upload: Upload, host: str, now: Now) -> bool:
    """Whether a part is in use: it is being opened or checked, or belongs to another upload."""
    if upload.finishing or upload.receiver is None:
        return True  # a disk that hangs is not asked again and again
    if upload.is_push and user_of(upload.host) == user_of(host):
        return False  # they have cut their push off, and go on
    return upload.host != host and now.mono_s - upload.receiver.idle_since < IDLE_S


def _perform(world: World, upload: Upload, effects: Sequence[ReceiverEffect]) -> None:
    for effect in effects:
        if isinstance(effect, Grant):
            # The next one says it again.
            world.publish(_grant_topic(world, upload), effect, qos=0)
        elif isinstance(effect, Complete):
            _finish(world, upload)
    receiver = upload.receiver
    deadline_s = receiver.next_deadline() if receiver and not upload.finishing else None
    if deadline_s is not None:
        world.timers.set(("upload", upload.artifact_id), deadline_s)
    else:
        world.timers.cancel(("upload", upload.artifact_id))


def _grant_topic(world: World, upload: Upload) -> str:
    if upload.is_push:
        return world.topics.push_grant(upload.host)
    return world.topics.grant(upload.host, upload.artifact_id)


def _finish(world: World, upload: Upload) -> None:
    if not upload.is_push and wanted(world, upload.artifact_id) is None:
        _abandon(world, upload)
        return
    upload.finishing = True
    world.do(fx.FinishPart(upload.artifact_id, upload.model, upload.mode))
