"""The coordinator as a program: its connection, its threads, its signals around a `Shell`.

One thread decides: it drains the mailbox and gives the shell its turns. A second one writes what
comes of artifacts, a third waits for the disk and checks what is whole, a fourth reads the manifest
when it is read again; none holds up the first.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from broker.client.access import COORDINATOR, Access, open_access
from broker.client.link import Link, LinkSettings, feed
from broker.client.mailbox import Lane, Mailbox
from broker.client.options import add_options
from broker.clock import Now, Randomness
from broker.errors import ConfigError, StorageError, plain
from broker.protocol.events import Connected, Disconnected, Incoming, Outgoing
from broker.protocol.messages import Holder
from broker.protocol.signing import OperatorKey
from broker.protocol.topic_table import Role
from broker.protocol.topics import Topics
from broker.sentences import complain
from broker.system.address import text_of
from broker.system.files import FolderLock, RealDisk
from broker.system.logs import announce, setup
from broker.system.machine import boot_id, machine_id, machine_name, new_id, system_clock
from broker.system.memory import keep_freed_memory, spare_what_is_loaded
from broker.system.process import end_in_time, end_with_parent, on_signals
from broker.system.settings import BrokerSettings
from broker.system.systemd import Notifier
from broker.system.trainer_settings import OwnTrainer
from coordinator import __version__
from coordinator.core.effects import (
    BundleFiled,
    ManifestChanged,
    ManifestRead,
    ManifestRefused,
    ReloadAsked,
)
from coordinator.core.receipts import ledger_id
from coordinator.core.state import CoreSettings
from coordinator.faces import metrics
from coordinator.faces.tally import Tally
from coordinator.ledger.ledger import Ledger
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.source import PlanFile
from coordinator.service.continuity import open_ledger
from coordinator.service.entrance import Entrance
from coordinator.service.homeassistant_memory import HomeMemory
from coordinator.service.installation import installation_id
from coordinator.service.metering import MeteredLedger, MeteredStore
from coordinator.service.receipt_key import load_key
from coordinator.service.scrape import DEADLINE_S, Scrapes, parse_door
from coordinator.service.settings import CoordinatorSettings, HomeAssistantSettings, load
from coordinator.service.shell import DAY_S, Event, Retention, Shell, Surroundings
from coordinator.store.joblog import JobLogs
from coordinator.store.store import Store

if TYPE_CHECKING:
    from coordinator.service.renewal import JournalReader, Renewals

log = logging.getLogger("fleet.coordinator")

END_S: Final = 20.0  # a service manager waits for longer
SWITCH_S: Final = 0.001
BACKOFF_CAP_S: Final = 5.0  # it is one, no herd, and until it is back every verb waits for it
GATHER_S: Final = 0.02  # for which what is patient waits for more: a turn costs as much as it does


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody on this machine asked the coordinator to end."""


