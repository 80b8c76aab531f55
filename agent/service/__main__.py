"""The agent as a program: its connection, its threads, its trainers' processes around a `Shell`.

One thread decides. Measuring, bundling and hashing may take seconds, so each is done on a worker
thread that answers by the mailbox.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from agent.core.core_settings import CorePart, CoreSettings
from agent.core.effects import Look, Probed, Shutdown
from agent.core.reactor import Core
from agent.host.capability import Measurer, probe_capability, suspended_s
from agent.host.data_folder import DataFolder
from agent.host.usage import Eyes, in_words
from agent.process.orphans import end_orphans
from agent.programs.parts import open_parts
from agent.programs.settings import UNCHECKED, ProgramSettings
from agent.service.settings import AgentSettings, load
from agent.service.shell import Event, Shell, Surroundings
from agent.service.status import Contact
from agent.service.trainers import Trainers
from agent.spool.spool import Spool
from broker.client.access import AGENT, Access, open_access
from broker.client.link import Link
from broker.client.mailbox import Mailbox, feed
from broker.client.options import add_options
from broker.clock import earliest
from broker.errors import ConfigError, plain
from broker.pki.renewal import Certificate
from broker.protocol.link_events import Connected, Disconnected, Outgoing
from broker.protocol.messages import Capability
from broker.protocol.topics import Topics
from broker.system.address import IS_IT_THERE
from broker.system.files import FolderLock
from broker.system.logs import announce, setup
from broker.system.machine import boot_id, new_id, system_clock
from broker.system.process import end_in_time, end_with_parent, on_signals, tune
from broker.system.settings import BrokerSettings, expanded
from broker.system.systemd import Notifier
from broker.system.trainer_settings import OwnTrainer
from broker.system.trainer_version import Versions
from broker.wrapping import complain

log = logging.getLogger("fleet.agent")

END_S: Final = 30.0  # when nothing runs any more; a service manager waits for longer
TRAINER_WAIT_S: Final = 10.0


class Service:
    """Everything that one agent has open.

    Raises `ConfigError` when a setting is unusable, OSError when the state folder is.
    """

    def __init__(
        self,
        settings: AgentSettings,
        broker: BrokerSettings,
        access: Access,
        own: Mapping[str, OwnTrainer],
        manager: Notifier,
        programs: ProgramSettings | None = None,
    ) -> None:
        """Load the spool, end what an earlier agent left behind, prepare the link.

        `access` is the way to the broker, `own` are the trainers of this host's configuration,
        `manager` is who started this program.
        """
        programs = programs or ProgramSettings()
        self._settings = settings
        self._manager = manager
        self._own = own
        topics = Topics(broker.topic_root)
        rng = random.Random()  # noqa: S311 - jitter, no secret
        self._lock = FolderLock(settings.state, "agent")
        identity = None if access.identity is None else access.identity.folder
        if programs.signed_by and identity is None:
            log.warning("%s; `fleet join` gets one", UNCHECKED)
        now, host = system_clock(), settings.host
        self._contact = Contact(settings.state, now, host, identity, settings.data)
        self._spool = Spool(settings.state)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="fleet-builder")
        self._parts = open_parts(
            settings.state, programs, identity, system_clock,
            lambda build: self._builder.submit(_telling, build),
        )  # fmt: skip
        end_orphans(self._spool.work_folders())
        self._workers = ThreadPoolExecutor(3, thread_name_prefix="fleet-worker")
        # Neither a heartbeat nor the owner's word waits until a bundle is made, and what runs does
        # not wait for a driver or a disk.
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="fleet-owner")
        self._eyes = Eyes(settings.state)
        self._data = DataFolder(settings.data)
        self.mailbox: Mailbox[Event] = Mailbox()
        self._versions = Versions(own)
        self._measurer = Measurer(
            self._data, self.mailbox.put, settings.state, self._versions, self._parts.held
        )
        core = self._make_core(topics, rng)
        self._trainers = Trainers(
            core, settings, own, self._spool, self._parts, self._data, self.mailbox
        )
        self._link = Link(
            access.link(topics.client_id(settings.host), topics.for_agent(settings.host)),
            feed(self.mailbox, topics),
            self._will,
        )
        self._certificate: Certificate | None = None
        if access.identity is not None:
            self._certificate = Certificate(access.identity, topics, self._link.publish, rng)
        self._capability: Capability | None = None
        # Said once, and only before the first connection: later it is the broker that is away.
        join = "; a host of a fleet with certificates is to `fleet join` it first"
        self._advice = IS_IT_THERE + ("" if access.identity else join)
        self._shell = Shell(core, self._surroundings(topics), self._spool, self._parts)

    def _surroundings(self, topics: Topics) -> Surroundings:
        return Surroundings(
            topics=topics,
            publish=self._link.publish,
            put=self.mailbox.put,
            background=self._in_background,
            measure=self._measurer.ask,
            look=self._look,
            start=self._trainers.start,
            suspended_s=suspended_s,
        )

    def run(self, ready: Callable[[], None], ending: Callable[[], None] = lambda: None) -> None:
        """Serve until the core says `Leave`; `ready` is called when the host is online.

        `ending` is called when it is to end, and no trainer is given more time.
        """
        self._link.start()
        self._in_background(self._probe)
        pending = {"connected", "probed"}
        # A broker that is not there yet is no reason to be started again: the loop runs, so ready.
        self._manager.ready("connecting to the broker")
        try:
            while not self._shell.left:
                deadline_s = self._next_deadline()
                mono_s = system_clock().mono_s
                timeout_s = None if deadline_s is None else max(0.0, deadline_s - mono_s)
                events = self.mailbox.take(self._manager.wait_s(timeout_s, mono_s))
                for event in events:
                    self._note(event, pending, ready)
                renewed = self._renewed(events)
                self._shell.turn([*events, *renewed], system_clock())
                self._manager.alive(system_clock().mono_s)
        finally:
            ending()
            self._end()

    def longest_end_s(self) -> float:
        """Return for how long trainers and handovers may be waited for after `Shutdown`."""
        core = self._shell.core.state.settings
        return core.stop_grace_s + core.leave_grace_s + core.handover_grace_s

    def _next_deadline(self) -> float | None:
        renewal_s = None if self._certificate is None else self._certificate.next_deadline()
        return earliest(self._shell.next_deadline(), renewal_s)

    def _renewed(self, events: Sequence[Event]) -> list[Event]:
        """See to the certificate; a new one's end is announced with the capability."""
        if self._certificate is None or not self._certificate.turn(events, system_clock()):
            return []
        return [] if self._capability is None else [Probed(self._stated(self._capability))]

    def _in_background(self, work: Callable[[], object]) -> None:
        self._workers.submit(_telling, work)

    def _stated(self, capability: Capability) -> Capability:
        """Add what may change while this agent runs."""
        ends = None if self._certificate is None else self._certificate.expires_at
        return capability.with_versions(self._versions.known).model_copy(
            update={
                "certificate_expires_at": ends,
                "data_id": self._data.known,
                "holdings": self._parts.held(),
                "programs": self._parts.programs.allowed(),
            }
        )

    def _will(self, session: str) -> Outgoing:
        return self._shell.will(session)

    def _note(self, event: Event, pending: set[str], ready: Callable[[], None]) -> None:
        if isinstance(event, Disconnected):
            log.warning("not connected: %s; trying again", event)
            self._contact.tell(system_clock(), event)
            if self._advice and not event.answered:
                log.warning("%s", self._advice)
                self._advice = ""
            self._manager.status(f"not connected: {event}")
            return
        if isinstance(event, Shutdown):
            self._manager.stopping()
        if isinstance(event, Connected):
            self._advice = ""
            self._contact.tell(system_clock(), event)
            log.info("connected to the broker as %s", self._settings.host)
            self._manager.status(f"connected to the broker as {self._settings.host}")
        name = {Connected: "connected", Probed: "probed"}.get(type(event), "")
        if name in pending:
            pending.discard(name)
            if not pending:
                ready()

    def _end(self) -> None:
        self._trainers.stop()
        for child in self._shell.children():
            child.send_signal(kill=True)
        for child in self._shell.children():
            child.wait(TRAINER_WAIT_S)
        self._trainers.close()
        goodbye = self._shell.goodbye()
        self._link.stop([] if goodbye is None else [goodbye])
        self._measurer.close()
        self._looker.shutdown(wait=False, cancel_futures=True)
        # A bundle that is being made: the next agent must not find its file half written.
        self._parts.programs.stop()
        for workers in (self._workers, self._builder):
            workers.shutdown(wait=True, cancel_futures=True)
        self._lock.release()
        self._manager.close()

    def _make_core(self, topics: Topics, rng: random.Random) -> Core:
        """Return a core that takes over what an earlier process of this agent has left."""
        left = self._spool.take_over(self._parts.checkpoints.was_at)
        for job_id, attempt in left.interrupted:
            text = "job %s, attempt %d: it ran when this agent was killed; its checkpoint is kept"
            log.warning(text, job_id[:12], attempt)
        core_settings = CoreSettings(
            **self._settings.part(CorePart),
            host=self._settings.host,
            instance=new_id(),
            boot_id=boot_id(),
        )
        core = Core(core_settings, topics, left, rng=rng, new_id=new_id)
        core.begin(system_clock())
        return core

    def _look(self, wanted: Look) -> None:
        def look() -> None:
            try:
                self.mailbox.put(self._eyes.look(idle=wanted.idle))
            except Exception:  # it is asked for again; until then what was seen last holds
                log.exception("the machine could not be looked at")

        self._looker.submit(look)

    def _probe(self) -> None:
        settings = self._settings
        capability = probe_capability(
            slots=settings.slots,
            cuda=settings.cuda,
            description=settings.description,
            own=self._own,
            work=settings.state,
        )
        leaving = self._shell.core.state.leaving  # a Ctrl-C ends the probe's processes, too
        if capability.gpu_problem and not leaving:
            log.warning("CUDA: %s", capability.gpu_problem)
        self._data.look()
        self._versions.look()
        capability = self._capability = capability.model_copy(update={"idle_by": in_words()})
        self.mailbox.put(Probed(self._stated(capability)))


