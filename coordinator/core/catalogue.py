"""The programs and datasets that the fleet has: which blobs, jobs and layouts belong to them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import (
    Blob,
    DataOffer,
    Dataset,
    ProgramOffer,
    PushKind,
    TrainerInfo,
)
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec


def programs(world: World) -> Iterator[ProgramOffer]:
    """Yield the programs, the newest of a name last."""
    offers = (record.offer for record in world.pushed.values())
    return (offer for offer in offers if isinstance(offer, ProgramOffer))


def datasets(world: World) -> Iterator[DataOffer]:
    """Yield the datasets, the newest of a name last."""
    offers = (record.offer for record in world.pushed.values())
    return (offer for offer in offers if isinstance(offer, DataOffer))


def lacking(world: World, offer: ProgramOffer | DataOffer) -> Iterator[Blob]:
    """Yield the blobs that are not stored, in the order in which they are pushed."""
    return (blob for blob in offer.blobs() if blob.artifact_id not in world.stored)


def known_programs(world: World) -> dict[str, TrainerInfo]:
    """Return each program as a trainer, by `NAME@DIGEST`, the newest of a name last."""
    return {one.title: one.trainer for one in programs(world)}


def known_datasets(world: World) -> dict[str, Dataset]:
    """Return each dataset by `NAME@DIGEST`, the newest of a name last."""
    return {one.title: _dataset(one) for one in datasets(world)}


def program_of(world: World, spec: JobSpec) -> ProgramOffer | None:
    """Return a job's program; none: its trainer is a host's own, or the program was removed."""
    title = f"{spec.model}@{spec.program_digest()}"
    return next((one for one in programs(world) if one.title == title), None)


def data_of(world: World, spec: JobSpec) -> tuple[Dataset, ...]:
    """Return a job's datasets with the layouts that they have now.

    A dataset that was removed and pushed again may have come in other packs.
    """
    return tuple(_renewed(world, one) for one in spec.data)


def _renewed(world: World, dataset: Dataset) -> Dataset:
    there = [_dataset(one) for one in _with_digest(world, dataset.digest)]
    if not there or any(one.layout == dataset.layout for one in there):
        return dataset
    return there[-1].model_copy(update={"name": dataset.name})


def gone(world: World, spec: JobSpec) -> Dataset | None:
    """Return a dataset of a job that the fleet does not have any more; none if it has all."""
    return next((one for one in spec.data if not _with_digest(world, one.digest)), None)


def told_data(world: World, spec: JobSpec) -> dict[str, JsonValue]:
    """Return as `data` the titles of a job's datasets by what it calls them; empty: it has none."""
    found: dict[str, JsonValue] = {}
    for one in spec.data:
        names = " or ".join(offer.name for offer in _with_digest(world, one.digest))
        found[one.name] = f"{names}@{one.digest}"
    return {"data": found} if found else {}


def has_blob(world: World, spec: JobSpec, artifact_id: str) -> bool:
    """Whether a blob is of a dataset that a job reads."""
    return any(
        artifact_id == blob.artifact_id
        for one in spec.data
        for offer in _with_digest(world, one.digest)
        for blob in offer.blobs()
    )


def blobs(world: World, now: Now) -> set[str]:
    """Return what the clean-up must leave: blobs of what is known, and of what is coming."""
    for title, (_, until_s) in [*world.coming.items()]:
        if until_s < now.mono_s:
            del world.coming[title]
    offers = [record.offer for record in world.pushed.values()]
    offers += [offer for offer, _ in world.coming.values()]
    return {blob.artifact_id for offer in offers for blob in offer.blobs()}


def jobs_of(world: World, kind: PushKind, digest: str) -> list[Job]:
    """Return the jobs of a program, or those that read a dataset."""
    return [job for job in world.book.all() if digest in job.spec.digests(kind)]


def _dataset(offer: DataOffer) -> Dataset:
    return Dataset(
        name=offer.name, digest=offer.digest, size_bytes=offer.size_bytes,
        layout=offer.layout.artifact_id, layout_bytes=offer.layout.size_bytes,
    )  # fmt: skip


def _with_digest(world: World, digest: str) -> list[DataOffer]:
    """Return what was offered of a dataset: people may have pushed it under several names."""
    return [one for one in datasets(world) if one.digest == digest]
