"""The datasets that the fleet has: which blobs, jobs and layouts belong to them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import Blob, DataOffer, Dataset
from coordinator.core.state import World
from coordinator.jobs.jobs import Job
from coordinator.jobs.plan_entries import JobSpec
from coordinator.jobs.records import DatasetRecord


def lacking(world: World, offer: DataOffer) -> Iterator[Blob]:
    """Yield the blobs of a dataset that are not stored, in the order in which they are pushed."""
    return (blob for blob in offer.blobs() if blob.artifact_id not in world.stored)


def known(world: World) -> dict[str, Dataset]:
    """Return each dataset by `NAME@DIGEST`, the newest of a name last."""
    return {title: _dataset(record.offer) for title, record in world.datasets.items()}


def of_job(world: World, spec: JobSpec) -> tuple[Dataset, ...]:
    """Return a job's datasets with the layouts that they have now.

    A dataset that was removed and pushed again may have come in other packs.
    """
    return tuple(_renewed(world, one) for one in spec.data)


def _renewed(world: World, dataset: Dataset) -> Dataset:
    there = [_dataset(one.offer) for one in with_digest(world, dataset.digest)]
    if not there or any(one.layout == dataset.layout for one in there):
        return dataset
    return there[-1].model_copy(update={"name": dataset.name})


def gone(world: World, spec: JobSpec) -> Dataset | None:
    """Return a dataset of a job that the fleet does not have any more; none if it has all."""
    return next((one for one in spec.data if not with_digest(world, one.digest)), None)


def told(world: World, spec: JobSpec) -> dict[str, JsonValue]:
    """Return as `data` the titles of a job's datasets by what it calls them; empty: it has none."""
    found: dict[str, JsonValue] = {}
    for one in spec.data:
        names = " or ".join(record.offer.name for record in with_digest(world, one.digest))
        found[one.name] = f"{names}@{one.digest}"
    return {"data": found} if found else {}


def has_blob(world: World, spec: JobSpec, artifact_id: str) -> bool:
    """Whether a blob is of a dataset that a job reads."""
    return any(
        artifact_id == blob.artifact_id
        for one in spec.data
        for record in with_digest(world, one.digest)
        for blob in record.offer.blobs()
    )


def wanted(world: World, now: Now) -> set[str]:
    """Return what the clean-up must leave: blobs of datasets, and of those that are coming."""
    for title, (_, until_s) in [*world.coming.items()]:
        if until_s < now.mono_s:
            del world.coming[title]
    offers = [record.offer for record in world.datasets.values()]
    offers += [offer for offer, _ in world.coming.values()]
    return {blob.artifact_id for offer in offers for blob in offer.blobs()}


def _dataset(offer: DataOffer) -> Dataset:
    return Dataset(
        name=offer.name, digest=offer.digest, size_bytes=offer.size_bytes,
        layout=offer.layout.artifact_id, layout_bytes=offer.layout.size_bytes,
    )  # fmt: skip


def with_digest(world: World, digest: str) -> list[DatasetRecord]:
    """Return the records of a dataset: people may have pushed it under several names."""
    return [one for one in world.datasets.values() if one.digest == digest]


def jobs_of(world: World, digest: str) -> list[Job]:
    """Return the jobs that read a dataset."""
    return [
        job for job in world.book.all() if any(one.digest == digest for one in job.spec.data)
    ]  # fmt: skip
