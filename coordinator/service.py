"""The coordinator's shell: feeds the core, commits what it decides, performs what it asks for.

One thread decides: it drains the mailbox, hands each event to the core, commits all changes in one
transaction, then performs the effects in order. Hashing a finished artifact is done on a second
thread, since a large one takes seconds.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from broker.address import parse_address
from broker.clock import Now, backoff_s
from broker.errors import BadStream, ConfigError, FleetError, StorageError
from broker.link import Link, LinkSettings, feed
from broker.lock import FolderLock
from broker.logs import setup
from broker.machine import boot_id, machine_name, new_id, system_clock
from broker.mailbox import Lane, Mailbox
from broker.messages import OperatorResponse, encode
from broker.parent import end_with_parent
from broker.settings import BrokerSettings
from broker.topics import Topics
from broker.wire import Connected, Disconnected, Incoming, Outgoing
from coordinator import __version__
from coordinator.builtin import builtin_trainers
from coordinator.core import Core
from coordinator.effects import (
    AnswerWithEvents,
    AnswerWithLog,
    AppendIndex,
    AppendLog,
    DropPart,
    Effect,
    FinishPart,
    ManifestRead,
    ManifestRefused,
    OpenPart,
    PartFailed,
    PartOpened,
    PartStored,
    ReadManifest,
    ReloadAsked,
    SendChunk,
    ShellEvent,
    Tick,
    Warn,
    WriteChunk,
)
from coordinator.joblog import JobLogs
from coordinator.ledger import FILE_NAME, Ledger
from coordinator.manifest import ManifestError, load_manifest
from coordinator.plan import Plan
from coordinator.settings import CoordinatorSettings
from coordinator.store import Part, Store
from coordinator.world import CoreSettings

log = logging.getLogger("fleet.coordinator")

CLIENT_ID: Final = "fleet-coordinator"
LAST_GOOD: Final = "manifest.last-good.toml"
RELOAD_BASE_S: Final = 1.0
RELOAD_CAP_S: Final = 30.0
CHECKPOINT_CHUNKS: Final = 64
PARTS_KEPT_S: Final = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody on this machine asked the coordinator to end."""


Event = Connected | Disconnected | Incoming | ShellEvent | Stop


