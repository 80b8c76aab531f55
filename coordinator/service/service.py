"""A coordinator's connection and threads around a `Shell`.

One thread decides: it drains the mailbox and gives the shell its turns. A second one writes part
files, a third syncs and hashes them, a fourth reads the manifest and the CA's journal; none holds
up the first.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.client.access import Access
from broker.client.link import Link
from broker.client.mailbox import Mailbox, feed
from broker.clock import Now, earliest
from broker.pki.identity import CA_FILE
from broker.programs.trust import verifier
from broker.protocol.link_events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import Holder
from broker.protocol.signing import OperatorKey
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.system.address import text_of
from broker.system.files import FolderLock, RealDisk
from broker.system.machine import boot_id, machine_id, machine_name, new_id, system_clock
from broker.system.settings import BrokerSettings
from broker.system.systemd import Notifier
from broker.system.trainer_settings import OwnTrainer
from broker.system.trainer_version import Versions
from coordinator import __version__
from coordinator.core import effects as fx
from coordinator.core.core_settings import DAY_S, CorePart, CoreSettings
from coordinator.core.receipts import ledger_id
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.source import PlanFile, with_remedy
from coordinator.service.continuity import open_ledger
from coordinator.service.performer import Event, Retention, Surroundings
from coordinator.service.settings import CoordinatorSettings, HomeAssistantSettings
from coordinator.service.shell import Shell
from coordinator.service.state_files import HomeMemory, installation_id, load_key
from coordinator.service.succession import Entrance
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

if TYPE_CHECKING:
    from broker.pki.renewal import Renewals
    from coordinator.service.journal_reader import JournalReader
    from coordinator.service.scrape import Readings, Scrapes

log = logging.getLogger("fleet.coordinator")

BACKOFF_CAP_S: Final = 5.0  # short: it is a single client, and every verb waits for it
LOOK_EVERY_S: Final = 5.0  # at the manifest and the CA's journal; each look wakes three threads


class Service:
    """Everything that one coordinator has open.

    Raises `ConfigError` or `StorageError` when the state folder, the ledger or the manifest cannot
    be used.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        broker: BrokerSettings,
        access: Access,
        own: Mapping[str, OwnTrainer],
        manager: Notifier,
        home: HomeAssistantSettings,
        *,
        accept_ledger: bool = False,
        may_fall_back: bool = True,
    ) -> None:
        """Open the ledger and the store, read the manifest, prepare the link.

        `access` is the way to the broker; `own` are the trainers of the configuration, known before
        a host that has them has come; `manager` is who started this program. `accept_ledger` takes
        the ledger as it is, see `open_ledger`. With `may_fall_back` a faulty manifest is no error
        where the ledger has a plan.
        """
        self._settings = settings
        self._manager = manager
        self._stopping = self._reloading = self._connected = self._was_ready = False
        self._plan_file = PlanFile(settings.manifest)
        self._look_s = 0.0  # when to look at the files again
        self._looking: Future[None] = Future()
        self._looking.set_result(None)
        self._topics = topics = Topics(broker.topic_root)
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        self._lock = FolderLock(settings.state, "coordinator")
        self._hasher, self._writer, self._reader = (
            ThreadPoolExecutor(1, thread_name_prefix=f"fleet-{name}")
            for name in ("hasher", "writer", "reader")
        )
        self.mailbox: Mailbox[Event | Future[Readings]] = Mailbox()
        self._scrapes = None if settings.metrics is None else self._open_scrapes(settings.metrics)
        # Before the key of the receipts, which is a sign that there was a ledger.
        self._ledger = open_ledger(settings.state, accept=accept_ledger)
        self._store = Store(settings.state, reserve_bytes=settings.reserve_bytes)
        if self._scrapes is not None:
            self._store.on_stored = self._scrapes.tally.on_stored
        self._link = self._open_link(access)
        me = access.identity
        self._verify = None if me is None else verifier(me.folder / CA_FILE, system_clock)
        now = system_clock()
        core_settings = self._core_settings(access, broker.operator_key(), own, home, now)
        self._memory = HomeMemory(settings.state)
        self._farewell = [] if home.enabled else self._memory.farewell(topics)
        holder = Holder(
            ledger=ledger_id(core_settings.receipt_key),
            installation=installation_id(settings.state, machine_id(), new_id),
            machine=core_settings.machine,
            instance=core_settings.instance,
        )
        heard = topics.for_coordinator() + (topics.for_homeassistant() if home.enabled else ())
        self._entrance = Entrance(self._link, topics, holder, heard)
        self._renewals: Renewals | None = None
        self._journal: JournalReader | None = None
        if settings.ca is not None:
            self._open_ca(settings.ca)
        self._shell = self._open_shell(core_settings, home, now)
        plan = self._first_plan(may_fall_back=may_fall_back)
        self._shell.turn([*plan, *self._news()], now)

    def _core_settings(
        self,
        access: Access,
        key: OperatorKey | None,
        own: Mapping[str, OwnTrainer],
        home: HomeAssistantSettings,
        now: Now,
    ) -> CoreSettings:
        settings = self._settings
        return CoreSettings(
            **settings.part(CorePart),
            instance=new_id(),
            boot_id=boot_id(),
            machine=machine_name(),
            version=__version__,
            started_at=now.text(),
            manifest=None if settings.manifest is None else str(settings.manifest.absolute()),
            broker=text_of(access.addresses),
            operator_key=key,
            receipt_key=load_key(settings.state),
            trainers=builtin_trainers()
            | {name: own[name].info(seen or None) for name, seen in Versions(own).look().items()},
            home_commands=home.enabled and (key is None or home.unsigned_commands),
        )

    def _open_link(self, access: Access) -> Link:
        return Link(
            access.link(
                self._topics.client_id(Role.COORDINATOR),
                self._topics.before_coordinator(),
                backoff_cap_s=BACKOFF_CAP_S,
                if_twin="is another coordinator at this broker? stop one of them",
            ),
            feed(self.mailbox, self._topics),
            self._will,
        )

    def _will(self, session: str) -> Outgoing:
        return self._shell.will(session)

    def _open_ca(self, folder: Path) -> None:
        # Not above: a coordinator without a CA saves the memory.
        from broker.pki.ca import Authority
        from broker.pki.renewal import Renewals
        from coordinator.service.journal_reader import JournalReader

        self._renewals = Renewals(
            Authority(folder),
            self._topics,
            self._entrance.publish,
            self._hasher.submit,
            system_clock,
        )
        self._journal = JournalReader(folder)

    def _open_scrapes(self, address: str) -> Scrapes:
        # Not above: most coordinators have no metrics.
        from coordinator.service.scrape import Scrapes, parse_address

        where = parse_address(address, plain=self._settings.metrics_plain)
        scrapes = Scrapes(where, self.mailbox.put)
        log.info("metrics are at http://%s/metrics", address)
        return scrapes

    def _open_shell(
        self, core_settings: CoreSettings, home: HomeAssistantSettings, now: Now
    ) -> Shell:
        around = Surroundings(
            topics=self._topics,
            disk=RealDisk(),
            rng=self._rng,
            new_id=new_id,
            publish=self._entrance.publish,
            put=self.mailbox.put,
            background=self._hasher.submit,
            writing=self._writer.submit,
            read_plan=self._plan_file.read,
            tell=self._manager.status,
            verify=self._verify,
            reading=self._reader.submit,
        )
        face = None
        if home.enabled:
            commands = core_settings.home_commands
            face = self._memory.face(self._topics, self._rng, commands=commands)
        settings = self._settings
        logs = JobLogs(settings.state / "logs", settings.max_log_bytes)
        keep = Retention(events_s=settings.keep_events_days * DAY_S)
        tally = None if self._scrapes is None else self._scrapes.tally
        return Shell(core_settings, around, self._ledger, self._store, logs, now, keep, face, tally)

    def _first_plan(self, *, may_fall_back: bool) -> list[Event]:
        """Read the manifest; with a faulty one, go on with the plan of the ledger."""
        core = self._shell.core
        try:
            plan = self._plan_file.read(core.known())
        except ManifestError as error:
            if core.world.fleet.plan is None or not may_fall_back:
                raise with_remedy(error) from None
            log.error("%s\nthe manifest has errors; going on with the last good one", error)
            return [fx.ManifestRefused(error.problems)]
        return [] if plan is None else [fx.ManifestRead(plan)]

    def _news(self) -> Iterator[Event]:
        """Yield what has changed of the files that the coordinator looks at."""
        if (how := self._plan_file.news()) is not None:
            yield fx.ManifestChanged(how)
        if self._journal is not None and (read := self._journal.news()) is not None:
            yield read

    def _look(self) -> None:
        # On the thread that reads: so what is put of a file is in the order in which it was seen.
        for event in self._news():
            self.mailbox.put(event)

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`; `ready` is called when it first does.

        Raises `ConfigError` when another coordinator serves this fleet.
        """
        self._link.start()
        if self._scrapes is not None:
            self._scrapes.start()
        # A broker that is away is no reason for the service manager to start us again.
        self._manager.ready("connecting to the broker")
        try:
            while self._turn(ready):
                self._manager.alive(system_clock().mono_s)
        finally:
            self._manager.stopping()
            if self._scrapes is not None:
                self._scrapes.stop()
            for threads in (self._hasher, self._reader):
                threads.shutdown(wait=False, cancel_futures=True)
            goodbye = self._shell.goodbye() if self._entrance.serves else None
            self._link.stop([] if goodbye is None else [goodbye])
            self._writer.shutdown(cancel_futures=True)
            self._shell.close()
            self._lock.release()
            self._manager.close()

    def stop(self) -> None:
        """End after the present turn, whatever waits in the mailbox."""
        self._stopping = True
        self.mailbox.put(fx.Tick())

    def _turn(self, ready: Callable[[], None]) -> bool:
        taken = self.mailbox.take(self._wait_s())
        if self._stopping:
            return False
        events: list[Event] = []
        now = system_clock()
        for event in taken:
            if isinstance(event, Future):
                self._read_metrics(event)
            elif self._admits(event, now, ready):
                events.append(event)
        now = system_clock()
        self._entrance.passes(now.mono_s)
        self._shell.turn(events, now)
        if self._reloading and any(
            isinstance(event, fx.ManifestRead | fx.ManifestRefused) for event in events
        ):
            self._reloading = False
            self._manager.ready()
        if now.mono_s >= self._look_s:
            self._look_s = now.mono_s + LOOK_EVERY_S
            if self._looking.done():  # not while a disk hangs
                self._looking.result()
                self._looking = self._reader.submit(self._look)
        return True

    def _wait_s(self) -> float | None:
        """Return how long the mailbox may be waited for; none: until something comes."""
        deadline_s = earliest(
            self._shell.next_deadline(),
            self._entrance.next_deadline(),
            self._look_s,
        )
        mono_s = system_clock().mono_s
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - mono_s)
        return self._manager.wait_s(timeout_s, mono_s)

    def _admits(self, event: Event, now: Now, ready: Callable[[], None]) -> bool:
        """Take note of an event; return whether it is for the shell."""
        if isinstance(event, Connected | Disconnected | Incoming) and not (
            self._entrance.admits(event, now.mono_s)
        ):
            return False
        match event:
            case Connected():
                self._on_connected(ready)
            case Disconnected():
                self._connected = False
                self._manager.status(f"not connected: {event}")
            case Incoming() if self._renewals is not None:
                self._renewals.put(event)
            case fx.ReloadAsked():
                # The turn that takes `ManifestRead` or `ManifestRefused` ends it.
                self._reloading = self._settings.manifest is not None
                if self._reloading:
                    self._manager.reloading(now.mono_s)
            case fx.ManifestRefused():
                self._manager.status("the manifest has errors; the running plan is unchanged")
            case _:
                pass
        return True

    def _on_connected(self, ready: Callable[[], None]) -> None:
        self._connected = True
        self._manager.status("connected to the broker")
        if not self._was_ready:
            self._was_ready = True
            ready()
        if self._farewell and self._entrance.publish(*self._farewell):
            self._farewell = []
            self._memory.keep(b"")

    def _read_metrics(self, answer: Future[Readings]) -> None:
        from coordinator.faces.metrics import Inbox, read

        if self._scrapes is not None:
            world, tally = self._shell.core.world, self._scrapes.tally
            inbox = Inbox(self.mailbox.unread(), self.mailbox.dropped(), self._connected)
            answer.set_result(read(world, tally, inbox, system_clock()))
