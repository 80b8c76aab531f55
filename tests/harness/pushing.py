"""An operator pushes a program or a dataset to a coordinator, and asks for a job of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from tests.harness import datasets, programs
from tests.harness.coordinator import OPERATOR
from tests.harness.shell import Coordinator

TRAINERS: Final = {"gbt": m.TrainerInfo(hyper_schema={}, data=("prepared",))}
_ids = itertools.count()


@dataclass(frozen=True)
class Goods:
    """A program or a dataset: what is offered, its blobs, and a job of it."""

    kind: m.PushKind
    offer: m.ProgramOffer | m.DataOffer
    blobs: Sequence[bytes]
    job: Mapping[str, Any]


PROGRAM: Final = Goods(
    "program", programs.offer(), (programs.PARCEL,),
    {"name": "mine", "program": "vision", "parameters": {"lr": 0.1}},
)  # fmt: skip
DATASET: Final = Goods(
    "dataset", datasets.offer(), (*datasets.PACKS, datasets.LAYOUT),
    {"name": "mine", "model": "gbt", "mode": "oracle", "data": {"prepared": "cifar"}},
)  # fmt: skip


def new_id() -> str:
    """One that no request had before a restart either."""
    return f"asked-{next(_ids)}"


def push(
    fleet: Coordinator, offer: m.ProgramOffer | m.DataOffer = PROGRAM.offer, client: str = OPERATOR
) -> Any:
    """Somebody offers something; what is answered."""
    return asks(fleet, m.AskPush(id=new_id(), offer=offer, chunk_bytes=1024), client)


def asks(fleet: Coordinator, ask: m.AskPush, client: str = OPERATOR) -> Any:
    fleet.answers()
    fleet.handle(Incoming(fleet.topics.operator_request(client), m.encode(ask)))
    fleet.files()
    return fleet.answers()[0]


def sends(fleet: Coordinator, data: bytes = programs.PARCEL, client: str = OPERATOR) -> Any:
    """Send all of a blob; the last that its client hears."""
    for index in range(-(-len(data) // 1024)):
        piece = data[index * 1024 : (index + 1) * 1024]
        fleet.handle(Incoming(fleet.topics.push_chunk(client, index), piece))
    fleet.files()
    return [said for topic, said in fleet.sent if topic.host == client][-1]


def push_all(
    fleet: Coordinator, offer: m.ProgramOffer | m.DataOffer = PROGRAM.offer,
    blobs: Sequence[bytes] = PROGRAM.blobs, client: str = OPERATOR,
) -> list[bytes]:  # fmt: skip
    """Push until it is known; the blobs that were asked for, in order."""
    by_id = {datasets.sha256(data): data for data in blobs}
    sent = []
    while (lacks := push(fleet, offer, client).data["lacks"]) is not None:
        sent.append(by_id[lacks])
        assert isinstance(sends(fleet, by_id[lacks], client), m.Stored)
    return sent


def pushed(folder: Path, goods: Goods = PROGRAM, **more: Any) -> Coordinator:
    fleet = Coordinator(folder, trainers=TRAINERS, **more)
    push_all(fleet, goods.offer, goods.blobs)
    return fleet


def known(fleet: Coordinator, kind: m.PushKind) -> list[dict[str, Any]]:
    """The row of each program or dataset that is listed."""
    rows: list[dict[str, Any]] = fleet.asks(m.AskPushed(id=new_id(), kind=kind)).data["pushed"]
    return rows


def remove(fleet: Coordinator, kind: m.PushKind, name: str) -> Any:
    return fleet.asks(m.AskRemove(id=new_id(), kind=kind, name=name))


def run(fleet: Coordinator, goods: Goods = PROGRAM, **more: Any) -> Any:
    """Somebody asks for a job of it."""
    return fleet.asks(m.AskRun(id=new_id(), job={**goods.job, **more}))
