"""The coordinator's shell: feeds the core, commits its changes, then has its effects performed.

It decides nothing, and reaches the outside only by what it is given, so it runs in the simulation
as it runs in the service.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Now, backoff_s, earliest
from broker.errors import StorageError
from broker.protocol.link_events import Connected, Disconnected, Outgoing
from broker.protocol.messages import encode
from broker.system.address import IS_IT_THERE
from coordinator.core import effects as fx
from coordinator.core.core_settings import CoreSettings
from coordinator.core.reactor import Core
from coordinator.core.state import MAX_ANSWERS
from coordinator.jobs.jobs import Change
from coordinator.jobs.states import OF_PLAN, TROUBLE
from coordinator.ledger.ledger import Ledger
from coordinator.service.performer import Event, Performer, Retention, Surroundings
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

if TYPE_CHECKING:
    from coordinator.faces.homeassistant import HomeAssistant
    from coordinator.faces.metrics import Tally

log = logging.getLogger("fleet.coordinator")

RELOAD_BASE_S: Final = 1.0
RELOAD_CAP_S: Final = 30.0

# Each of the first two makes all three of an earlier reading void.
OF_MANIFEST: Final = (fx.ManifestRead, fx.ManifestRefused, fx.ManifestChanged)
# These events come once, when a file has changed.
ONCE: Final = (*OF_MANIFEST, fx.JournalRead, fx.ReloadAsked)


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
        face: HomeAssistant | None = None,
        tally: Tally | None = None,
    ) -> None:
        """Load the ledger. Raises `StorageError` when it cannot be read. `tally` times commits."""
        self._face, self._tally = face, tally
        self._settings = settings
        self._around = around
        self._ledger = ledger
        self._store = store
        self._performer = Performer(
            around, ledger, store, logs, now, retention or Retention(), settings.keep_results_s
        )
        self._session: str | None = None
        self._advised = False
        self._failures = 0
        self._resume_s: float | None = None
        self._waiting: dict[type[Event], Event] = {}  # until the ledger takes changes again
        self._again_s = 0.0  # when that is tried
        self._tries = 0
        self.core = self._new_core(now)

    def turn(self, events: Sequence[Event], now: Now) -> None:
        """Take some events, in one transaction; then perform the effects.

        While the ledger refuses, events are dropped, as they are repeated; those of `ONCE` wait.
        """
        if self._face is not None:
            events = self._face.sift(events, now)
        for event in events:
            if isinstance(event, Connected | Disconnected):
                self._note_link(event)
        if self._resume_s is not None:
            # As after a restart of this process: what is lost is sent again.
            self._put_off(events)
            if now.mono_s < self._resume_s or not self._resume(now):
                return
            events = [] if self._session is None else [Connected(self._session)]
        if self._waiting:
            self._forget_older(events)
        self._take(events or [fx.Tick()], now)
        if self._waiting and self._resume_s is None and now.mono_s >= self._again_s:
            # In a transaction of their own: on a nearly full disk they may be too much.
            waiting, self._waiting = [*self._waiting.values()], {}
            self._take(waiting, now)
            self._tries = 0 if self._resume_s is None else self._tries

    def next_deadline(self) -> float | None:
        """Return when a turn is wanted without an event (monotonic seconds), or none."""
        if self._resume_s is not None:
            return self._resume_s
        return earliest(
            self.core.next_deadline(),
            self._face.next_deadline() if self._face else None,
            self._again_s if self._waiting else None,
        )

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
        if self._face is not None:
            self._face.close()
        self._performer.close()
        self._ledger.close()

    def _take(self, events: Sequence[Event], now: Now) -> None:
        for event in events:
            self.core.handle(event, now)
        self._flush(now)
        if self._resume_s is not None and self._put_off(events):
            wait_s = backoff_s(self._tries, RELOAD_BASE_S, RELOAD_CAP_S, self._around.rng)
            self._again_s, self._tries = now.mono_s + wait_s, self._tries + 1

    def _forget_older(self, events: Sequence[Event]) -> None:
        """Drop what waits and was read before these events."""
        for event in events:
            for kind in OF_MANIFEST if isinstance(event, OF_MANIFEST[:2]) else (type(event),):
                self._waiting.pop(kind, None)

    def _put_off(self, events: Sequence[Event]) -> bool:
        """Keep the newest of each kind in `ONCE`, in order; return whether there is any."""
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
            log.warning("not connected: %s; trying again", event)
            if self._session is None and not event.answered and not self._advised:
                log.warning("%s", IS_IT_THERE)
                self._advised = True

    def _flush(self, now: Now) -> None:
        changes, effects = self.core.take()
        begun_s = time.perf_counter()
        try:
            self._ledger.commit(changes)
        except StorageError as error:
            if self._tally is not None:
                self._tally.commit_failures += 1
            self._stand_back(error, now)
            return
        if changes:
            self._failures = 0
            if self._tally is not None:
                self._tally.on_commit(changes, time.perf_counter() - begun_s)
        self._performer.perform(effects, now)
        if log.isEnabledFor(logging.INFO):
            _tell(changes)
        if self._face is not None:
            active = bool(changes or effects)
            messages = self._face.turn(self.core.world, changes, now, active=active)
            if messages:
                self._around.publish(*messages)

    def _stand_back(self, error: StorageError, now: Now) -> None:
        """The ledger refused a change, so nothing happened: go on from its rows after a pause."""
        wait_s = backoff_s(self._failures, RELOAD_BASE_S, RELOAD_CAP_S, self._around.rng)
        log.error("%s; going on from the ledger as it is in %.0f s", error, wait_s)
        self._failures += 1
        self._resume_s = now.mono_s + wait_s

    def _resume(self, now: Now) -> bool:
        self._performer.leave_parts()
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
            pushed=self._ledger.load_pushed(),
        )

    def _presence(self, status: Any) -> Outgoing:
        return Outgoing(self._around.topics.coordinator_status(), encode(status), 1, retain=True)


def _tell(changes: Sequence[object]) -> None:
    """Log what has become of jobs, now that it is certain; what the plan changes is told in sum."""
    for change in changes:
        if isinstance(change, Change) and change.event not in OF_PLAN:
            log.log(logging.WARNING if change.event in TROUBLE else logging.INFO, "%s", change)
