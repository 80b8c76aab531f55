"""The parts that attempts need on this host: whether one is here, what it lacks, where it lies."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from agent.core.effects import Missing, Part
from agent.core.state import Run
from agent.programs.host_data import HostData
from agent.programs.parcels import Parcels, open_inputs
from agent.programs.programs import Programs
from agent.spool.checkpoints import Checkpoints
from agent.spool.fetched import Fetched
from broker.clock import Clock
from broker.programs.unusable import Unusable
from broker.protocol.messages import Assign
from broker.stream.stream import chunk_size


class Parts:
    """Where the parts lie. What may take long may be called on any thread.

    All methods raise OSError when the disk refuses.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        programs: Programs | None = None,
        data: HostData | None = None,
        inputs: Parcels | None = None,
    ) -> None:
        """An agent without `programs`, `data` or `inputs` takes no job that needs some."""
        self.checkpoints = checkpoints
        self.programs = programs
        self.data = data
        self.inputs = inputs

    def find(self, assign: Assign, part: Part, in_use: Collection[str]) -> Missing | None:
        """Return what a part lacks; none: it is here. An environment is made.

        `in_use` are the digests that attempts use; they do not make room for others. Raises
        `Unusable` or `BadStream` when it cannot be used here.
        """
        match part:
            case Part.PROGRAM:
                return self._lacks_program(assign)
            case Part.ENVIRONMENT if self.programs is not None and assign.program is not None:
                self.programs.prepare(assign.program.digest)
            case Part.DATA if self.data is not None:
                pack = self.data.missing(assign.data, in_use)
                return None if pack is None else _missing(*pack)
            case Part.INPUTS if self.inputs is not None:
                for one in assign.inputs:
                    if self.inputs.folder(one.artifact_id) is None:
                        return _missing(one.artifact_id, one.size_bytes)
            case Part.CHECKPOINT if kept := assign.checkpoint:
                if not self.checkpoints.is_here(assign.job_id, kept.attempt):
                    return Missing(kept.artifact_id, kept.size_bytes, kept.chunk_bytes)
            case _:
                raise Unusable("not-allowed")
        return None

    def install(
        self, assign: Assign, part: Part, artifact_id: str,
        early: Callable[[Missing], object] = lambda _: None,
    ) -> None:  # fmt: skip
        """Install what an attempt has fetched. Raises `BadStream` when it is not what was meant.

        `early` may be told what the part lacks then, before that is done.
        """
        key, checkpoint = (assign.job_id, assign.attempt), assign.checkpoint
        if part is Part.CHECKPOINT and checkpoint is not None:
            self.checkpoints.install(*key, artifact_id, checkpoint.attempt)
        elif part is Part.DATA and self.data is not None:
            self.data.install(*key, assign.data, artifact_id, lambda pack: early(_missing(*pack)))
        elif part is Part.INPUTS and self.inputs is not None:
            self.inputs.install(*key, artifact_id)
        elif self.programs is not None:
            self.programs.parcels.install(*key, artifact_id)

    def fetched(self, part: Part) -> Fetched:
        """Return where what is fetched of a part is on its way."""
        return self._fetched()[part]

    def give_up(self, job_id: str, attempt: int) -> None:
        """Forget what an attempt fetches, if it does."""
        for fetched in self._fetched().values():
            fetched.give_up(job_id, attempt)

    def folders(self, assign: Assign) -> dict[str, Path]:
        """Return where a trainer reads: `data.NAME` of datasets, `input.NAME` of inputs.

        Raises OSError when one is not here any more.
        """
        found: dict[str, Path | None] = {}
        if self.data is not None:
            found |= {f"data.{one.name}": self.data.folder(one.digest) for one in assign.data}
        if self.inputs is not None:
            found |= {
                f"input.{one.name}": self.inputs.folder(one.artifact_id) for one in assign.inputs
            }
        there = {name: folder for name, folder in found.items() if folder is not None}
        if gone := found.keys() - there:
            raise OSError(errno.ENOENT, f"{', '.join(sorted(gone))}: not here any more")
        return there

    def building(self, work: Callable[[], None]) -> None:
        """Do what may take half an hour, such as the installation of packages."""
        if self.programs is None:
            work()
        else:
            self.programs.building(work)

    def held(self) -> tuple[str, ...]:
        """Return the digests of the datasets and programs that are here, for the capability."""
        data = () if self.data is None else self.data.held()
        return data if self.programs is None else (*data, *self.programs.parcels.held())

    def collect(self, in_use: Collection[str], now_wall_s: float) -> None:
        """Keep what may be used again within its limits; nothing in use is deleted."""
        if self.programs is not None:
            self.programs.collect(in_use, now_wall_s)
        if self.data is not None:
            self.data.collect(in_use)
        if self.inputs is not None:
            self.inputs.collect(in_use, now_wall_s)

    def _lacks_program(self, assign: Assign) -> Missing | None:
        if self.programs is None:
            raise Unusable("not-allowed")
        is_here = self.programs.find(assign)
        program = assign.program
        return None if is_here or program is None else _missing(program.digest, program.size_bytes)

    def _fetched(self) -> Mapping[Part, Fetched]:
        found = {Part.CHECKPOINT: self.checkpoints.fetched}
        if self.programs is not None:
            found[Part.PROGRAM] = self.programs.parcels.fetched
        if self.data is not None:
            found[Part.DATA] = self.data.fetched
        if self.inputs is not None:
            found[Part.INPUTS] = self.inputs.fetched
        return found


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
    state: Path, limit_bytes: float, clock: Clock, checkpoints: Checkpoints, programs: Programs
) -> Parts:
    """Return the parts in an agent's folder; of each kind this much is kept. Raises OSError."""
    data = HostData(state / "data", limit_bytes, clock)
    return Parts(checkpoints, programs, data, open_inputs(state / "inputs", limit_bytes))
