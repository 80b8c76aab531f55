"""The agent's shell: feeds the core, starts and stops trainers, reads and writes the spool.

One thread decides. Measuring, bundling and hashing may take seconds, so each is done on a worker
thread that answers by the mailbox.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.capability import measure, physical_cores, probe_capability
from agent.command import trainer_command, trainer_environment
from agent.core import Core
from agent.effects import (
    BundleChecked,
    BundleFailed,
    BundleMade,
    CheckBundle,
    ClearJob,
    Effect,
    Leave,
    MakeBundle,
    Measure,
    Probed,
    SendChunk,
    ShellEvent,
    Shutdown,
    SignalTrainer,
    SpoolReport,
    StartTrainer,
    Tick,
    TrainerExited,
    TrainerLine,
    TrainerStarted,
    Warn,
)
from agent.settings import AgentSettings
from agent.spool import Spool
from agent.state import CoreSettings
from agent.supervisor import Trainer, end_orphan
from broker.address import parse_address
from broker.errors import BadMessage, ConfigError, FleetError
from broker.link import Link, LinkSettings, feed
from broker.lock import FolderLock
from broker.logs import setup
from broker.machine import boot_id, new_id, system_clock
from broker.mailbox import Lane, Mailbox
from broker.messages import Failed, Finished, encode
from broker.parent import end_with_parent
from broker.settings import BrokerSettings
from broker.topics import Topics
from broker.wire import Connected, Disconnected, Incoming, Outgoing

log = logging.getLogger("fleet.agent")

TRAINER_WAIT_S: Final = 10.0
LINE_RETRY_S: Final = 0.05

Event = Connected | Disconnected | Incoming | ShellEvent


class Service:
    """Everything that one agent has open.

    Raises `ConfigError` when a setting is unusable, OSError when the state folder is.
    """

    def __init__(self, settings: AgentSettings, broker: BrokerSettings) -> None:
        """Load the spool, end what an earlier agent left behind, prepare the link."""
        self._settings = settings
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        self._topics = Topics(broker.topic_root)
        self._lock = FolderLock(settings.state, "agent")
        self._spool = Spool(settings.state)
        for work in self._spool.work_folders():
            end_orphan(work)
        spooled = self._spool.load()
        self._spool.clear_work()
        self._trainers: dict[tuple[str, int], Trainer] = {}
        self._workers = ThreadPoolExecutor(3, thread_name_prefix="fleet-worker")
        self.mailbox: Mailbox[Event] = Mailbox()
        self._stopped = threading.Event()
        core_settings = CoreSettings(
            host=settings.host,
            instance=new_id(),
            boot_id=boot_id(),
            heartbeat_s=settings.heartbeat_s,
            stop_grace_s=settings.stop_grace_s,
            chunk_bytes=settings.chunk_bytes,
        )
        self._core = Core(core_settings, self._topics, spooled, rng=self._rng, new_id=new_id)
        self._core.begin(system_clock())
        self._link = Link(
            LinkSettings(
                parse_address(broker.url),
                f"fleet-{settings.host}",
                self._topics.for_agent(settings.host),
            ),
            feed(self.mailbox),
            will=lambda session: self._presence("lost", session),
            new_id=new_id,
            rng=self._rng,
        )

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until the core says `Leave`; `ready` is called when the host is online."""
        self._link.start()
        self._workers.submit(self._probe)
        pending = {"connected", "probed"}
        try:
            while not self._stopped.is_set():
                now = system_clock()
                deadline_s = self._core.next_deadline()
                timeout_s = None if deadline_s is None else max(0.0, deadline_s - now.mono_s)
                events = self.mailbox.take(timeout_s) or [Tick()]
                now = system_clock()
                for event in events:
                    self._note(event, pending, ready)
                    self._core.handle(event, now)
                    for effect in self._core.take():
                        self._perform(effect)
        finally:
            self._end()

    def _note(self, event: Event, pending: set[str], ready: Callable[[], None]) -> None:
        if isinstance(event, Disconnected):
            log.warning("not connected: %s", event.why)
            return
        if isinstance(event, Connected):
            log.info("connected to the broker as %s", self._settings.host)
        name = {Connected: "connected", Probed: "probed"}.get(type(event), "")
        if name in pending:
            pending.discard(name)
            if not pending:
                ready()

    def _end(self) -> None:
        for trainer in self._trainers.values():
            trainer.send_signal(kill=True)
        for trainer in self._trainers.values():
            trainer.wait(TRAINER_WAIT_S)
        session = self._core.state.session  # none: the broker has never heard of us
        self._link.stop([self._presence("goodbye", session)] if session else [])
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._lock.release()

    def _presence(self, reason: str, session: str) -> Outgoing:
        status = self._core.status("offline", reason, session)
        return Outgoing(self._topics.status(self._settings.host), encode(status), 1, retain=True)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Outgoing():
                self._link.publish(effect)
            case Measure():
                self._workers.submit(self._measure)
            case StartTrainer():
                self._start(effect)
            case SignalTrainer(job_id, attempt, kill):
                if (trainer := self._trainers.get((job_id, attempt))) is not None:
                    trainer.send_signal(kill=kill)
            case Warn(text):
                log.warning("%s", text)
            case Leave():
                self._stopped.set()
            case _:
                self._perform_on_disk(effect)

    def _perform_on_disk(
        self, effect: MakeBundle | CheckBundle | SpoolReport | ClearJob | SendChunk
    ) -> None:
        match effect:
            case MakeBundle(job_id, attempt):
                self._workers.submit(self._bundle, job_id, attempt)
            case CheckBundle(job_id, attempt, artifact_id):
                self._workers.submit(self._check, job_id, attempt, artifact_id)
            case SpoolReport(report):
                self._keep(report)
            case ClearJob(job_id, attempt):
                self._spool.clear(job_id, attempt)
            case SendChunk():
                self._send_chunk(effect)

    def _start(self, effect: StartTrainer) -> None:
        assign = effect.assign
        key = (assign.job_id, assign.attempt)
        work = self._spool.work(*key)
        threads = self._settings.threads or max(1, physical_cores() // self._core.slot_count())
        try:
            if self._settings.data is None:
                raise BadMessage("this agent has no data folder")
            command = trainer_command(assign, self._settings.data.resolve(), work, threads)
            trainer = Trainer(
                command,
                trainer_environment(os.environ, effect.gpu, threads),
                work,
                on_line=lambda line: self._put_line(TrainerLine(*key, line)),
                on_exit=lambda code: self._put_exit(key, code),
            )
        except (OSError, FleetError) as error:
            text = f"the trainer could not be started: {error}"
            self.mailbox.put(TrainerExited(*key, None, text))
            return
        log.info("job %s (%s), attempt %d: started", assign.name, assign.job_id[:12], key[1])
        self._trainers[key] = trainer
        self.mailbox.put(TrainerStarted(*key, trainer.pid))

    def _put_line(self, event: TrainerLine) -> None:
        # A full mailbox holds the trainer's pipe back; results must not be dropped.
        while not self.mailbox.put(event, Lane.BULK):
            if self._stopped.wait(LINE_RETRY_S):
                return

    def _put_exit(self, key: tuple[str, int], code: int) -> None:
        self._trainers.pop(key, None)
        self.mailbox.put(TrainerExited(*key, code))

    def _probe(self) -> None:
        settings = self._settings
        capability = probe_capability(
            data=settings.data,
            slots=settings.slots,
            cuda=settings.cuda,
            description=settings.description,
        )
        if capability.gpu_problem:
            log.warning("CUDA: %s", capability.gpu_problem)
        if capability.data_id is None:
            log.warning("no prepared data: this host can take no job until --data names some")
        self.mailbox.put(Probed(capability))

    def _measure(self) -> None:
        self.mailbox.put(measure(self._core.gpus()))

    def _bundle(self, job_id: str, attempt: int) -> None:
        try:
            artifact_id, size_bytes = self._spool.make_bundle(job_id, attempt)
        except (OSError, FleetError) as error:
            log.error("job %s: %s", job_id[:12], error)
            self.mailbox.put(BundleFailed(job_id, attempt, str(error)))
        else:
            self.mailbox.put(BundleMade(job_id, attempt, artifact_id, size_bytes))

    def _check(self, job_id: str, attempt: int, artifact_id: str) -> None:
        self.mailbox.put(BundleChecked(job_id, attempt, self._spool.is_whole(artifact_id)))

    def _keep(self, report: Finished | Failed) -> None:
        try:
            self._spool.keep(report)
        except OSError as error:
            log.error("spool: %s; the report is kept in memory only", error)

    def _send_chunk(self, effect: SendChunk) -> None:
        data = self._spool.read(effect.artifact_id, effect.offset, effect.length)
        if len(data) == effect.length:
            topic = self._topics.chunk(self._settings.host, effect.artifact_id, effect.index)
            self._link.publish(Outgoing(topic, data, 0))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent: `python -m agent.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    try:
        broker = BrokerSettings.load(
            arguments.config, {"url": arguments.broker, "topic_root": arguments.root}
        )
        settings = AgentSettings.load(
            arguments.config,
            {
                "state": arguments.state,
                "data": arguments.data,
                "host": arguments.host,
                "heartbeat_s": arguments.heartbeat,
                "slots": arguments.slots,
                "threads": arguments.threads,
            },
        )
        service = Service(settings, broker)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    for name in ("SIGTERM", "SIGINT"):
        # The mailbox's lock is re-entrant, so a handler may put while its thread is in `take`.
        signal.signal(getattr(signal, name), lambda *_: service.mailbox.put(Shutdown()))
    end_with_parent(lambda: service.mailbox.put(Shutdown()))
    service.run(lambda: _say_ready(settings.host))
    return 0


def _say_ready(host: str) -> None:
    sys.stdout.write(f'{{"event":"ready","host":"{host}"}}\n')
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet agent", description=__doc__)
    parser.add_argument("--broker", help="mqtt://HOST:PORT")
    parser.add_argument("--root", help="topic root")
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--state", type=Path, help="folder of the spool and the work folders")
    parser.add_argument("--data", type=Path, help="folder of the prepared data")
    parser.add_argument("--host", help="this host's name in the fleet")
    parser.add_argument("--heartbeat", type=float, help="seconds between heartbeats")
    parser.add_argument("--slots", type=int, help="jobs at once")
    parser.add_argument("--threads", type=int, help="threads of a trainer")
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