@dataclass(frozen=True, slots=True)
class MetricsAsked:
    """Somebody scrapes: the deciding thread is to take the readings."""

    answer: Future[metrics.Readings]


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
    ) -> None:
        """Open the ledger and the store, read the manifest, prepare the link.

        `access` is the way to the broker; `own` are the trainers of the configuration, known before
        a host that has them has come; `manager` is who started this program. `accept_ledger` takes
        the ledger as it is, see `open_ledger`.
        """
        self._home = home
        self._memory = HomeMemory(settings.state)
        self._settings = settings
        self._manager = manager
        self._reloading = False
        self._stopping = False
        self._own = own
        self._plan_file = PlanFile(settings.manifest, settings.state)
        topics = Topics(broker.topic_root)
        rng = random.Random()  # noqa: S311 - jitter, no secret
        self._lock = FolderLock(settings.state, "coordinator")
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="fleet-hasher")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fleet-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="fleet-reader")
        self.mailbox: Mailbox[Event | Stop | MetricsAsked] = Mailbox()
        self._connected = False
        self._tally = None if settings.metrics is None else Tally()
        tally = self._tally
        # Before the key of the receipts, which is a sign that there was a ledger.
        self._ledger = open_ledger(settings.state, self._make_ledger, accept=accept_ledger)
        reserve_bytes = settings.reserve_bytes
        self._store = (
            Store(settings.state, reserve_bytes=reserve_bytes)
            if tally is None
            else MeteredStore(settings.state, tally, reserve_bytes)
        )
        self._link = self._open_link(access, topics, rng)
        now = system_clock()
        core_settings = self._core_settings(
            text_of(access.addresses), now.text(), broker.operator_key()
        )
        self._entrance = Entrance(
            self._link,
            topics,
            Holder(
                ledger=ledger_id(core_settings.receipt_key),
                installation=installation_id(settings.state, machine_id(), new_id),
                machine=core_settings.machine,
                instance=core_settings.instance,
            ),
            topics.for_coordinator() + (topics.for_homeassistant() if home.enabled else ()),
        )
        self._renewals: Renewals | None = None
        self._journal: JournalReader | None = None
        if settings.ca is not None:
            self._open_ca(settings.ca, topics)
        self._shell = self._open_shell(core_settings, topics, rng, now)
        self._scrapes = self._open_scrapes()
        self._shell.turn(self._first_plan(), now)
        self._read_journal(now)

    def _make_ledger(self, path: Path, note: Callable[[int], None]) -> Ledger:
        if self._tally is None:
            return Ledger(path, note=note)
        return MeteredLedger(path, self._tally, note)

    def _open_link(self, access: Access, topics: Topics, rng: Randomness) -> Link:
        return Link(
            LinkSettings(
                access.addresses,
                topics.client_id(Role.COORDINATOR),
                topics.before_coordinator(),
                backoff_cap_s=BACKOFF_CAP_S,
                tls=access.tls,
                mark=access.mark,
                name=access.name,
                if_twin="is another coordinator at this broker? stop one of them",
            ),
            feed(self.mailbox),
            will=self._will,
            new_id=new_id,
            rng=rng,
        )

    def _open_ca(self, folder: Path, topics: Topics) -> None:
        # Not above: a coordinator that has no CA does without what it takes in memory.
        from broker.pki.ca import Authority
        from coordinator.service.renewal import JournalReader, Renewals

        authority = Authority(folder)
        self._journal = JournalReader(folder)
        self._renewals = Renewals(
            authority, topics, self._entrance.publish, self._hasher.submit, system_clock
        )

    def _open_shell(
        self, core_settings: CoreSettings, topics: Topics, rng: Randomness, now: Now
    ) -> Shell:
        around = Surroundings(
            topics=topics,
            disk=RealDisk(),
            rng=rng,
            new_id=new_id,
            publish=self._entrance.publish,
            put=self._put,
            background=self._hasher.submit,
            writing=self._writer.submit,
            read_plan=self._plan_file.read,
            tell=self._manager.status,
            keep=self._memory.keep,
            reading=self._reader.submit,
        )
        settings, home = self._settings, self._home
        return Shell(
            core_settings,
            around,
            self._ledger,
            self._store,
            JobLogs(settings.state / "logs", settings.max_log_bytes),
            now,
            Retention(events_s=settings.keep_events_days * DAY_S),
            self._memory.face(home, topics, rng, commands=core_settings.home_commands),
        )

    def run(self, ready: Callable[[], None], ending: Callable[[], None] = lambda: None) -> None:
        """Serve until `Stop`; `ready` is called when it first does, `ending` when it is to end.

        Raises `ConfigError` when another coordinator serves this fleet.
        """
        self._link.start()
        if self._scrapes is not None:
            self._scrapes.start()
        # A broker that is not there yet is no reason to be started again: the loop runs, so ready.
        self._manager.ready("connecting to the broker")
        try:
            while self._turn(ready):
                self._manager.alive(system_clock().mono_s)
        finally:
            ending()
            self._manager.stopping()
            if self._scrapes is not None:
                self._scrapes.stop()
            self._hasher.shutdown(wait=False, cancel_futures=True)
            self._reader.shutdown(wait=False, cancel_futures=True)
            goodbye = self._shell.goodbye() if self._entrance.serves else None
            self._link.stop([] if goodbye is None else [goodbye])
            self._writer.shutdown(cancel_futures=True)
            self._shell.close()
            self._lock.release()
            self._manager.close()

    def stop(self) -> None:
        """End after the present turn, whatever waits in the mailbox."""
        self._stopping = True
        self.mailbox.put(Stop())

    def _turn(self, ready: Callable[[], None]) -> bool:
        if self._stopping:
            return False
        due_s = (
            self._shell.next_deadline(),
            self._entrance.next_deadline(),
            None if self._journal is None else self._journal.due_s,
        )
        deadline_s = min((at_s for at_s in due_s if at_s is not None), default=None)
        mono_s = system_clock().mono_s
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - mono_s)
        events: list[Event] = []
        wait_s = self._manager.wait_s(timeout_s, mono_s)
        taken = self.mailbox.take(wait_s, gather_s=GATHER_S)
        mono_s = system_clock().mono_s
        for event in taken:
            if isinstance(event, Stop):
                return False
            if isinstance(event, MetricsAsked):
                self._take_readings(event)
                continue
            if isinstance(event, Connected | Disconnected | Incoming) and not (
                self._entrance.admits(event, mono_s)
            ):
                continue
            if isinstance(event, Connected):
                ready()
            self._tell_manager(event)
            if isinstance(event, Incoming) and self._renewals is not None:
                self._renewals.put(event)
            events.append(event)
        now = system_clock()
        self._entrance.on_time(now.mono_s)
        # First, so that whoever asks for the plan is told.
        how = self._plan_file.news(now.mono_s)
        self._shell.turn(events if how is None else [ManifestChanged(how), *events], now)
        self._read_journal(now)
        if any(isinstance(event, ManifestRead | ManifestRefused) for event in events):
            self._on_manifest_read()
        return True

    def _on_manifest_read(self) -> None:
        """The turn that took it is over."""
        self._plan_file.was_read()
        if self._reloading:
            self._reloading = False
            self._manager.ready()

    def _put(self, event: Event) -> None:
        # That an artifact is a file, too, is soon enough known with what comes next.
        if not (isinstance(event, BundleFiled) and self.mailbox.put(event, Lane.PATIENT)):
            self.mailbox.put(event)

    def _read_journal(self, now: Now) -> None:
        news = None if self._journal is None else self._journal.news(now.mono_s)
        if news is not None:
            self._shell.turn([news], now)

    def _tell_manager(self, event: Event) -> None:
        match event:
            case Connected():
                self._connected = True
                self._manager.status("connected to the broker")
            case Disconnected():
                self._connected = False
                self._manager.status(f"not connected: {event.why}")
            case ReloadAsked():
                # What it reads comes by the mailbox: the turn that takes it ends it.
                self._reloading = self._settings.manifest is not None
                if self._reloading:
                    self._manager.reloading(system_clock().mono_s)
            case ManifestRefused():
                self._manager.status("the manifest has errors; the running plan is unchanged")

    def _open_scrapes(self) -> Scrapes | None:
        settings = self._settings
        if settings.metrics is None:
            return None
        door = parse_door(
            settings.metrics, plain=settings.metrics_plain, source="[coordinator] metrics"
        )
        scrapes = Scrapes(door, self._scrape, metrics.CONTENT_TYPE)
        log.info("metrics are at http://%s/metrics", settings.metrics)
        return scrapes

    def _scrape(self) -> str:
        """Have the deciding thread take the readings, and make text of them on this one."""
        asked = MetricsAsked(Future())
        self.mailbox.put(asked, Lane.LOCAL)
        return metrics.render(asked.answer.result(DEADLINE_S - 1))

    def _take_readings(self, asked: MetricsAsked) -> None:
        inbox = metrics.Inbox(self.mailbox.unread(), self.mailbox.dropped(), self._connected)
        if self._tally is not None:
            world = self._shell.core.world
            asked.answer.set_result(metrics.read(world, self._tally, inbox, system_clock()))

    def _will(self, session: str) -> Outgoing:
        return self._shell.will(session)

    def _core_settings(
        self, address: str, started_at: str, operator_key: OperatorKey | None
    ) -> CoreSettings:
        settings = self._settings
        return CoreSettings(
            instance=new_id(),
            boot_id=boot_id(),
            machine=machine_name(),
            version=__version__,
            started_at=started_at,
            manifest=None if settings.manifest is None else str(settings.manifest.absolute()),
            broker=address,
            stale_after_s=settings.stale_after_s,
            max_attempts=settings.max_attempts,
            claim_timeout_s=settings.claim_timeout_s,
            host_timeout_s=settings.host_timeout_s,
            sleep_grace_s=settings.sleep_grace_s,
            prefer_cuda_grace_s=settings.prefer_cuda_grace_s,
            window_bytes=settings.window_bytes,
            operator_key=operator_key,
            receipt_key=load_key(settings.state),
            request_window_s=settings.request_window_s,
            keep_results_s=settings.keep_unreferenced_days * DAY_S,
            trainers={**builtin_trainers(), **_schemas(self._own)},
            home_commands=self._home.enabled
            and (operator_key is None or self._home.unsigned_commands),
        )

    def _first_plan(self) -> list[Event]:
        """Read the manifest; with a faulty one and a ledger at hand, go on with the last good."""
        core = self._shell.core
        plan, problems = self._plan_file.first(
            core.known_trainers(), may_fall_back=len(core.world.book) > 0
        )
        events: list[Event] = [] if plan is None else [ManifestRead(plan)]
        return [*events, ManifestRefused(problems)] if problems else events


