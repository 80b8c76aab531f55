"""Datasets that people push: taken in blob by blob, listed, removed.

The coordinator does not look into them: hosts check a layout, and each file, by their hashes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pydantic import JsonValue

from broker.clock import Now
from broker.protocol.messages import (
    AskData,
    AskDataRemove,
    AskDatasets,
    AskLayout,
    DataOffer,
    OperatorResponse,
)
from broker.protocol.topics import user_of
from coordinator.core import dataset_records, downloads, pushes
from coordinator.core.authorization import Data, refused
from coordinator.core.entries import Push
from coordinator.core.state import World
from coordinator.jobs.records import DatasetRecord, DatasetRemoved

MAX_DATASETS: Final = 100  # what is known of all of them fits into one answer
MAX_COMING: Final = 32
COMING_S: Final = 86_400.0  # for which what has come of a push is kept


def on_push(world: World, client: str, ask: AskData, now: Now) -> Data:
    """Ask for the first blob that is not stored; if there is none, the dataset is known."""
    offer = ask.offer
    if offer.title not in world.datasets and len(world.datasets) >= MAX_DATASETS:
        raise refused("datasets", most=MAX_DATASETS)
    for blob in offer.blobs():
        pushes.check_size(world, offer, *blob)
    lacking = next(dataset_records.lacking(world, offer), None)
    if lacking is None:
        world.coming.pop(offer.title, None)
        _keep(world, client, offer, now)
    else:
        _expect(world, offer, now)
        push = Push(client, offer, lacking.artifact_id)
        pushes.begin(world, push, lacking.size_bytes, ask.chunk_bytes, now)
    return {
        "name": offer.name,
        "digest": offer.digest,
        "lacks": None if lacking is None else lacking.artifact_id,
    }


def is_on_the_way(response: OperatorResponse) -> bool:
    """Whether this answer to a push says that some blob is still lacking."""
    data: Any = response.data
    return response.ok and data["lacks"] is not None


def _expect(world: World, offer: DataOffer, now: Now) -> None:
    """Keep what has come of a dataset for a while: its client may have to begin again."""
    world.coming.pop(offer.title, None)
    world.coming[offer.title] = (offer, now.mono_s + COMING_S)
    while len(world.coming) > MAX_COMING:
        del world.coming[next(iter(world.coming))]


def _keep(world: World, client: str, offer: DataOffer, now: Now) -> None:
    """Remember a dataset as the newest of its name; jobs go on with the layout that they have."""
    earlier = world.datasets.pop(offer.title, None)
    if earlier is not None and not any(dataset_records.lacking(world, earlier.offer)):
        offer = earlier.offer
    record = DatasetRecord(offer, now.text(), user_of(client))
    world.datasets[offer.title] = record
    world.remember(record)


def on_datasets(world: World, _client: str, _ask: AskDatasets, _now: Now) -> Data:
    """Return a row for each dataset, oldest first: who pushed it, who uses it, who holds it."""
    jobs = Counter(
        digest for job in world.book.all() for digest in {one.digest for one in job.spec.data}
    )
    rows = [_row(world, record, jobs[record.digest]) for record in world.datasets.values()]
    return {"datasets": [*rows]}


def _row(world: World, record: DatasetRecord, jobs: int) -> dict[str, JsonValue]:
    offer, holders = record.offer, _holders(world, record.digest)
    return {
        "name": offer.name,
        "digest": record.digest,
        "size_bytes": offer.size_bytes,
        "files": offer.files,
        "pushed_at": record.at,
        "pushed_by": record.who,
        "jobs": jobs,
        "hosts": [*holders[: pushes.MOST_NAMED]],
        "host_count": len(holders),
    }


def _holders(world: World, digest: str) -> list[str]:
    """Return the hosts that have said that they hold a dataset."""
    return [name for name, host in sorted(world.hosts.items()) if digest in host.holdings()]


def on_layout(world: World, client: str, ask: AskLayout, now: Now) -> Data:
    """Begin to send a dataset's layout."""
    offer = pushes.find(world.datasets.values(), ask.name, "no_dataset").offer
    blob = offer.layout
    if blob.artifact_id not in world.stored:
        raise refused("no_layout", name=offer.name)
    sent = downloads.begin(world, client, blob.artifact_id, blob.size_bytes, now)
    return {"name": offer.name, "digest": offer.digest, **sent}


def on_remove(world: World, _client: str, ask: AskDataRemove, _now: Now) -> Data:
    """Forget a dataset; what no other one has of it goes with the next clean-up."""
    record = pushes.find(world.datasets.values(), ask.name, "no_dataset")
    pushes.refuse_use("dataset_in_use", ask.name, dataset_records.jobs_of(world, record.digest))
    del world.datasets[record.offer.title]
    world.remember(DatasetRemoved(record.offer.name, record.digest))
    return {"name": record.offer.name, "digest": record.digest}
