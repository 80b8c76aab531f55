"""The agent's shell: feeds the core, starts and stops trainers, reads and writes the spool.

It decides nothing itself, and whatever it does it does through its `Surroundings` and the spool
that it is given; so it runs in the simulation as it runs in the service.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

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
    Leave,
    Look,
    MakeBundle,
    Measure,
    SendChunk,
    ShellEvent,
    SignalTrainer,
    SpoolReport,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerStarted,
    Warn,
    WriteFetched,
)
from agent.core.reactor import Core
from agent.spool.checkpoints import Checkpoints
from agent.spool.spool import REFUSED_KEPT_S, Spool
from broker.clock import Now
from broker.errors import FleetError, plain
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import MAX_SMALL_BYTES, Assign, Failed, Finished, Gpu, encode
from broker.protocol.topics import Topics

log = logging.getLogger("fleet.agent")

Event = Connected | Disconnected | Incoming | ShellEvent
DISK_AGAIN_S: Final = 10.0
COLLECT_EVERY_S: Final = 86_400.0
MAX_NAMES: Final = 1000  # of attempts, for the log


class Child(Protocol):
    """A trainer's process."""

    @property
    def trainer_pid(self) -> int:
        """Its process id."""
        ...

    def send_signal(self, *, kill: bool) -> None:
        """Ask its process group to end (SIGTERM), or end it (SIGKILL)."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, and for the end of its output."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shell may do to the outside.

    `publish` hands a message to the link; `put` brings a local event to the next turn; `background`
    has a slow function run elsewhere; `measure` has somebody take the machine's vitals, and bring
    `Vitals`; `look` has somebody look whose it is, and bring `Looked`; `start` starts a trainer
    whose lines and exit come by `put`, tells whether it goes on from a checkpoint, and raises
    OSError or `FleetError` when it cannot.
    """

    topics: Topics
    publish: Callable[[Outgoing], bool]
    put: Callable[[Event], object]
    background: Callable[[Callable[[], None]], object]
    measure: Callable[[tuple[Gpu, ...]], None]
    look: Callable[[Look], None]
    start: Callable[[StartTrainer], tuple[Child, bool]]