def _schemas(own: Mapping[str, OwnTrainer]) -> dict[str, dict[str, JsonValue]]:
    return {name: trainer.hyper_schema for name, trainer in own.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the coordinator: `python -m coordinator.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    keep_freed_memory()
    try:
        settings, broker, own, home = load(arguments).whole()
        access = open_access(broker, COORDINATOR, system_clock().wall_s)
        manager = Notifier.take(os.environ, os.getpid())
        accept = arguments.accept_ledger
        service = Service(settings, broker, access, own, manager, home, accept_ledger=accept)
    except (ConfigError, StorageError, OSError) as error:
        complain(plain(error))
        return 2 if isinstance(error, ConfigError) else 1
    on_signals({
        "SIGTERM": service.stop,
        "SIGINT": service.stop,
        "SIGHUP": lambda: service.mailbox.put(ReloadAsked()),
    })  # fmt: skip
    end_with_parent(service.stop)
    # The thread that reads the socket gives the interpreter up at every call of the system. At the
    # usual 5 ms until it gets it back, a busy core would hear a hundred messages a second.
    sys.setswitchinterval(SWITCH_S)
    spare_what_is_loaded()
    try:
        # What is durable is in the ledger; of what is not yet, everybody tells again.
        service.run(_say_ready_once(), partial(end_in_time, END_S, log))
    except ConfigError as error:
        complain(str(error))
        return 2
    return 0


def _say_ready_once() -> Callable[[], None]:
    said: list[bool] = []

    def say() -> None:
        if not said:
            said.append(True)
            announce({"event": "ready"}, "the coordinator is ready")

    return say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet coordinator", description=__doc__)
    add_options(parser)
    parser.add_argument("--state", type=Path, help="folder of the ledger and the artifact store")
    parser.add_argument("--manifest", type=Path, help="the plan")
    parser.add_argument("--ca", type=Path, help="folder of the CA, to renew hosts' certificates")
    parser.add_argument("--prefer-cuda-grace", type=float, help="seconds, overrides the manifest")
    parser.add_argument(
        "--accept-ledger", action="store_true", help="though it is empty or older than it was"
    )
    parser.add_argument("--no-metrics", action="store_true", help="whatever the file says")
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
