"""Performs the core's effects: on the ledger, the store, the logs and the broker."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from broker.clock import Now, Randomness, rfc3339
from broker.errors import ConfigError, StorageError, plain
from broker.programs.trust import Verify
from broker.programs.unusable import Unusable
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing, Publish
from broker.protocol.messages import OperatorResponse, encode
from broker.protocol.topics import Topics
from broker.system.files import RealDisk
from coordinator.core import effects as fx
from coordinator.core.authorization import RequestRefused
from coordinator.core.core_settings import DAY_S
from coordinator.core.state import MAX_ANSWERS
from coordinator.jobs.causes import cause
from coordinator.jobs.plan_entries import Plan
from coordinator.ledger.ledger import Ledger
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.problems import ManifestError
from coordinator.service.lookups import Lookups
from coordinator.store.joblog import JobLogs
from coordinator.store.store import PARTS_KEPT_S, Store
from coordinator.store.writer import Intake, Task

log = logging.getLogger("fleet.coordinator")

Event = Connected | Disconnected | Incoming | fx.ShellEvent


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shell may do to the outside.

    `publish` hands messages to the link; `put` brings an event to the next turn. `background` runs
    a slow function elsewhere, `writing` one after the other on the thread of part files, `reading`
    on the thread that reads the manifest. `read_plan` returns the plan, none without a manifest,
    given what its jobs may name; it raises `ManifestError`. `tell` tells the service manager.
    `verify` checks a program's signature; without it none is checked.
    """

    topics: Topics
    disk: RealDisk
    rng: Randomness
    new_id: Callable[[], str]
    publish: Publish
    put: Callable[[Event], object]
    background: Callable[[Callable[[], None]], object]
    writing: Callable[[Callable[[], None]], object]
    read_plan: Callable[[Catalogue], Plan | None]
    tell: Callable[[str], object] = lambda _: None
    verify: Verify | None = None
    reading: Callable[[Callable[[], None]], object] = lambda read: read()


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long things are kept that nothing rests on any more; results: `CoreSettings`."""

    events_s: float = 90 * DAY_S
    events_per_job: int = 200
    turned_away: int = 10_000  # commands without the right to give them
    parts_s: float = PARTS_KEPT_S


class Performer:
    """Performs effects; what comes of the slow ones is put into the next turn."""

    def __init__(
        self,
        around: Surroundings,
        ledger: Ledger,
        store: Store,
        logs: JobLogs,
        now: Now,
        retention: Retention,
        keep_results_s: float,
    ) -> None:
        """Results that were set aside are kept for `keep_results_s`."""
        self._around = around
        self._ledger = ledger
        self._store = store
        self._retention = retention
        self._keep_results_s = keep_results_s
        self._now = self._collected = now
        self._intake = Intake(store, around.put, around.writing, around.background)
        self._lookups = Lookups(ledger, store, logs, around.disk, keep_results_s)
        self._verifying: set[str] = set()
        by_kind: dict[type[fx.Effect], Callable[[Any], object]] = {
            fx.FileBundles: self._file_bundles,
            fx.VerifyStored: self._verify_stored,
            fx.AppendLog: lambda effect: logs.append(effect.job_id, effect.said, effect.at_s),
            fx.KeepPoint: lambda effect: logs.curves.add(effect.job_id, effect.told),
            fx.SendChunk: self._send_chunk,
            fx.ReadManifest: lambda effect: around.reading(partial(self._read_manifest, effect)),
            fx.Collect: self._collect,
            fx.Tell: self._tell,
            fx.Warn: lambda effect: log.warning("%s", effect.text),
            fx.FindResults: self._find_results,
            fx.LookUp: self._answer,
            fx.CheckSignatures: lambda effect: around.reading(partial(self._check, effect)),
        }
        by_kind |= dict.fromkeys(get_args(Task), self._intake.do)
        self._by_kind = by_kind

    def perform(self, effects: Sequence[fx.Effect], now: Now) -> None:
        """Publish all messages at once, then do the rest."""
        self._now = now
        messages = [effect for effect in effects if isinstance(effect, Outgoing)]
        if messages:
            self._around.publish(*messages)
        for effect in [effect for effect in effects if not isinstance(effect, Outgoing)]:
            try:
                self._by_kind[type(effect)](effect)
            except StorageError as error:
                log.error("%s", error)  # what was asked for is asked for again

    def leave_parts(self) -> None:
        """Leave every part file as it is; the core begins again from the ledger."""
        self._intake.leave()

    def close(self) -> None:
        """Leave every part file as it is, for a later go."""
        self._intake.close()

    def _tell(self, effect: fx.Tell) -> None:
        log.info("%s", effect.text)
        self._around.tell(effect.text)

    def _find_results(self, effect: fx.FindResults) -> None:
        with self._refusing(effect.client, effect.ask.id):
            found = self._lookups.results(effect.job_id, effect.held)
            self._around.put(fx.ResultsFound(effect, tuple(found)))

    def _answer(self, effect: fx.LookUp) -> None:
        with self._refusing(effect.client, effect.ask.id):
            data = self._lookups.data(effect)
            self._respond(effect.client, OperatorResponse(id=effect.ask.id, ok=True, data=data))

    @contextlib.contextmanager
    def _refusing(self, client: str, request_id: str) -> Iterator[None]:
        """Tell a client where the ledger or a log cannot be read, and go on."""
        try:
            yield
        except StorageError as error:
            log.error("%s", error)
            self._respond(
                client, RequestRefused(cause("text", text=str(error))).response(request_id)
            )

    def _respond(self, client: str, response: OperatorResponse) -> None:
        topic = self._around.topics.operator_response(client)
        self._around.publish(Outgoing(topic, encode(response)))

    def _verify_stored(self, effect: fx.VerifyStored) -> None:
        # A report is repeated until it is answered; while a disk hangs, one check is enough.
        if effect.artifact_id not in self._verifying:
            self._verifying.add(effect.artifact_id)
            self._around.background(partial(self._verify, effect.artifact_id))

    def _verify(self, artifact_id: str) -> None:
        try:
            size_bytes = self._store.verify(artifact_id)
        finally:
            self._verifying.discard(artifact_id)
        lost = size_bytes is None
        self._around.put(
            fx.ArtifactLost(artifact_id) if lost else fx.PartStored(artifact_id, size_bytes or 0)
        )

    def _file_bundles(self, effect: fx.FileBundles) -> None:
        for artifact_id in effect.artifact_ids:
            try:
                kept = self._ledger.bundle(artifact_id)
            except StorageError as error:
                log.error("%s", error)
                self._around.put(fx.BundleRefused(artifact_id))
                continue
            if kept is not None:
                self._intake.store(kept)

    def _send_chunk(self, effect: fx.SendChunk) -> None:
        data = self._lookups.piece(effect)
        if data is None:
            self._around.put(fx.ArtifactLost(effect.artifact_id))
        else:
            self._around.publish(Outgoing(effect.topic, data, 0))

    def _collect(self, effect: fx.Collect) -> None:
        keep, now, before = self._retention, self._now, self._collected
        # A clock without a battery may be wrong by a month until it is synchronised, and what is
        # deleted meanwhile is lost: the earlier of two readings counts.
        wall_s = min(now.wall_s, before.wall_s + max(0.0, now.mono_s - before.mono_s))
        self._collected = now
        results_s, unreferenced = self._keep_results_s, effect.unreferenced
        lately = rfc3339(max(0.0, wall_s - results_s))
        events = parts = 0
        try:
            # Files first: on a full disk the ledger needs room to delete anything.
            parts = self._store.collect_parts(keep.parts_s, wall_s)
            # The time counts from the requeue, however old the result was then.
            set_aside = self._ledger.set_aside_since(lately)
            self._store.collect_artifacts(unreferenced, results_s, wall_s, set_aside)
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
        self._around.put(fx.Collected(kept))

    def _check(self, effect: fx.CheckSignatures) -> None:
        """Check signatures. What cannot be checked here is left to the hosts, which decide."""
        fault, offer, verify = None, effect.offer, self._around.verify
        try:
            for one in offer.signatures:
                if verify is not None:
                    verify(one, offer.name, offer.digest, effect.crl)
        except Unusable as refusal:
            fault = refusal.fault
        except (ConfigError, OSError) as error:
            log.error("the signature of %s is not checked: %s", offer.name, plain(error))
        self._around.put(fx.SignaturesChecked(effect, fault))

    def _read_manifest(self, effect: fx.ReadManifest) -> None:
        client, request_id = effect.client, effect.request_id
        try:
            plan = self._around.read_plan(effect.known)
        except ManifestError as error:
            log.error("%s\nthe manifest has errors; the running plan is unchanged", error)
            self._around.put(fx.ManifestRefused(error.problems, client, request_id))
            return
        if plan is None:
            log.warning("asked to reload, but there is no manifest")
        else:
            self._around.put(fx.ManifestRead(plan, client, request_id))