class Service:
    """Everything that one coordinator has open.

    Raises `ConfigError` or `StorageError` when the state folder, the ledger or the manifest cannot
    be used.
    """

    def __init__(self, settings: CoordinatorSettings, broker: BrokerSettings) -> None:
        """Open the ledger and the store, read the manifest, prepare the link."""
        self._settings = settings
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        self._topics = Topics(broker.topic_root)
        address = parse_address(broker.url)
        self._lock = FolderLock(settings.state, "coordinator")
        self._ledger = Ledger(settings.state / FILE_NAME)
        self._store = Store(settings.state)
        self._logs = JobLogs(settings.state / "logs", settings.max_log_bytes)
        self._parts: dict[str, Part] = {}
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="fleet-hasher")
        self.mailbox: Mailbox[Event] = Mailbox()
        now = system_clock()
        self._core_settings = CoreSettings(
            session="-",
            instance=new_id(),
            boot_id=boot_id(),
            machine=machine_name(),
            version=__version__,
            started_at=now.text(),
            manifest=None if settings.manifest is None else str(settings.manifest),
            broker=str(address),
            stale_after_s=settings.stale_after_s,
            max_attempts=settings.max_attempts,
            claim_timeout_s=settings.claim_timeout_s,
            host_timeout_s=settings.host_timeout_s,
            prefer_cuda_grace_s=settings.prefer_cuda_grace_s,
            window_chunks=settings.window_chunks,
        )
        self._core = self._new_core(now)
        plan = self._first_plan()
        if plan is not None:
            self._core.handle(ManifestRead(plan), now)
        self._link = Link(
            LinkSettings(address, CLIENT_ID, self._topics.for_coordinator()),
            feed(self.mailbox),
            will=lambda session: self._presence(self._core.will(session)),
            new_id=new_id,
            rng=self._rng,
        )

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `Stop`; `ready` is called at the first connection."""
        self._store.collect_parts(PARTS_KEPT_S, time.time())
        self._flush()
        self._link.start()
        try:
            while self._turn(ready):
                pass
        finally:
            self._hasher.shutdown(wait=False, cancel_futures=True)
            met = bool(self._core.world.session)  # otherwise the broker has never heard of us
            self._link.stop([self._presence(self._core.goodbye())] if met else [])
            for part in self._parts.values():
                part.close()
            self._logs.close()
            self._ledger.close()
            self._lock.release()

    def _turn(self, ready: Callable[[], None]) -> bool:
        now = system_clock()
        deadline_s = self._core.next_deadline()
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - now.mono_s)
        events = self.mailbox.take(timeout_s) or [Tick()]
        now = system_clock()
        for event in events:
            if isinstance(event, Stop):
                return False
            if isinstance(event, Connected):
                log.info("connected to the broker")
                ready()
            elif isinstance(event, Disconnected):
                log.warning("not connected: %s", event.why)
            self._core.handle(event, now)
        self._flush()
        return True

    def _flush(self) -> None:
        changes, effects = self._core.take()
        try:
            self._ledger.commit(changes)
        except StorageError as error:
            self._start_over(error)
            return
        for effect in effects:
            self._perform(effect)

    def _start_over(self, error: StorageError) -> None:
        """The ledger did not take a change: nothing of it happened. Go on from what it has."""
        old = self._core
        failures = 0
        while True:
            log.error("%s; going on from the ledger as it is", error)
            time.sleep(backoff_s(failures, RELOAD_BASE_S, RELOAD_CAP_S, self._rng))
            try:
                self._core = self._new_core(system_clock())
                break
            except StorageError as again:
                failures += 1
                error = again
        self._core.inherit(old)
        self.mailbox.put(Connected(old.world.session))

    def _new_core(self, now: Now) -> Core:
        return Core(
            self._core_settings,
            self._topics,
            self._ledger.load(),
            self._store.sizes(),
            rng=self._rng,
            new_id=new_id,
            now=now,
        )

    def _first_plan(self) -> Plan | None:
        """Read the manifest; with a faulty one and a ledger at hand, go on with the last good."""
        if self._settings.manifest is None:
            return None
        try:
            return self._read_manifest(self._settings.manifest)
        except ManifestError as error:
            last_good = self._settings.state / LAST_GOOD
            if not len(self._core.world.book) or not last_good.is_file():
                raise
            log.error("%s\nthe manifest has errors; going on with the last good one", error)
            return load_manifest(last_good, builtin_trainers())

    def _read_manifest(self, path: Path) -> Plan:
        trainers = {**builtin_trainers(), **self._core.announced_trainers()}
        plan = load_manifest(path, trainers)
        shutil.copyfile(path, self._settings.state / LAST_GOOD)
        return plan

    def _presence(self, status: Any) -> Outgoing:
        return Outgoing(self._topics.coordinator_status(), encode(status), 1, retain=True)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Outgoing():
                self._link.publish(effect)
            case WriteChunk() | OpenPart() | FinishPart() | DropPart() | AppendIndex():
                self._perform_on_store(effect)
            case AppendLog(job_id, attempt, line):
                self._logs.append(job_id, attempt, line)
            case SendChunk():
                self._send_chunk(effect)
            case ReadManifest(client, request_id):
                self._reload(client, request_id)
            case Warn(text):
                log.warning("%s", text)
            case _:
                self._answer(effect)

    def _perform_on_store(
        self, effect: WriteChunk | OpenPart | FinishPart | DropPart | AppendIndex
    ) -> None:
        match effect:
            case WriteChunk():
                self._write_chunk(effect)
            case OpenPart():
                self._open_part(effect)
            case FinishPart():
                if (part := self._parts.pop(effect.artifact_id, None)) is not None:
                    self._hasher.submit(self._finish_part, part, effect)
            case DropPart(artifact_id):
                if (part := self._parts.pop(artifact_id, None)) is not None:
                    part.discard()
            case AppendIndex(row):
                self._append_index(row)

    def _answer(self, effect: AnswerWithEvents | AnswerWithLog) -> None:
        if isinstance(effect, AnswerWithEvents):
            data: dict[str, JsonValue] = {
                **effect.data,
                "events": list(self._ledger.events(effect.job_id)),
            }
        else:
            lines, truncated = self._logs.tail(effect.job_id, effect.attempt, effect.lines)
            data = {
                "job_id": effect.job_id,
                "attempt": effect.attempt,
                "lines": [*lines],
                "truncated": truncated,
            }
        response = OperatorResponse(id=effect.request_id, ok=True, data=data)
        topic = self._topics.operator_response(effect.client)
        self._link.publish(Outgoing(topic, encode(response)))

    def _open_part(self, effect: OpenPart) -> None:
        if (earlier := self._parts.pop(effect.artifact_id, None)) is not None:
            earlier.close()
        try:
            part, have = self._store.open_part(
                effect.artifact_id, effect.size_bytes, effect.chunk_bytes
            )
        except FleetError as error:
            log.error("%s", error)
            self.mailbox.put(PartFailed(effect.artifact_id, str(error)))
            return
        self._parts[effect.artifact_id] = part
        self.mailbox.put(PartOpened(effect.artifact_id, have))

    def _write_chunk(self, effect: WriteChunk) -> None:
        part = self._parts.get(effect.artifact_id)
        if part is None:
            return
        try:
            part.write(effect.index, effect.data)
        except FleetError as error:
            log.error("%s", error)
            self._parts.pop(effect.artifact_id).close()
            self.mailbox.put(PartFailed(effect.artifact_id, str(error)))

    def _finish_part(self, part: Part, effect: FinishPart) -> None:
        try:
            info = self._store.finish(part, effect.model, effect.mode)
        except BadStream as error:
            part.close()
            log.warning("artifact %s: %s", effect.artifact_id[:12], error)
            self.mailbox.put(PartFailed(effect.artifact_id, str(error), corrupt=True))
        except StorageError as error:
            part.close()
            log.error("%s", error)
            self.mailbox.put(PartFailed(effect.artifact_id, str(error)))
        else:
            self.mailbox.put(PartStored(effect.artifact_id, info.size_bytes))

    def _append_index(self, row: dict[str, Any]) -> None:
        try:
            self._store.append_index(row)
        except StorageError as error:
            log.error("%s", error)

    def _send_chunk(self, effect: SendChunk) -> None:
        path = self._store.path_of(effect.artifact_id)
        try:
            if path is None:
                return
            with path.open("rb") as file:
                file.seek(effect.offset)
                data = file.read(effect.length)
        except OSError as error:
            log.error("%s: %s", path, error)
            return
        topic = self._topics.download_chunk(effect.client, effect.index)
        self._link.publish(Outgoing(topic, data, 0))

    def _reload(self, client: str | None, request_id: str) -> None:
        path = self._settings.manifest
        if path is None:
            log.warning("asked to reload, but there is no manifest")
            return
        try:
            plan = self._read_manifest(path)
        except ManifestError as error:
            log.error("%s\nthe manifest has errors; the running plan is unchanged", error)
            self.mailbox.put(ManifestRefused(error.problems, client, request_id))
        else:
            log.info("manifest reloaded: %d jobs", len(plan.jobs))
            self.mailbox.put(ManifestRead(plan, client, request_id))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the coordinator: `python -m coordinator.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    try:
        broker = BrokerSettings.load(
            arguments.config, {"url": arguments.broker, "topic_root": arguments.root}
        )
        settings = CoordinatorSettings.load(
            arguments.config,
            {
                "state": arguments.state,
                "manifest": arguments.manifest,
                "prefer_cuda_grace_s": arguments.prefer_cuda_grace,
            },
        )
        service = Service(settings, broker)
    except (ConfigError, StorageError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
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
    parser.add_argument("--broker", help="mqtt://HOST:PORT")
    parser.add_argument("--root", help="topic root")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--state", type=Path, help="folder of the ledger and the artifact store")
    parser.add_argument("--manifest", type=Path, help="the plan")
    parser.add_argument("--prefer-cuda-grace", type=float, help="seconds, overrides the manifest")
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