def _telling(work: Callable[[], object]) -> None:
    """Do something on a worker thread; nobody else would hear of what it raises."""
    try:
        work()
    except Exception:
        log.exception("a fault of the agent's own: something is left undone")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent: `python -m agent.service --help`."""
    arguments = _parser().parse_args(argv)
    setup(arguments.log_level)
    tune()
    try:
        loaded = load(arguments)
        loaded.faults.of(lambda: _check_data(arguments.data))
        programs = loaded.faults.of(lambda: ProgramSettings.by_options(arguments))
        settings, broker = loaded.whole()
        settings, access = _who(arguments, settings, broker)
        manager = Notifier.take(os.environ, os.getpid())
        service = Service(settings, broker, access, loaded.own, manager, programs)
    except (ConfigError, OSError) as error:
        complain(plain(error))
        return 2 if isinstance(error, ConfigError) else 1

    def shut_down() -> None:
        # The thread that decides may hang in a disk itself.
        end_in_time(service.longest_end_s() + END_S, log)
        service.mailbox.put(Shutdown())

    # SIGBREAK: Windows' Ctrl-Break, and a console that is closed.
    on_signals(dict.fromkeys(("SIGTERM", "SIGINT", "SIGBREAK"), shut_down))
    end_with_parent(shut_down)
    ready = {"event": "ready", "host": settings.host}
    service.run(
        lambda: announce(ready, f"the agent of {settings.host} is ready"),
        # What is not bundled by then is kept; the next agent bundles it.
        partial(end_in_time, END_S, log),
    )
    log.info("the agent of %s has ended", settings.host)
    return 0


def _check_data(named: str | None) -> None:
    """Raise `ConfigError` for a folder of the command line's that is not there.

    One of the file's may be a disk that is yet to be mounted: the agent starts, and says so.
    """
    if named is not None and not expanded(Path(named)).is_dir():
        raise ConfigError(
            f"--data {named}: there is no such folder; name that of the prepared data"
        )


def _who(
    arguments: argparse.Namespace, settings: AgentSettings, broker: BrokerSettings
) -> tuple[AgentSettings, Access]:
    """Return the settings and the way to the broker; a certificate's name is the host's."""
    named = settings.host if "host" in settings.model_fields_set else None
    access = open_access(broker, AGENT, system_clock().wall_s, named)
    if access.identity is not None and named is None:
        settings = AgentSettings.by_options(arguments, host=access.identity.name)
    return settings, access


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fleet agent", description=__doc__)
    add_options(parser)
    AgentSettings.add_options(parser)
    parser.add_argument("--log-level", default=os.environ.get("FLEET_LOG_LEVEL", "INFO"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
