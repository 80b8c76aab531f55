"""The coordinator as a program: its connection, its threads, its signals around a `Shell`.

One thread decides: it drains the mailbox and gives the shell its turns. Hashing a finished artifact
is done on a second thread, since a large one takes seconds.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from broker.access import COORDINATOR, Access, open_access
from broker.acl import Role
from broker.auth import OperatorKey
from broker.ca import Authority
from broker.clock import Randomness
from broker.disk import RealDisk, write_atomically
from broker.errors import ConfigError, StorageError
from broker.link import Link, LinkSettings, feed
from broker.lock import FolderLock
from broker.logs import setup
from broker.machine import boot_id, machine_name, new_id, system_clock
from broker.mailbox import Lane, Mailbox
from broker.parent import end_with_parent
from broker.settings import BrokerSettings
from broker.systemd import Notifier
from broker.topics import Topics
from broker.trainers import OwnTrainer, load_trainers
from broker.wire import Connected, Disconnected, Incoming, Outgoing
from coordinator import __version__
from coordinator.builtin import builtin_trainers
from coordinator.effects import ManifestRead, ManifestRefused, ReloadAsked
from coordinator.faces.face import Face
from coordinator.faces.homeassistant import HomeAssistant
from coordinator.faces.homeassistant_farewell import Farewell
from coordinator.joblog import JobLogs
from coordinator.ledger import FILE_NAME, Ledger
from coordinator.manifest import ManifestError, load_manifest
from coordinator.plan import Plan
from coordinator.renewal import Renewals
from coordinator.settings import CoordinatorSettings, HomeAssistantSettings
from coordinator.shell import DAY_S, Event, Retention, Schemas, Shell, Surroundings
from coordinator.store import Store
from coordinator.world import CoreSettings

log = logging.getLogger("fleet.coordinator")

LAST_GOOD: Final = "manifest.last-good.toml"
HOME_MEMORY: Final = "homeassistant.json"


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody on this machine asked the coordinator to end."""


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
    ) -> None:
        """Open the ledger and the store, read the manifest, prepare the link.

        `access` is the way to the broker; `own` are the trainers of the configuration, known before
        a host that has them has come; `manager` is who started this program.
        """
        self._home = home
        self._settings = settings
        self._manager = manager
        self._reloading = False
        self._own = own
        topics = Topics(broker.topic_root)
        rng = random.Random()  # noqa: S311 - jitter, no secret
        self._lock = FolderLock(settings.state, "coordinator")
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="fleet-hasher")
        self.mailbox: Mailbox[Event | Stop] = Mailbox()
        self._store = Store(settings.state)
        self._link = Link(
            LinkSettings(
                access.address,
                Role.COORDINATOR,
                topics.for_coordinator() + (topics.for_homeassistant() if home.enabled else ()),
                tls=access.tls,
            ),
            feed(self.mailbox),
            will=self._will,
            new_id=new_id,
            rng=rng,
        )
        self._renewals: Renewals | None = None
        if settings.ca is not None:
            authority = Authority(settings.ca)
            self._renewals = Renewals(
                authority, topics, self._link.publish, self._hasher.submit, system_clock
            )
        around = Surroundings(
            topics=topics,
            disk=RealDisk(),
            rng=rng,
            new_id=new_id,
            publish=self._link.publish,
            put=self.mailbox.put,
            background=self._hasher.submit,
            read_plan=self._read_plan,
            keep=self._keep,
        )
        now = system_clock()
        core_settings = self._core_settings(str(access.address), now.text(), broker.operator_key())
        self._shell = Shell(
            core_settings,
            around,
            Ledger(settings.state / FILE_NAME),
            self._store,
            JobLogs(settings.state / "logs", settings.max_log_bytes),
            now,
            Retention(
                events_s=settings.keep_events_days * DAY_S,
                artifacts_s=settings.keep_unreferenced_days * DAY_S,
            ),
            self._face(topics, rng, commands=core_settings.home_commands),
        )
        plan = self._first_plan()
        if plan is not None:
            self._shell.turn([ManifestRead(plan)], now)

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `Stop`; `ready` is called at the first connection."""
        self._link.start()
        # A broker that is not there yet is no reason to be started again: the loop runs, so ready.
        self._manager.ready("connecting to the broker")
        try:
            while self._turn(ready):
                self._manager.alive(system_clock().mono_s)
        finally:
            self._manager.stopping()
            self._hasher.shutdown(wait=False, cancel_futures=True)
            goodbye = self._shell.goodbye()
            self._link.stop([] if goodbye is None else [goodbye])
            self._shell.close()
            self._lock.release()
            self._manager.close()

    def _turn(self, ready: Callable[[], None]) -> bool:
        deadline_s = self._shell.next_deadline()
        mono_s = system_clock().mono_s
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - mono_s)
        events: list[Event] = []
        for event in self.mailbox.take(self._manager.wait_s(timeout_s, mono_s)):
            if isinstance(event, Stop):
                return False
            if isinstance(event, Connected):
                ready()
            self._tell_manager(event)
            if isinstance(event, Incoming) and self._renewals is not None:
                self._renewals.put(event)
            events.append(event)
        self._shell.turn(events, system_clock())
        if self._reloading and not any(isinstance(event, ReloadAsked) for event in events):
            self._reloading = False
            self._manager.ready()
        return True

    def _tell_manager(self, event: Event) -> None:
        match event:
            case Connected():
                self._manager.status("connected to the broker")
            case Disconnected():
                self._manager.status(f"not connected: {event.why}")
            case ReloadAsked():
                # What it reads comes by the mailbox: the next turn is the one that ends it.
                self._reloading = self._settings.manifest is not None
                if self._reloading:
                    self._manager.reloading(system_clock().mono_s)
            case ManifestRead(plan):
                self._manager.status(f"manifest reloaded: {len(plan.jobs)} jobs")
            case ManifestRefused():
                self._manager.status("the manifest has errors; the running plan is unchanged")

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
            manifest=None if settings.manifest is None else str(settings.manifest),
            broker=address,
            stale_after_s=settings.stale_after_s,
            max_attempts=settings.max_attempts,
            claim_timeout_s=settings.claim_timeout_s,
            host_timeout_s=settings.host_timeout_s,
            crash_grace_s=settings.crash_grace_s,
            sleep_grace_s=settings.sleep_grace_s,
            prefer_cuda_grace_s=settings.prefer_cuda_grace_s,
            window_chunks=settings.window_chunks,
            operator_key=operator_key,
            request_window_s=settings.request_window_s,
            trainers={**builtin_trainers(), **_schemas(self._own)},
            home_commands=self._home.enabled
            and (operator_key is None or self._home.unsigned_commands),
        )

    def _face(self, topics: Topics, rng: Randomness, *, commands: bool) -> Face | None:
        """Return what shows the fleet in Home Assistant, or removes it from there."""
        path = self._settings.state / HOME_MEMORY
        kept = path.read_bytes() if path.exists() else None
        try:
            if self._home.enabled:
                return HomeAssistant(topics, rng, __version__, kept, commands=commands)
            return None if kept is None else Farewell(topics, kept)
        except ValueError as error:
            log.error("%s: %s; its meters start at zero", path, error)
            if not self._home.enabled:
                return None
            return HomeAssistant(topics, rng, __version__, None, commands=commands)

    def _keep(self, memory: bytes) -> None:
        path, disk = self._settings.state / HOME_MEMORY, RealDisk()
        try:
            if memory:
                write_atomically(disk, path, memory)
            else:
                disk.unlink(path)
        except OSError as error:
            log.error("%s: %s; a restart will find older readings", path, error.strerror)

    def _first_plan(self) -> Plan | None:
        """Read the manifest; with a faulty one and a ledger at hand, go on with the last good."""
        try:
            return self._read_plan(self._shell.core.known_trainers())
        except ManifestError as error:
            last_good = self._settings.state / LAST_GOOD
            if not len(self._shell.core.world.book) or not last_good.is_file():
                raise
            log.error("%s\nthe manifest has errors; going on with the last good one", error)
            return load_manifest(last_good, self._shell.core.known_trainers())

    def _read_plan(self, trainers: Schemas) -> Plan | None:
        path = self._settings.manifest
        if path is None:
            return None
        plan = load_manifest(path, trainers)
        shutil.copyfile(path, self._settings.state / LAST_GOOD)
        return plan


def _schemas(own: Mapping[str, OwnTrainer]) -> dict[str, dict[str, JsonValue]]:
    return {name: trainer.hyper_schema for name, trainer in own.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the coordinator: `python -m coordinator.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    try:
        broker = BrokerSettings.load(
            arguments.config,
            {
                "url": arguments.broker,
                "topic_root": arguments.root,
                "identity": arguments.identity,
                "plain": arguments.plain or None,
            },
        )
        access = open_access(broker, COORDINATOR, system_clock().wall_s)
        settings = CoordinatorSettings.load(
            arguments.config,
            {
                "state": arguments.state,
                "manifest": arguments.manifest,
                "ca": arguments.ca,
                "prefer_cuda_grace_s": arguments.prefer_cuda_grace,
            },
        )
        home = HomeAssistantSettings.load(arguments.config)
        own = load_trainers(arguments.config, builtin_trainers(), programs=False)
        manager = Notifier.take(os.environ, os.getpid())
        service = Service(settings, broker, access, own, manager, home)
    except (ConfigError, StorageError, OSError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        sys.stderr.write(f"error: {told}\n")
        return 2 if isinstance(error, ConfigError) else 1
    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), lambda *_: _put(service, Stop()))
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: _put(service, ReloadAsked()))
    end_with_parent(lambda: _put(service, Stop()))
    service.run(_say_ready_once())
    return 0


def _put(service: Service, event: Stop | ReloadAsked) -> None:
    # The mailbox's lock is re-entrant, so a handler may put even while its thread is in `take`.
    service.mailbox.put(event, Lane.LOCAL)


def _say_ready_once() -> Callable[[], None]:
    said: list[bool] = []

    def say() -> None:
        if not said:
            said.append(True)
            sys.stdout.write('{"event":"ready"}\n')
            sys.stdout.flush()

    return say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet coordinator", description=__doc__)
    parser.add_argument("--broker", help="mqtts://HOST:PORT, or mqtt:// on this machine")
    parser.add_argument("--root", help="topic root")
    parser.add_argument("--identity", type=Path, help="folder of the certificate, for mqtts")
    parser.add_argument("--plain", action="store_true", help="no TLS beyond this machine")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--state", type=Path, help="folder of the ledger and the artifact store")
    parser.add_argument("--manifest", type=Path, help="the plan")
    parser.add_argument("--ca", type=Path, help="folder of the CA, to renew hosts' certificates")
    parser.add_argument("--prefer-cuda-grace", type=float, help="seconds, overrides the manifest")
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
