"""The coordinator's shell: feeds the core, commits what it decides, performs what it asks for.

It decides nothing itself, and whatever it does it does through its `Surroundings` and the ledger,
the store and the logs that it is given; so it runs in the simulation as it runs in the service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now, Randomness, backoff_s, rfc3339
from broker.errors import StorageError
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing, Publish
from broker.protocol.messages import OperatorResponse, encode
from broker.protocol.topics import Topics
from broker.system.address import IS_IT_THERE
from broker.system.files import Disk
from coordinator.core.authority import RequestRefused
from coordinator.core.effects import (
    AppendIndex,
    AppendLog,
    ArtifactLost,
    BundleRefused,
    Collect,
    Collected,
    DropPart,
    Effect,
    FileBundles,
    FindResults,
    FinishPart,
    JournalRead,
    KeepPoint,
    LeavePart,
    ManifestChanged,
    ManifestRead,
    ManifestRefused,
    OpenPart,
    PartStored,
    ReadManifest,
    ReloadAsked,
    ResultsFound,
    SendChunk,
    ShellEvent,
    StoreBundle,
    Tell,
    Tick,
    VerifyStored,
    Warn,
    WriteChunk,
)
from coordinator.core.reactor import Core
from coordinator.core.state import MAX_ANSWERS, CoreSettings
from coordinator.faces.face import Face
from coordinator.jobs.aging import Aging
from coordinator.jobs.jobs import Change
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import Record
from coordinator.jobs.states import OF_PLAN, TROUBLE
from coordinator.ledger.ledger import Ledger
from coordinator.manifest.problems import ManifestError
from coordinator.service.lookups import Lookups, Question, asked_by
from coordinator.store.joblog import JobLogs
from coordinator.store.small_bundles import SmallBundles
from coordinator.store.store import PARTS_KEPT_S, Store
from coordinator.store.writer import Intake

log = logging.getLogger("fleet.coordinator")

RELOAD_BASE_S: Final = 1.0
RELOAD_CAP_S: Final = 30.0
DAY_S: Final = 86_400.0

Event = Connected | Disconnected | Incoming | ShellEvent
# What is read of this machine's files is told when it changes, and no more.
ONCE: Final = (JournalRead, ManifestChanged, ManifestRead, ManifestRefused, ReloadAsked)
OF_MANIFEST: Final = (ManifestRead, ManifestRefused, ManifestChanged)  # it is read by the first two
Schemas = Mapping[str, Mapping[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shell may do to the outside.

    `publish` hands messages to the link; `put` brings a local event to the next turn; `background`
    has a slow function run elsewhere, `writing` one after the other on the thread of part files;
    `read_plan` reads the manifest, given the known trainers' schemas, and raises `ManifestError`,
    or returns none when there is no manifest; `reading` has that done, one after the other, on
    another thread where a large one would hold up the turns; `keep` puts on the disk what a face
    wants to find at its next start, nothing when that is empty; `tell` says to whoever manages the
    service what was done.
    """

    topics: Topics
    disk: Disk
    rng: Randomness
    new_id: Callable[[], str]
    publish: Publish
    put: Callable[[Event], object]
    background: Callable[[Callable[[], None]], object]
    writing: Callable[[Callable[[], None]], object]
    read_plan: Callable[[Schemas], Plan | None]
    keep: Callable[[bytes], object] = lambda _: None
    tell: Callable[[str], object] = lambda _: None
    reading: Callable[[Callable[[], None]], object] = lambda read: read()


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long things are kept that nothing rests on any more; results: `CoreSettings`."""

    events_s: float = 90 * DAY_S
    events_per_job: int = 200
    turned_away: int = 10_000  # commands of those who may not give any
    parts_s: float = PARTS_KEPT_S


class Shell:
    """Everything that one coordinator has open, but for its connection and its threads."""

    def __init__(
        self,
        settings: CoreSettings,
        around: Surroundings,
        ledger: Ledger,
        store: Store,
        logs: JobLogs,
        now: Now,
        retention: Retention | None = None,
        face: Face | None = None,
    ) -> None:
        """Load the ledger. Raises `StorageError` when it cannot be read."""
        self._face = face
        self._retention = retention or Retention()
        self._now, self._aging = now, Aging(now)
        self._settings = settings
        self._around = around
        self._ledger = ledger
        self._store = store
        self._logs = logs
        self._intake = Intake(store, around.put, around.writing, around.background)
        self._small = SmallBundles(store, around.put, around.background)
        self._lookups = Lookups(ledger, store, logs, around.disk, settings.keep_results_s)
        self._looking: set[str] = set()  # for artifacts in the store
        self._session: str | None = None
        self._advised = False
        self._failures = 0
        self._resume_s: float | None = None
        self._waiting: dict[type[Event], Event] = {}  # for the ledger to take changes again
        self._again_s = 0.0  # when that is tried
        self._tries = 0
        self._agree_index()
        self.core = self._new_core(now)

    def turn(self, events: Sequence[Event], now: Now) -> None:
        """Take some events, in one transaction; then perform what comes of them.

        While the ledger refuses nothing is taken; what nobody says again waits for it.
        """
        if self._face is not None:
            events = self._face.sift(events, now)
        for event in events:
            if isinstance(event, Connected | Disconnected):
                self._note_link(event)
        if self._resume_s is not None:
            # As if this process were being started again: what comes meanwhile is sent again.
            self._put_off(events)
            if now.mono_s < self._resume_s or not self._resume(now):
                return
            events = [] if self._session is None else [Connected(self._session)]
        self._forget_older(events)
        self._take(events or [Tick()], now)
        if self._waiting and self._resume_s is None and now.mono_s >= self._again_s:
            # By themselves: on a disk that is nearly full they may be what is too much.
            waiting, self._waiting = [*self._waiting.values()], {}
            self._take(waiting, now)
            self._tries = 0 if self._resume_s is None else self._tries

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted without an event (monotonic seconds), or none."""
        if self._resume_s is not None:
            return self._resume_s
        due_s = (
            self.core.next_deadline(),
            self._face.next_deadline() if self._face else None,
            self._again_s if self._waiting else None,
        )
        return min((at_s for at_s in due_s if at_s is not None), default=None)

    def goodbye(self) -> Outgoing | None:
        """Return the last message, or none when the broker has never heard of us."""
        if self._session is None:
            return None
        return self._presence(self.core.goodbye())

    def will(self, session: str) -> Outgoing:
        """Return what the broker is to publish when the connection `session` dies."""
        return self._presence(self.core.will(session))

    def close(self) -> None:
        """Leave every part file as it is, for a later go, and close everything."""
        if self._face is not None and (memory := self._face.last_memory()) is not None:
            self._around.keep(memory)
        self._intake.close()
        self._logs.close()
        self._ledger.close()

    def _take(self, events: Sequence[Event], now: Now) -> None:
        for event in events:
            self.core.handle(event, now)
        self._flush(now)
        if self._resume_s is not None and self._put_off(events):
            wait_s = backoff_s(self._tries, RELOAD_BASE_S, RELOAD_CAP_S, self._around.rng)
            self._again_s, self._tries = now.mono_s + wait_s, self._tries + 1

    def _forget_older(self, events: Sequence[Event]) -> None:
        """What waits was read before these: of the same it is not to have the last word."""
        for event in events:
            for kind in OF_MANIFEST if isinstance(event, OF_MANIFEST[:2]) else (type(event),):
                self._waiting.pop(kind, None)

    def _put_off(self, events: Sequence[Event]) -> bool:
        """Keep the newest of each kind that is said once, in their order; tell whether any is."""
        kept = [event for event in events if isinstance(event, ONCE)]
        for event in kept:
            self._waiting.pop(type(event), None)
            self._waiting[type(event)] = event
        return bool(kept)

    def _note_link(self, event: Connected | Disconnected) -> None:
        if isinstance(event, Connected):
            self._session = event.session
            log.info("connected to the broker")
        else:
            log.warning("not connected: %s; trying again", event.why)
            if self._session is None and not event.answered and not self._advised:
                log.warning("%s", IS_IT_THERE)
                self._advised = True

    def _flush(self, now: Now) -> None:
        changes, effects = self.core.take()
        try:
            self._ledger.commit(changes)
        except StorageError as error:
            self._stand_back(error, now)
            return
        if changes:
            self._failures = 0
        self._now = now
        self._perform_all(effects)
        if log.isEnabledFor(logging.INFO):
            _tell(changes)
        if self._face is not None:
            self._show(self._face, changes, now, active=bool(changes or effects))

    def _show(
        self, face: Face, changes: Sequence[Change | Record], now: Now, *, active: bool
    ) -> None:
        messages = face.turn(self.core.world, changes, now, active=active)
        if (memory := face.take_memory()) is not None:
            self._around.keep(memory)
        if messages:
            self._around.publish(*messages)

    def _stand_back(self, error: StorageError, now: Now) -> None:
        """The ledger did not take a change: nothing of it happened. Go on from it in a while."""
        wait_s = backoff_s(self._failures, RELOAD_BASE_S, RELOAD_CAP_S, self._around.rng)
        log.error("%s; going on from the ledger as it is in %.0f s", error, wait_s)
        self._failures += 1
        self._resume_s = now.mono_s + wait_s

    def _resume(self, now: Now) -> bool:
        self._intake.do(None)
        old = self.core
        try:
            self.core = self._new_core(now)
        except StorageError as error:
            self._stand_back(error, now)
            return False
        self.core.inherit(old)
        self._resume_s = None
        return True

    def _new_core(self, now: Now) -> Core:
        around = self._around
        return Core(
            self._settings,
            around.topics,
            self._ledger.load(),
            self._store.sizes(),
            rng=around.rng,
            new_id=around.new_id,
            now=now,
            records=self._ledger.load_hosts(),
            fleet=self._ledger.load_fleet(),
            revoked=self._ledger.load_revoked(),
            answers=self._ledger.load_answers(MAX_ANSWERS),
            bundles=self._ledger.bundle_sizes(),
        )

    def _presence(self, status: Any) -> Outgoing:
        return Outgoing(self._around.topics.coordinator_status(), encode(status), 1, retain=True)

    def _perform_all(self, effects: Sequence[Effect]) -> None:
        """Say all that is to be said at once, then do the rest: `World.take_out` says why."""
        said = [effect for effect in effects if isinstance(effect, Outgoing)]
        if said:
            self._around.publish(*said)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Outgoing():
                pass  # it is said already
            case WriteChunk() | OpenPart() | FinishPart() | DropPart() | LeavePart():
                self._intake.do(effect)
            case StoreBundle():
                self._small.add(effect)
            case FileBundles(artifact_ids):
                self._file_bundles(artifact_ids)
            case AppendIndex(row):
                self._append_index(row)
            case VerifyStored(artifact_id):
                self._look_for(artifact_id)
            case AppendLog() | KeepPoint():
                self._keep_word(effect)
            case SendChunk():
                self._send_chunk(effect)
            case ReadManifest(client, request_id):
                schemas = self.core.known_trainers()
                self._around.reading(partial(self._reload, client, request_id, schemas))
            case Collect(unreferenced, unfiled):
                self._collect(unreferenced, unfiled)
            case Tell() | Warn():
                self._log(effect)
            case _:
                self._answer(effect)

    def _keep_word(self, effect: AppendLog | KeepPoint) -> None:
        if isinstance(effect, AppendLog):
            self._logs.append(effect.job_id, effect.said, effect.at_s)
        else:
            self._logs.curves.add(effect.job_id, effect.told)

    def _log(self, effect: Tell | Warn) -> None:
        if isinstance(effect, Warn):
            log.warning("%s", effect.text)
        else:
            log.info("%s", effect.text)
            self._around.tell(effect.text)

    def _answer(self, effect: Question) -> None:
        """Look up what is asked for; where that cannot be read, say so, and go on."""
        client, request_id = asked_by(effect)
        try:
            if isinstance(effect, FindResults):
                found = self._lookups.results(effect.job_id, effect.held)
                self._around.put(ResultsFound(effect, tuple(found)))
                return
            response = OperatorResponse(id=request_id, ok=True, data=self._lookups.data(effect))
        except StorageError as error:
            log.error("%s", error)
            response = RequestRefused(str(error)).response(request_id)
        topic = self._around.topics.operator_response(client)
        self._around.publish(Outgoing(topic, encode(response)))

    def _look_for(self, artifact_id: str) -> None:
        # A report is repeated until it is answered: while a disk hangs one look waits for it.
        if artifact_id not in self._looking:
            self._looking.add(artifact_id)
            self._around.background(partial(self._verify, artifact_id))

    def _verify(self, artifact_id: str) -> None:
        try:
            size_bytes = self._store.verify(artifact_id)
        finally:
            self._looking.discard(artifact_id)
        if size_bytes is None:
            self._around.put(ArtifactLost(artifact_id))
        else:
            self._around.put(PartStored(artifact_id, size_bytes))

    def _file_bundles(self, artifact_ids: Sequence[str]) -> None:
        for artifact_id in artifact_ids:
            try:
                kept = self._ledger.bundle(artifact_id)
            except StorageError as error:
                log.error("%s", error)
                self._around.put(BundleRefused(artifact_id))
                continue
            if kept is not None:
                self._small.add(StoreBundle(artifact_id, kept.data, kept.model, kept.mode))

    def _agree_index(self) -> None:
        """Drop the rows that the ledger knows nothing of; the core appends those that it lacks."""
        brought = self._ledger.brought()
        try:
            self._store.index.keep(brought.may_be)
        except StorageError as error:
            log.error("%s", error)

    def _append_index(self, row: dict[str, Any]) -> None:
        try:
            self._store.index.append(row)
        except StorageError as error:
            log.error("%s", error)

    def _send_chunk(self, effect: SendChunk) -> None:
        try:
            data = self._lookups.piece(effect)
        except StorageError as error:
            log.error("%s", error)
            return  # it is asked for again
        if data is None:
            self._around.put(ArtifactLost(effect.artifact_id))
        else:
            self._around.publish(Outgoing(effect.topic, data, 0))

    def _collect(self, unreferenced: Sequence[str], unfiled: frozenset[str]) -> None:
        keep, wall_s = self._retention, self._aging.look(self._now)
        results_s = self._settings.keep_results_s
        lately = rfc3339(max(0.0, wall_s - results_s))
        events = parts = 0
        try:
            # Files first: on a full disk the ledger takes nothing before there is room.
            parts = self._store.collect_parts(keep.parts_s, wall_s)
            self._store.collect_artifacts(
                unreferenced, unfiled, results_s, wall_s,
                # A result is kept so long from the requeue, however old it was by then.
                spared=lambda: self._ledger.set_aside_since(lately),
            )  # fmt: skip
            older_than = rfc3339(wall_s - keep.events_s)
            events = self._ledger.prune_events(keep.events_per_job, older_than)
            events += self._ledger.prune_actions(older_than, MAX_ANSWERS, keep.turned_away)
        except StorageError as error:
            log.error("%s; old things are deleted another time", error)
        sizes = ((one, self._store.size_bytes(one)) for one in unreferenced)
        kept = {one: size_bytes for one, size_bytes in sizes if size_bytes is not None}
        gone = len(unreferenced) - len(kept)
        if events or parts or gone:
            log.info("deleted %d old events, %d parts, %d artifacts", events, parts, gone)
        self._around.put(Collected(kept))

    def _reload(self, client: str | None, request_id: str, schemas: Schemas) -> None:
        try:
            plan = self._around.read_plan(schemas)
        except ManifestError as error:
            log.error("%s\nthe manifest has errors; the running plan is unchanged", error)
            self._around.put(ManifestRefused(error.problems, client, request_id))
            return
        if plan is None:
            log.warning("asked to reload, but there is no manifest")
        else:
            self._around.put(ManifestRead(plan, client, request_id))


def _tell(changes: Sequence[object]) -> None:
    """Log what has become of jobs, now that it is certain; what the plan changes is told in sum."""
    for change in changes:
        if isinstance(change, Change) and change.event not in OF_PLAN:
            log.log(logging.WARNING if change.event in TROUBLE else logging.INFO, "%s", change)
