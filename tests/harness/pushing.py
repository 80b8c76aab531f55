"""An operator pushes a program to a coordinator, and asks for a job of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from tests.harness import programs
from tests.harness.coordinator import OPERATOR
from tests.harness.shell import Coordinator


def push(fleet: Coordinator, client: str = OPERATOR, **more: Any) -> Any:
    """Somebody pushes; what is answered."""
    ask = m.AskPush(id=fleet.new_id(), offer=programs.offer(**more), chunk_bytes=1024)
    return pushes(fleet, ask, client)


def pushes(fleet: Coordinator, ask: m.AskPush, client: str = OPERATOR) -> Any:
    fleet.answers()
    fleet.handle(Incoming(fleet.topics.operator_request(client), m.encode(ask)))
    fleet.files()
    return fleet.answers()[0]


def sends(fleet: Coordinator, data: bytes = programs.PARCEL, client: str = OPERATOR) -> list[Any]:
    """Send all of a parcel; what is granted of it then."""
    fleet.sent.clear()
    for index in range(2):
        piece = data[index * 1024 : (index + 1) * 1024]
        fleet.handle(Incoming(fleet.topics.push_chunk(client, index), piece))
    fleet.files()
    return [said for topic, said in fleet.sent if topic.host == client]


def pushed(folder: Path, **more: Any) -> Coordinator:
    fleet = Coordinator(folder)
    assert not push(fleet, **more).data["is_there"]
    assert isinstance(sends(fleet)[-1], m.Stored)
    return fleet


def run(fleet: Coordinator, **more: Any) -> Any:
    """Somebody asks for a job of the program."""
    job = {"name": "mine", "program": "vision", "parameters": {"lr": 0.1}} | more
    return fleet.asks(m.AskRun(id=fleet.new_id(), job=job))
