"""The parts that attempts need on this host: whether one is here, what it lacks, where it lies."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.core.effects import Missing, Part
from agent.core.state import Run
from agent.programs.host_data import HostData
from agent.programs.parcels import Parcels, open_inputs
from agent.programs.programs import Programs, open_programs
from agent.programs.settings import ProgramSettings
from agent.spool.checkpoints import Checkpoints
from agent.spool.fetched import Fetched
from broker.clock import Clock
from broker.protocol.messages import Assign
from broker.stream.stream import chunk_size


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the parts lie. What may take long may be called on any thread.

    All methods raise OSError when the disk refuses.
    """

    checkpoints: Checkpoints
    programs: Programs
    data: HostData
    inputs: Parcels

    def find(self, assign: Assign, part: Part, in_use: Collection[str]) -> Missing | None:
        """Return what a part lacks; none: it is here. An environment is made.

        `in_use` are the digests that attempts use; they do not make room for others. Raises
        `Unusable` or `BadStream` when it cannot be used here.
        """
        program = assign.program
        match part:
            case Part.PROGRAM if not self.programs.find(assign) and program is not None:
                return _missing(program.digest, program.size_bytes)
            case Part.ENVIRONMENT if program is not None:
                self.programs.prepare(program.digest)
            case Part.DATA if pack := self.data.missing(assign.data, in_use):
                return _missing(*pack)
            case Part.INPUTS:
                for one in assign.inputs:
                    if self.inputs.folder(one.artifact_id) is None:
                        return _missing(one.artifact_id, one.size_bytes)
            case Part.CHECKPOINT if kept := assign.checkpoint:
                if not self.checkpoints.is_here(assign.job_id, kept.attempt):
                    return Missing(kept.artifact_id, kept.size_bytes, kept.chunk_bytes)
        return None

    def install(
        self, assign: Assign, part: Part, artifact_id: str,
        early: Callable[[Missing], object] = lambda _: None,
    ) -> None:  # fmt: skip
        """Install what an attempt has fetched. Raises `BadStream` when it is not what was meant.

        `early` may be told what the part lacks then, before that is done.
        """
        key = (assign.job_id, assign.attempt)
        match part:
            case Part.PROGRAM:
                self.programs.parcels.install(*key, artifact_id)
            case Part.DATA:
                self.data.install(
                    *key, assign.data, artifact_id, lambda pack: early(_missing(*pack))
                )
            case Part.INPUTS:
                self.inputs.install(*key, artifact_id)
            case Part.CHECKPOINT if kept := assign.checkpoint:
                self.checkpoints.install(*key, artifact_id, kept.attempt)

    def fetched(self) -> Mapping[Part, Fetched]:
        """Return where what is fetched of each part is on its way."""
        return {
            Part.PROGRAM: self.programs.parcels.fetched,
            Part.DATA: self.data.fetched,
            Part.INPUTS: self.inputs.fetched,
            Part.CHECKPOINT: self.checkpoints.fetched,
        }

    def folders(self, assign: Assign) -> dict[str, Path]:
        """Return where a trainer reads: `data.NAME` of datasets, `input.NAME` of inputs.

        Raises OSError when one is not here any more.
        """
        found = {f"data.{one.name}": self.data.folder(one.digest) for one in assign.data}
        for one in assign.inputs:
            found[f"input.{one.name}"] = self.inputs.folder(one.artifact_id)
        there = {name: folder for name, folder in found.items() if folder is not None}
        if gone := found.keys() - there:
            raise OSError(errno.ENOENT, f"{', '.join(sorted(gone))}: not here any more")
        return there

    def held(self) -> tuple[str, ...]:
        """Return the digests of the datasets and programs that are here, for the capability."""
        return (*self.data.held(), *self.programs.parcels.held())

    def collect(self, in_use: Collection[str], now_wall_s: float) -> None:
        """Keep what may be used again within its limits; nothing in use is deleted."""
        self.programs.collect(in_use, now_wall_s)
        self.data.collect(in_use)
        self.inputs.collect(in_use, now_wall_s)


def in_use(runs: Iterable[Run]) -> frozenset[str]:
    """Return the digests of all that runs use: programs, datasets, inputs."""
    found: set[str] = set()
    for assign in (run.assign for run in runs):
        found.update(one.digest for one in assign.data)
        found.update(one.artifact_id for one in assign.inputs)
        if assign.program is not None:
            found.add(assign.program.digest)
    return frozenset(found)


def _missing(artifact_id: str, size_bytes: int) -> Missing:
    return Missing(artifact_id, size_bytes, chunk_size(size_bytes))


def open_parts(
    state: Path, settings: ProgramSettings, identity: Path | None, clock: Clock,
    building: Callable[[Callable[[], None]], object],
) -> Parts:  # fmt: skip
    """Return the parts in an agent's state folder; for the rest see `open_programs`."""
    limit_bytes = settings.cache_bytes()
    return Parts(
        Checkpoints(state),
        open_programs(settings, state, identity, clock, building),
        HostData(state / "data", limit_bytes, clock),
        open_inputs(state / "inputs", limit_bytes),
    )
