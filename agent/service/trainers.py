"""Starts trainers: where each works, its command, and what it and its end are reported as."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

from agent.core.effects import StartTrainer, TrainerExited, TrainerLine
from agent.core.reactor import Core
from agent.host.capability import physical_cores
from agent.host.data_folder import DataFolder
from agent.process.command import (
    Place,
    is_resumable,
    modules_of,
    reads_telemetry,
    trainer_command,
    trainer_environment,
)
from agent.process.supervisor import Starter, Trainer
from agent.programs.parts import Parts
from agent.programs.programs import Launch, metrics_line
from agent.service.settings import AgentSettings
from agent.service.shell import Event
from agent.spool.spool import Spool
from broker.client.mailbox import Lane, Mailbox
from broker.programs.datasets import PREPARED
from broker.protocol.messages import Assign
from broker.system.trainer_settings import OwnTrainer

LINE_RETRY_S: Final = 0.05
_PREPARED: Final = f"data.{PREPARED}"


class Trainers:
    """Starts a trainer for the core; what it says and how it ends come by the mailbox."""

    def __init__(
        self, core: Core, settings: AgentSettings, own: Mapping[str, OwnTrainer], spool: Spool,
        parts: Parts, data: DataFolder, mailbox: Mailbox[Event],
    ) -> None:  # fmt: skip
        """`own` are the trainers of this host's configuration."""
        self._core = core
        self._settings = settings
        self._own = own
        self._spool = spool
        self._parts = parts
        self._data = data
        self._mailbox = mailbox
        self._environment = dict(os.environ)  # which decodes each name and value at each look
        self._caches = settings.state.absolute() / "cache"
        self._starter = Starter()
        self._stopped = threading.Event()

    def start(self, effect: StartTrainer) -> tuple[Trainer, bool]:
        """Start a trainer; return it, and whether it resumes from a checkpoint.

        Raises OSError or `FleetError` when it cannot be started.
        """
        assign = effect.assign
        key = (assign.job_id, assign.attempt)
        resume = is_resumable(assign, self._own) and self._parts.checkpoints.begin(
            *key, assign.void_attempt
        )
        launch = self.launch(effect, resume=resume)
        trainer = Trainer(
            launch.command,
            launch.environment,
            self._spool.work(*key),
            on_line=lambda line: self._put_line(TrainerLine(*key, line)),
            on_exit=lambda code: self.ended(assign, code),
            starter=self._starter,
            modules=launch.modules,
            folder=launch.folder,
        )
        return trainer, resume

    def stop(self) -> None:
        """Wait no more for room in the mailbox: nobody empties it."""
        self._stopped.set()

    def close(self) -> None:
        """End what starts trainers; they have ended."""
        self._starter.close()

    def launch(self, effect: StartTrainer, *, resume: bool) -> Launch:
        """Return how to start a trainer. Raises `FleetError`, and OSError when its data is gone."""
        assign, data = effect.assign, self._settings.data
        folders = self._parts.folders(assign)
        threads = self._settings.threads or max(1, physical_cores() // self._core.slot_count())
        work = self._spool.work(assign.job_id, assign.attempt)
        checkpoint = self._parts.checkpoints.files(assign.job_id)
        if assign.program is not None:
            return self._parts.programs.launch(
                assign, work, checkpoint, effect.gpu, self._environment, threads, folders,
                resume=resume,
            )  # fmt: skip
        # Not `resolve`, which would ask a disk that may hang.
        place = Place(folders.get(_PREPARED, data and data.absolute()), work, checkpoint)
        return Launch(
            trainer_command(assign, self._own, place, threads, resume=resume),
            trainer_environment(self._environment, effect.gpu, threads, self._caches),
            work,
            modules_of(assign, self._own),
        )

    def _put_line(self, event: TrainerLine) -> None:
        # A full mailbox holds the trainer's pipe back; results must not be dropped.
        while not self._mailbox.put(event, Lane.BULK):
            if self._stopped.wait(LINE_RETRY_S):
                return

    def ended(self, assign: Assign, code: int) -> None:
        """Tell that a trainer has ended, and whether the data that it read has gone."""
        key = (assign.job_id, assign.attempt)
        if assign.program is not None:
            code = self._parts.programs.exit_code(code)
        if code == 0 and assign.program is not None:
            line = metrics_line(self._spool.work(*key) / "out")
            if line is not None:
                self._put_line(TrainerLine(*key, line))
        is_gone = False
        if code != 0 and reads_telemetry(assign, self._own) and not assign.data:
            # One that was told to end does not wait for a disk that hangs.
            told = self._stopped.is_set() or self._core.why_ending(*key)
            is_gone = (self._data.known if told else self._data.look()) is None
        self._mailbox.put(TrainerExited(*key, code, data_gone=is_gone))
