"""Performs the core's effects on the spool, the checkpoints and, by `PartWork`, the caches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from agent.core.effects import (
    BundleChecked,
    BundleCheckpoint,
    BundleFailed,
    BundleMade,
    BundleUnread,
    CheckBundle,
    CheckpointBundled,
    ClearJob,
    DropCheckpoint,
    Effect,
    KeepUnbundled,
    MakeBundle,
    SendChunk,
    ShellEvent,
    SpoolReport,
    TaskOfAttempt,
)
from agent.core.state import Run
from agent.programs.parts import Parts
from agent.service.disk_faults import fault_of, logged, words
from agent.service.part_work import PartWork
from agent.spool.spool import REFUSED_KEPT_S, Spool
from broker.clock import Now
from broker.errors import FleetError, plain
from broker.protocol.messages import MAX_SMALL_BYTES, Assign, Finished
from broker.system.bundle import BundleInfo, NothingWrittenError

log = logging.getLogger("fleet.agent")

DISK_AGAIN_S: Final = 10.0
COLLECT_EVERY_S: Final = 86_400.0
MAX_NAMES: Final = 1000  # of attempts, for the log

Result = TypeVar("Result")


class DiskWork:
    """Performs effects on the disk; tries again what the disk has refused.

    `put` brings an event to the next turn; `background` has a slow function run elsewhere; `send`
    publishes a piece of an artifact, by its index.
    """

    def __init__(
        self,
        spool: Spool,
        parts: Parts,
        put: Callable[[ShellEvent], object],
        background: Callable[[Callable[[], None]], object],
        send: Callable[[str, int, bytes], object],
    ) -> None:
        """Nothing is to be done yet."""
        self._parts = PartWork(parts, put, background, self._tried)
        self._spool = spool
        self._checkpoints = parts.checkpoints
        self._put = put
        self._background = background
        self._send = send
        self._names: dict[tuple[str, int], str] = {}
        self._unkept: dict[str, SpoolReport] = {}
        self._uncleared: dict[ClearJob, None] = {}
        self._now_s = self._again_s = self._collect_s = 0.0
        # Bundling, hashing and unpacking may take seconds.
        self.by_kind: Mapping[type[Effect], Callable[[Any], object]] = {
            **self._parts.by_kind,
            MakeBundle: lambda task: background(partial(self.bundle, task)),
            CheckBundle: lambda task: background(partial(self._check, task)),
            BundleCheckpoint: lambda task: background(partial(self._bundle_checkpoint, task)),
            KeepUnbundled: self._keep_unbundled,
            SpoolReport: self._on_report,
            ClearJob: self._on_clear,
            SendChunk: self._send_chunk,
            DropCheckpoint: self._drop_checkpoint,
        }

    def next_deadline(self) -> float | None:
        """Return when the disk is to be asked again (monotonic seconds), or none."""
        return self._again_s if self._unkept or self._uncleared else None

    def turn(self, running: Mapping[str, Run], now: Now) -> None:
        """Try again what the disk has refused, and delete what is old."""
        self._parts.turn(running)
        due_s, self._now_s = self.next_deadline(), now.mono_s
        if due_s is not None and now.mono_s >= due_s:
            clears, self._uncleared = self._uncleared, {}
            for clear in clears:
                self._clear(clear)
            unkept, self._unkept = self._unkept, {}
            for effect in unkept.values():
                self._keep(effect)
        if now.mono_s >= self._collect_s:
            self._collect_s = now.mono_s + COLLECT_EVERY_S
            with logged("checkpoint"):
                self._checkpoints.collect(now.wall_s, running)
            with logged("spool"):
                self._spool.collect_refused(now.wall_s)
            self._parts.collect(now)

    def note_name(self, assign: Assign) -> None:
        """Remember what a job is called until nothing of it is left here."""
        self._names[(assign.job_id, assign.attempt)] = assign.name
        while len(self._names) > MAX_NAMES:
            self._names.pop(next(iter(self._names)))

    def about(self, job_id: str, attempt: int) -> str:
        """Return how the log names an attempt, in all of its lines: a search finds each of them.

        Of one that an earlier process of the agent has run, the id alone is known.
        """
        name = self._names.get((job_id, attempt))
        who = job_id[:12] if name is None else f"{name} ({job_id[:12]})"
        return f"{who}, attempt {attempt}"

    def _on_report(self, effect: SpoolReport) -> None:
        """Log how a job has ended on this host, and keep its report."""
        report = effect.report
        about = self.about(report.job_id, report.attempt)
        if isinstance(report, Finished):
            mib = report.size_bytes / (1 << 20)
            log.info("job %s: finished, %.1f MiB to hand over", about, mib)
        else:
            log.warning("job %s: failed: %s", about, report.error.partition("\n")[0][:300])
        self._keep(effect)

    def _on_clear(self, effect: ClearJob) -> None:
        about = self.about(effect.job_id, effect.attempt)
        if effect.in_vain:
            log.warning("job %s: %s; nothing of it is left here", about, effect.in_vain)
        else:
            log.info("job %s: over, nothing of it is left here", about)
        self._names.pop((effect.job_id, effect.attempt), None)
        self._unkept.pop(effect.job_id, None)
        self._clear(effect)

    def _drop_checkpoint(self, task: DropCheckpoint) -> None:
        with logged("checkpoint"):
            self._checkpoints.drop(task.job_id)

    def was_shared(self, made: BundleMade) -> bool:
        """Whether another job with the same result has had the bundle deleted meanwhile."""
        with contextlib.suppress(OSError):
            return not made.data and not self._spool.has(made.artifact_id)
        return False

    def bundle(self, task: TaskOfAttempt) -> None:
        """Bundle what a trainer wrote; answer by an event. For the background."""
        key = (task.job_id, task.attempt)
        made = self._tried(task, "its result cannot be bundled", partial(self._made, *key))
        if isinstance(made, BundleMade):
            self._put(made)
            return
        reason = words(made)
        if isinstance(made, NothingWrittenError):
            reason = "the trainer wrote no file into --out-dir; let it write one, as metrics.json"
        elif isinstance(made, FleetError):
            reason += self._set_aside(*key, reason)
        passing = isinstance(made, OSError)
        self._put(BundleFailed(*key, reason, passing, fault_of(made)))

    def _made(self, job_id: str, attempt: int) -> BundleMade:
        artifact_id, size_bytes = self._spool.make_bundle(job_id, attempt)
        small = size_bytes <= MAX_SMALL_BYTES
        data = self._spool.read_whole(artifact_id) if small else b""
        if small and len(data) != size_bytes:
            raise OSError("the bundle is not there as it was written")
        return BundleMade(job_id, attempt, artifact_id, size_bytes, data)

    def _check(self, task: CheckBundle) -> None:
        is_whole = self._spool.is_whole(task.artifact_id)
        self._put(BundleChecked(task.job_id, task.attempt, is_whole))

    def _bundle_checkpoint(self, task: BundleCheckpoint) -> None:
        bundle = partial(self._checkpoints.bundle, task.job_id, self._spool.folder)
        info = self._tried(task, "its checkpoint is not handed over", bundle)
        found = (info.artifact_id, info.size_bytes) if isinstance(info, BundleInfo) else ()
        self._put(CheckpointBundled(task.job_id, task.attempt, *found))

    def _tried(
        self, task: TaskOfAttempt, what: str, work: Callable[[], Result]
    ) -> Result | Exception:
        """Return the result of `work`, or its exception: a slot waits for the answer."""
        about = self.about(task.job_id, task.attempt)
        try:
            return work()
        except (OSError, FleetError) as error:
            log.error("job %s: %s: %s", about, what, plain(error))
            return error
        except Exception as error:
            log.exception("job %s: %s", about, what)
            return error

    def _set_aside(self, job_id: str, attempt: int, why: str) -> str:
        """Keep an output that no bundle may hold, for the owner; say where."""
        try:
            kept = self._spool.set_aside(job_id, attempt, why)
        except OSError as error:
            return f"; what it wrote cannot be kept: {plain(error)}"
        days = REFUSED_KEPT_S / 86_400
        return f"; what it wrote is kept on this host for {days:.0f} days: {kept}"

    def _keep(self, effect: SpoolReport) -> None:
        report = effect.report
        try:
            for clear in [one for one in self._uncleared if one.job_id == report.job_id]:
                self._spool.clear(clear.job_id, clear.attempt, clear.artifact_id)
                del self._uncleared[clear]  # first, or it would delete the new report later
            self._spool.keep(report, effect.data)
            if not effect.data:  # else it is cleared soon, with the report
                # Nobody waits for that, and the report is to leave.
                self._background(partial(self._spool.drop_work, report.job_id, report.attempt))
        except OSError as error:
            said = "spool: %s; the report is kept in memory, and on disk when it can be"
            log.error(said, plain(error))
            self._unkept[report.job_id] = effect
            self._again_s = self._now_s + DISK_AGAIN_S

    def _keep_unbundled(self, effect: KeepUnbundled) -> None:
        assign = effect.left.assign
        about = self.about(assign.job_id, assign.attempt)
        try:
            self._spool.keep_unbundled(effect.left)
        except OSError as error:
            said = "job %s: its result is lost unless it is bundled before this agent ends: %s"
            log.error(said, about, plain(error))
        else:
            log.info("job %s: if its result is not bundled now, the next agent bundles it", about)

    def _clear(self, effect: ClearJob) -> None:
        try:
            self._spool.clear(effect.job_id, effect.attempt, effect.artifact_id)
        except OSError as error:
            log.error("spool: %s; it is cleared when it can be", plain(error))
            self._uncleared[effect] = None
            self._again_s = self._now_s + DISK_AGAIN_S

    def _send_chunk(self, effect: SendChunk) -> None:
        data = self._spool.read(effect.artifact_id, effect.offset, effect.length)
        if len(data) < effect.length:
            self._put(BundleUnread(effect.artifact_id))
        else:
            self._send(effect.artifact_id, effect.index, data)
