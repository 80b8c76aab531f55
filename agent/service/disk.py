"""Performs the core's effects on the spool and the checkpoints."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Final, TypeVar

from agent.core.effects import (
    BundleChecked,
    BundleCheckpoint,
    BundleFailed,
    BundleMade,
    BundleUnread,
    CheckBundle,
    CheckpointBundled,
    CheckpointFound,
    CheckpointInstalled,
    ClearJob,
    DropCheckpoint,
    Effect,
    FindCheckpoint,
    GiveUpFetch,
    InstallCheckpoint,
    KeepUnbundled,
    MakeBundle,
    SendChunk,
    ShellEvent,
    SpoolReport,
    WriteFetched,
)
from agent.spool.bundle import BundleInfo
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import REFUSED_KEPT_S, Spool
from broker.clock import Now
from broker.errors import FleetError, plain
from broker.protocol.messages import MAX_SMALL_BYTES, Assign, Failed, Finished

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
        checkpoints: Checkpoints,
        put: Callable[[ShellEvent], object],
        background: Callable[[Callable[[], None]], object],
        send: Callable[[str, int, bytes], object],
    ) -> None:
        """Nothing is to be done yet."""
        self._spool = spool
        self._checkpoints = checkpoints
        self._put = put
        self._background = background
        self._send = send
        self._names: dict[tuple[str, int], str] = {}
        self._unkept: dict[str, SpoolReport] = {}
        self._uncleared: dict[ClearJob, None] = {}
        self._again_s = 0.0
        self._collect_s = 0.0

    def next_deadline(self) -> float | None:
        """Return when the disk is to be asked again (monotonic seconds), or none."""
        return self._again_s if self._unkept or self._uncleared else None

    def turn(self, running: Container[str], now: Now) -> None:
        """Try again what the disk has refused, and delete what is old."""
        due_s = self.next_deadline()
        if due_s is not None and now.mono_s >= due_s:
            clears, self._uncleared = self._uncleared, {}
            for clear in clears:
                self._clear(clear, now)
            unkept, self._unkept = self._unkept, {}
            for effect in unkept.values():
                self._keep(effect, now)
        if now.mono_s >= self._collect_s:
            self._collect_s = now.mono_s + COLLECT_EVERY_S
            with _logged("checkpoint"):
                self._checkpoints.collect(now.wall_s, running)
            with _logged("spool"):
                self._spool.collect_refused(now.wall_s)

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

    def perform(self, effect: Effect, now: Now) -> None:
        """Do what an effect says, or have it done in the background."""
        match effect:
            case MakeBundle(job_id, attempt):
                self._background(partial(self.bundle, job_id, attempt))
            case CheckBundle(job_id, attempt, artifact_id):
                self._background(partial(self._check, job_id, attempt, artifact_id))
            case KeepUnbundled():
                self._keep_unbundled(effect)
            case SpoolReport():
                self._tell(effect.report)
                self._keep(effect, now)
            case ClearJob():
                self._tell_cleared(effect)
                self._unkept.pop(effect.job_id, None)
                self._clear(effect, now)
            case SendChunk():
                self._send_chunk(effect)
            case _:
                self._perform_on_checkpoint(effect)

    def _perform_on_checkpoint(self, effect: Effect) -> None:
        match effect:
            case FindCheckpoint(job_id, attempt, made_by):
                here = self._checkpoints.is_here(job_id, made_by)
                self._put(CheckpointFound(job_id, attempt, here))
            case WriteFetched():
                self._write_fetched(effect)
            case InstallCheckpoint():
                self._background(partial(self._install, effect))
            case BundleCheckpoint(job_id, attempt):
                self._background(partial(self._bundle_checkpoint, job_id, attempt))
            case GiveUpFetch(job_id, attempt):
                with _logged("checkpoint"):
                    self._checkpoints.give_up(job_id, attempt)
            case DropCheckpoint(job_id):
                with _logged("checkpoint"):
                    self._checkpoints.drop(job_id)

    def was_shared(self, made: BundleMade) -> bool:
        """Whether another job with the same result has had the bundle deleted meanwhile."""
        with contextlib.suppress(OSError):
            return not made.data and not self._spool.has(made.artifact_id)
        return False

    def bundle(self, job_id: str, attempt: int) -> None:
        """Bundle what a trainer wrote; answer by an event. For the background."""
        make = partial(self._made, job_id, attempt)
        made = self._tried(job_id, attempt, "its result cannot be bundled", make)
        if isinstance(made, BundleMade):
            self._put(made)
            return
        reason = _words(made)
        if isinstance(made, FleetError):
            reason += self._set_aside(job_id, attempt, reason)
        self._put(BundleFailed(job_id, attempt, reason, passing=isinstance(made, OSError)))

    def _made(self, job_id: str, attempt: int) -> BundleMade:
        artifact_id, size_bytes = self._spool.make_bundle(job_id, attempt)
        small = size_bytes <= MAX_SMALL_BYTES
        data = self._spool.read_whole(artifact_id) if small else b""
        if small and len(data) != size_bytes:
            raise OSError("the bundle is not there as it was written")
        return BundleMade(job_id, attempt, artifact_id, size_bytes, data)

    def _check(self, job_id: str, attempt: int, artifact_id: str) -> None:
        self._put(BundleChecked(job_id, attempt, self._spool.is_whole(artifact_id)))

    def _install(self, effect: InstallCheckpoint) -> None:
        key = (effect.job_id, effect.attempt)
        install = partial(self._checkpoints.install, *key, effect.artifact_id, effect.made_by)
        error = self._tried(*key, "its checkpoint cannot be unpacked", install)
        self._put(CheckpointInstalled(*key, "" if error is None else _words(error)))

    def _bundle_checkpoint(self, job_id: str, attempt: int) -> None:
        bundle = partial(self._checkpoints.bundle, job_id, self._spool.folder)
        info = self._tried(job_id, attempt, "its checkpoint is not handed over", bundle)
        if isinstance(info, BundleInfo):
            self._put(CheckpointBundled(job_id, attempt, info.artifact_id, info.size_bytes))
        else:
            self._put(CheckpointBundled(job_id, attempt))

    def _tried(
        self, job_id: str, attempt: int, what: str, work: Callable[[], Result]
    ) -> Result | Exception:
        """Return the result of `work`, or its exception: a slot waits for the answer."""
        try:
            return work()
        except (OSError, FleetError) as error:
            log.error("job %s: %s: %s", self.about(job_id, attempt), what, plain(error))
            return error
        except Exception as error:
            log.exception("job %s: %s", self.about(job_id, attempt), what)
            return error

    def _write_fetched(self, effect: WriteFetched) -> None:
        try:
            self._checkpoints.write(effect.job_id, effect.attempt, effect.offset, effect.data)
        except OSError as error:
            log.error("checkpoint: %s", plain(error))
            self._put(CheckpointInstalled(effect.job_id, effect.attempt, plain(error)))

    def _set_aside(self, job_id: str, attempt: int, why: str) -> str:
        """Keep an output that no bundle may hold, for the owner; say where."""
        try:
            kept = self._spool.set_aside(job_id, attempt, why)
        except OSError as error:
            return f"; what it wrote cannot be kept: {plain(error)}"
        days = REFUSED_KEPT_S / 86_400
        return f"; what it wrote is kept on this host for {days:.0f} days: {kept}"

    def _keep(self, effect: SpoolReport, now: Now) -> None:
        report = effect.report
        try:
            for clear in [one for one in self._uncleared if one.job_id == report.job_id]:
                self._spool.clear(clear.job_id, clear.attempt, clear.artifact_id)
                del self._uncleared[clear]  # first, or it would delete the new report later
            self._spool.keep(report, effect.data)
            # Nobody waits for that, and the report is to leave.
            self._background(partial(self._spool.drop_work, report.job_id, report.attempt))
        except OSError as error:
            said = "spool: %s; the report is kept in memory, and on disk when it can be"
            log.error(said, plain(error))
            self._unkept[report.job_id] = effect
            self._again_s = now.mono_s + DISK_AGAIN_S

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

    def _clear(self, effect: ClearJob, now: Now) -> None:
        try:
            self._spool.clear(effect.job_id, effect.attempt, effect.artifact_id)
        except OSError as error:
            log.error("spool: %s; it is cleared when it can be", plain(error))
            self._uncleared[effect] = None
            self._again_s = now.mono_s + DISK_AGAIN_S

    def _send_chunk(self, effect: SendChunk) -> None:
        data = self._spool.read(effect.artifact_id, effect.offset, effect.length)
        if len(data) < effect.length:
            self._put(BundleUnread(effect.artifact_id))
        else:
            self._send(effect.artifact_id, effect.index, data)

    def _tell(self, report: Finished | Failed) -> None:
        """Log how a job has ended on this host."""
        about = self.about(report.job_id, report.attempt)
        if isinstance(report, Finished):
            mib = report.size_bytes / (1 << 20)
            log.info("job %s: finished, %.1f MiB to hand over", about, mib)
        else:
            log.warning("job %s: failed: %s", about, report.error.partition("\n")[0][:300])

    def _tell_cleared(self, effect: ClearJob) -> None:
        about = self.about(effect.job_id, effect.attempt)
        if effect.in_vain:
            log.warning("job %s: %s; nothing of it is left here", about, effect.in_vain)
        else:
            log.info("job %s: over, nothing of it is left here", about)
        self._names.pop((effect.job_id, effect.attempt), None)


def _words(error: Exception) -> str:
    if isinstance(error, OSError | FleetError):
        return plain(error)
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log an OSError: what cannot be deleted now is deleted later."""
    try:
        yield
    except OSError as error:
        log.error("%s: %s", what, plain(error))