class Shell:
    """Everything that one agent has open, but for its connection and its threads."""

    def __init__(
        self, core: Core, around: Surroundings, spool: Spool, checkpoints: Checkpoints
    ) -> None:
        """Take over a core that has the spool's reports already."""
        self.core = core
        self.left = False
        self._around = around
        self._spool = spool
        self._checkpoints = checkpoints
        self._children: dict[tuple[str, int], Child] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._unkept: dict[str, SpoolReport] = {}
        self._uncleared: dict[ClearJob, None] = {}
        self._disk_again_s = 0.0
        self._collect_s = 0.0

    def turn(self, events: Sequence[Event], now: Now) -> None:
        """Take some events, and perform what comes of each."""
        if self.waits_for_disk() and now.mono_s >= self._disk_again_s:
            self._use_disk_again(now)
        if now.mono_s >= self._collect_s:
            self._collect_s = now.mono_s + COLLECT_EVERY_S
            with _logged("checkpoint"):
                self._checkpoints.collect(now.wall_s, self.core.state.runs)
            with _logged("spool"):
                self._spool.collect_refused(now.wall_s)
        for event in events or [Tick()]:
            if isinstance(event, TrainerExited):
                self._ended(event)
            elif isinstance(event, BundleMade) and self._was_shared(event):
                self._around.background(partial(self._bundle, event.job_id, event.attempt))
                continue
            self.core.handle(event, now)
            for effect in self.core.take():
                self._perform(effect, now)

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted without an event (monotonic seconds), or none."""
        due_s = self.core.next_deadline()
        if not self.waits_for_disk():
            return due_s
        return self._disk_again_s if due_s is None else min(due_s, self._disk_again_s)

    def waits_for_disk(self) -> bool:
        """Whether the disk has refused something that it is to be asked again."""
        return bool(self._unkept or self._uncleared)

    def children(self) -> list[Child]:
        """Return the trainers that run."""
        return list(self._children.values())

    def goodbye(self) -> Outgoing | None:
        """Return the last message, or none when the broker has never heard of us."""
        session = self.core.state.session
        return self._presence("goodbye", session) if session else None

    def will(self, session: str) -> Outgoing:
        """Return what the broker is to publish when the connection `session` dies."""
        return self._presence("lost", session)

    def _presence(self, reason: str, session: str) -> Outgoing:
        status = self.core.status("offline", reason, session)
        topic = self._around.topics.status(self.core.state.settings.host)
        return Outgoing(topic, encode(status), 1, retain=True)

    def _perform(self, effect: Effect, now: Now) -> None:
        match effect:
            case Outgoing():
                self._around.publish(effect)
            case Measure():
                self._around.measure(self.core.gpus())
            case Look():
                self._around.look(effect)
            case StartTrainer():
                self._start(effect)
            case SignalTrainer(job_id, attempt, kill):
                if (child := self._children.get((job_id, attempt))) is not None:
                    child.send_signal(kill=kill)
            case Warn(text):
                log.warning("%s", text)
            case Leave():
                self.left = True
            case KeepUnbundled():
                self._keep_unbundled(effect)
            case MakeBundle() | CheckBundle() | SpoolReport() | ClearJob() | SendChunk():
                self._perform_on_spool(effect, now)
            case _:
                self._perform_on_checkpoint(effect)

    def _perform_on_spool(
        self, effect: MakeBundle | CheckBundle | SpoolReport | ClearJob | SendChunk, now: Now
    ) -> None:
        match effect:
            case MakeBundle(job_id, attempt):
                self._around.background(partial(self._bundle, job_id, attempt))
            case CheckBundle(job_id, attempt, artifact_id):
                self._around.background(partial(self._check, job_id, attempt, artifact_id))
            case SpoolReport():
                self._tell(effect.report)
                self._keep(effect, now)
            case ClearJob():
                about = self._about(effect.job_id, effect.attempt)
                if effect.in_vain:
                    log.warning("job %s: %s; nothing of it is left here", about, effect.in_vain)
                else:
                    log.info("job %s: over, nothing of it is left here", about)
                self._names.pop((effect.job_id, effect.attempt), None)
                self._unkept.pop(effect.job_id, None)
                self._clear(effect, now)
            case SendChunk():
                self._send_chunk(effect)

    def _perform_on_checkpoint(
        self,
        effect: FindCheckpoint
        | WriteFetched
        | InstallCheckpoint
        | GiveUpFetch
        | BundleCheckpoint
        | DropCheckpoint,
    ) -> None:
        match effect:
            case FindCheckpoint(job_id, attempt, made_by):
                here = self._checkpoints.is_here(job_id, made_by)
                self._around.put(CheckpointFound(job_id, attempt, here))
            case WriteFetched():
                self._write_fetched(effect)
            case InstallCheckpoint():
                self._around.background(partial(self._install, effect))
            case BundleCheckpoint(job_id, attempt):
                self._around.background(partial(self._bundle_checkpoint, job_id, attempt))
            case GiveUpFetch(job_id, attempt):
                with _logged("checkpoint"):
                    self._checkpoints.give_up(job_id, attempt)
            case DropCheckpoint(job_id):
                with _logged("checkpoint"):
                    self._checkpoints.drop(job_id)

    def _write_fetched(self, effect: WriteFetched) -> None:
        try:
            self._checkpoints.write(effect.job_id, effect.attempt, effect.offset, effect.data)
        except OSError as error:
            log.error("checkpoint: %s", plain(error))
            self._around.put(CheckpointInstalled(effect.job_id, effect.attempt, plain(error)))

    def _install(self, effect: InstallCheckpoint) -> None:
        error = ""
        try:
            self._checkpoints.install(
                effect.job_id, effect.attempt, effect.artifact_id, effect.made_by
            )
        except (OSError, FleetError, LookupError) as problem:
            error = f"{type(problem).__name__}: {plain(problem)}"
            about = self._about(effect.job_id, effect.attempt)
            log.error("job %s: its checkpoint: %s", about, error)
        except Exception as problem:  # the slot is taken until there is an answer
            error = f"{type(problem).__name__}: {problem}"
            about = self._about(effect.job_id, effect.attempt)
            log.exception("job %s: its checkpoint could not be unpacked", about)
        self._around.put(CheckpointInstalled(effect.job_id, effect.attempt, error))

    def _bundle_checkpoint(self, job_id: str, attempt: int) -> None:
        made = CheckpointBundled(job_id, attempt)
        try:
            info = self._checkpoints.bundle(job_id, self._spool.folder)
        except (OSError, FleetError) as error:
            about = self._about(job_id, attempt)
            log.error("job %s: its checkpoint is not handed over: %s", about, plain(error))
        except Exception:  # the job waits for the answer, whatever has happened
            about = self._about(job_id, attempt)
            log.exception("job %s: its checkpoint is not handed over", about)
        else:
            if info is not None:
                made = CheckpointBundled(job_id, attempt, info.artifact_id, info.size_bytes)
        self._around.put(made)

    def _start(self, effect: StartTrainer) -> None:
        assign = effect.assign
        key = (assign.job_id, assign.attempt)
        self._note_name(assign)
        try:
            child, resumes = self._around.start(effect)
        except (OSError, FleetError) as error:
            text = f"the trainer could not be started: {plain(error)}"
            passing = isinstance(error, OSError)
            self._around.put(TrainerExited(*key, None, text, passing))
            return
        whence = "from a checkpoint" if resumes else "from the beginning"
        log.info("job %s: started %s", self._about(*key), whence)
        self._children[key] = child
        self._around.put(TrainerStarted(*key, child.trainer_pid, resumes))

    def _ended(self, event: TrainerExited) -> None:
        key = (event.job_id, event.attempt)
        if self._children.pop(key, None) is None:
            return  # it was told that it has not been started
        name = self._about(*key)
        why = self.core.why_ending(*key)
        if why:
            log.info("job %s: its trainer has ended; the job is %s", name, why)
        elif event.data_gone:
            log.warning(
                "job %s: its trainer ended with exit code %s, and its prepared data is not there; "
                "the job is given back",
                name,
                event.code,
            )
        elif event.code == 0:
            log.info("job %s: its trainer is done", name)
        elif event.code is not None and event.code < 0:
            log.warning("job %s: its trainer was ended by signal %d", name, -event.code)
        else:
            log.warning("job %s: its trainer ended with exit code %s", name, event.code)

    def _bundle(self, job_id: str, attempt: int) -> None:
        try:
            made = self._made(job_id, attempt)
        except OSError as error:
            log.error("job %s: %s", self._about(job_id, attempt), plain(error))
            self._around.put(BundleFailed(job_id, attempt, plain(error), passing=True))
        except FleetError as error:
            reason = f"{error}{self._set_aside(job_id, attempt, str(error))}"
            log.error("job %s: %s", self._about(job_id, attempt), reason)
            self._around.put(BundleFailed(job_id, attempt, reason, passing=False))
        except Exception as error:  # the slot is taken until there is an answer
            about = self._about(job_id, attempt)
            log.exception("job %s: its result could not be bundled", about)
            reason = f"{type(error).__name__}: {error}"
            self._around.put(BundleFailed(job_id, attempt, reason, passing=False))
        else:
            self._around.put(made)

    def _set_aside(self, job_id: str, attempt: int, why: str) -> str:
        """Keep what a trainer wrote that is no result; say where, if that can be."""
        try:
            kept = self._spool.set_aside(job_id, attempt, why)
        except OSError as error:
            return f"; what it wrote cannot be kept: {plain(error)}"
        days = REFUSED_KEPT_S / 86_400
        return f"; what it wrote is kept on this host for {days:.0f} days: {kept}"

    def _was_shared(self, made: BundleMade) -> bool:
        """Tell whether another job, with the very same result, has taken it away meanwhile."""
        with contextlib.suppress(OSError):
            return not made.data and not self._spool.has(made.artifact_id)
        return False

    def _made(self, job_id: str, attempt: int) -> BundleMade:
        artifact_id, size_bytes = self._spool.make_bundle(job_id, attempt)
        small = size_bytes <= MAX_SMALL_BYTES
        data = self._spool.read_whole(artifact_id) if small else b""
        if small and len(data) != size_bytes:
            raise OSError("the bundle is not there as it was written")
        return BundleMade(job_id, attempt, artifact_id, size_bytes, data)

    def _check(self, job_id: str, attempt: int, artifact_id: str) -> None:
        self._around.put(BundleChecked(job_id, attempt, self._spool.is_whole(artifact_id)))

    def _keep(self, effect: SpoolReport, now: Now) -> None:
        report = effect.report
        try:
            for clear in [one for one in self._uncleared if one.job_id == report.job_id]:
                self._spool.clear(clear.job_id, clear.attempt, clear.artifact_id)
                del self._uncleared[clear]  # first, or it would delete the new report later
            self._spool.keep(report, effect.data)
            # Nobody waits for that, and the report is to leave.
            drop = partial(self._spool.drop_work, report.job_id, report.attempt)
            self._around.background(drop)
        except OSError as error:
            said = "spool: %s; the report is kept in memory, and on disk when it can be"
            log.error(said, plain(error))
            self._unkept[report.job_id] = effect
            self._disk_again_s = now.mono_s + DISK_AGAIN_S

    def _keep_unbundled(self, effect: KeepUnbundled) -> None:
        assign = effect.left.assign
        about = self._about(assign.job_id, assign.attempt)
        try:
            self._spool.keep_unbundled(effect.left)
        except OSError as error:
            said = "job %s: its result is lost unless it is bundled before this agent ends: %s"
            log.error(said, about, plain(error))
        else:
            log.info(
                "job %s: what is not bundled when this agent ends, the next one bundles", about
            )

    def _clear(self, effect: ClearJob, now: Now) -> None:
        try:
            self._spool.clear(effect.job_id, effect.attempt, effect.artifact_id)
        except OSError as error:
            log.error("spool: %s; it is cleared when it can be", plain(error))
            self._uncleared[effect] = None
            self._disk_again_s = now.mono_s + DISK_AGAIN_S

    def _use_disk_again(self, now: Now) -> None:
        """What the disk has refused, it may take now."""
        clears, self._uncleared = self._uncleared, {}
        for clear in clears:
            self._clear(clear, now)
        unkept, self._unkept = self._unkept, {}
        for effect in unkept.values():
            self._keep(effect, now)

    def _send_chunk(self, effect: SendChunk) -> None:
        data = self._spool.read(effect.artifact_id, effect.offset, effect.length)
        if len(data) < effect.length:
            self._around.put(BundleUnread(effect.artifact_id))
            return
        host = self.core.state.settings.host
        topic = self._around.topics.chunk(host, effect.artifact_id, effect.index)
        self._around.publish(Outgoing(topic, data, 0))

    def _tell(self, report: Finished | Failed) -> None:
        """Log how a job has ended on this host."""
        about = self._about(report.job_id, report.attempt)
        if isinstance(report, Finished):
            mib = report.size_bytes / (1 << 20)
            log.info("job %s: finished, %.1f MiB to hand over", about, mib)
        else:
            log.warning("job %s: failed: %s", about, report.error.partition("\n")[0][:300])

    def _note_name(self, assign: Assign) -> None:
        """Remember what a job is called until nothing of it is left here."""
        self._names[(assign.job_id, assign.attempt)] = assign.name
        while len(self._names) > MAX_NAMES:
            self._names.pop(next(iter(self._names)))

    def _about(self, job_id: str, attempt: int) -> str:
        """Return how the log names an attempt, in all of its lines: a search finds each of them.

        Of one that an earlier process of the agent has run, the id alone is known.
        """
        name = self._names.get((job_id, attempt))
        who = job_id[:12] if name is None else f"{name} ({job_id[:12]})"
        return f"{who}, attempt {attempt}"


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """What cannot be deleted now is overwritten, or grows old and is collected."""
    try:
        yield
    except OSError as error:
        log.error("%s: %s", what, plain(error))
