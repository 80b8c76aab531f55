"""Why a host does not take a job: codes with figures, and the rules about needs that yield them.

The coordinator asks `of_needs` and `of_trainer` when it assigns a job, by the host's newest
figures; the agent asks them again right before the start, by fresh ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pydantic import JsonValue

from broker.protocol.hyperschema import check_hyper
from broker.protocol.messages.values import AMOUNTS, Needs, Program, ProgramsAllowed, TrainerInfo

if TYPE_CHECKING:
    from broker.protocol.messages import Capability, Gpu

GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Reason:
    """What speaks against a host. Sizes are in GiB, durations in seconds, times RFC 3339."""

    code: str
    figures: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, JsonValue]:
        """Return it as JSON values."""
        return {"code": self.code, **self.figures}


def reason(code: str, **figures: JsonValue) -> Reason:
    """Return a reason with its figures."""
    return Reason(code, figures)


def from_dict(told: Mapping[str, JsonValue]) -> Reason:
    """Return a reason that an answer of the coordinator has."""
    return Reason(str(told["code"]), {key: told[key] for key in told if key != "code"})


class Room(NamedTuple):
    """How much there is of an amount, in bytes; none: unknown."""

    free: float | None
    total: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a host has. `cuda`: none without such a device, false where it may not be used."""

    trainers: Mapping[str, TrainerInfo]
    has_data: bool
    cores: int
    cuda: bool | None
    rooms: Mapping[str, Room]
    programs: ProgramsAllowed | None = None


class Measured(Protocol):
    """What was measured of a host: fresh figures, a heartbeat, or at first its capability."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The CUDA devices; none: as they were at first."""
        ...


def figures(
    capability: Capability,
    measured: Measured,
    devices: Container[int] | None = None,
    limits_gib: Mapping[str, float | None] | None = None,
) -> Figures:
    """Return what a host has, by what it is and by what was measured.

    `devices` are the CUDA devices that may be used (none: all of them); `limits_gib` bounds
    amounts by their names in `AMOUNTS`.
    """
    whole, now = (
        [gpu for gpu in gpus if devices is None or gpu.index in devices]
        for gpus in (capability.gpus, measured.gpus or capability.gpus)
    )
    limits_gib = limits_gib or {}
    rooms = {}
    for what, amount in AMOUNTS.items():
        free = _most(now if amount.of_gpu else [measured], amount.free, limits_gib.get(what))
        total = _most(whole if amount.of_gpu else [capability], amount.total, limits_gib.get(what))
        rooms[what] = Room(free, total)
    return Figures(
        trainers=capability.trainers,
        has_data=capability.data_id is not None,
        cores=capability.physical_cores,
        cuda=bool(whole) if capability.gpus else None,
        rooms=rooms,
        programs=capability.programs,
    )


def uses_cuda(needs: Needs, figures: Figures) -> bool:
    """Return whether a job gets a CUDA device of this host."""
    return bool(figures.cuda) and (needs.require_cuda or needs.prefer_cuda)


def of_needs(
    model: str, program: Program | None, needs: Needs, figures: Figures, *, brings_data: bool
) -> Iterator[Reason]:
    """Yield what a host lacks of what a job needs, whatever its hyperparameters.

    `brings_data`: the job names datasets, so that its trainer reads none of the host's own.
    """
    trainer = figures.trainers.get(model)
    if program is not None:
        yield from of_program(program, figures.programs)
    elif trainer is None:
        yield reason("no-trainer", said=model)
    elif trainer.telemetry and not figures.has_data and not brings_data:
        yield reason("no-data")
    if needs.require_cuda and not figures.cuda:
        yield reason("no-cuda" if figures.cuda is None else "cuda-off")
    if needs.min_cores is not None and figures.cores < needs.min_cores:
        yield reason("cores", needed=needs.min_cores, available=figures.cores)
    for what, amount in AMOUNTS.items():
        needed_gib = getattr(needs, amount.need)
        if needed_gib is None and figures.rooms[what].free is not None:
            needed_gib = amount.least_gib
        if needed_gib is not None and (not amount.of_gpu or uses_cuda(needs, figures)):
            yield from _short(what, needed_gib, figures.rooms[what])


def of_program(program: Program, allowed: ProgramsAllowed | None) -> Iterator[Reason]:
    """Yield why a host's owner does not let a program in, and what it lacks to run it."""
    if allowed is None:
        yield reason("no-programs")
        return
    if program.digest not in allowed.pinned:
        if not program.signers:
            if not allowed.unsigned:
                yield reason("not-pinned", said=program.digest)
        elif not {*program.signers} & {*allowed.signed_by}:
            yield reason("not-signed", said=", ".join(program.signers))
    if program.environment not in allowed.environments:
        yield reason("no-environment", said=program.environment)


def of_trainer(
    model: str, version: str, hyper: Mapping[str, JsonValue], trainers: Mapping[str, TrainerInfo]
) -> Iterator[Reason]:
    """Yield that the trainer is another version, and hyperparameters that it does not take."""
    trainer = trainers.get(model)
    if trainer is not None:
        if version and trainer.version != version:
            yield reason("other-version", key=version, said=trainer.version or "unknown")
        for key, message in check_hyper(hyper, trainer.hyper_schema, model):
            yield reason("hyper", key=key, said=message)


def _short(what: str, needed_gib: float, room: Room) -> Iterator[Reason]:
    """Yield that a host has less than is needed in all, or less than that is free now."""
    needed, (free, total) = needed_gib * GIB, room
    if total is not None and total < needed:
        yield reason(what, needed=needed_gib, available=_gib(total))
    elif free is None and total is None:
        yield reason(f"{what}-unknown", needed=needed_gib)
    elif free is not None and free < needed:
        known = {} if total is None else {"total": _gib(total)}
        yield reason(f"{what}-now", needed=needed_gib, available=_gib(free), **known)


def _most(sources: Iterable[object], name: str, limit_gib: float | None) -> float | None:
    """Return the largest figure of that name, within a limit; none where nobody tells."""
    told: list[float | None] = [getattr(one, name) for one in sources] if name else []
    most = max((one for one in told if one is not None), default=None)
    return most if most is None or limit_gib is None else min(most, limit_gib * GIB)


def _gib(size_bytes: float) -> float:
    return round(size_bytes / GIB, 3)
