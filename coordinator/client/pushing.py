"""Sends a program of one's own to the coordinator: packed, signed, only what is missing of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from broker.errors import BadStream
from broker.programs.packing import pack
from broker.programs.program_file import Program, read_program
from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.stream.stream import Sender, chunk_size
from broker.system.machine import new_id
from coordinator.client.client import OperatorClient
from coordinator.client.contact import Unreachable
from coordinator.manifest.builtin import builtin_trainers

ASK_AGAIN_S: Final = 15.0  # longer than a sender waits before it sends again
STALL_S: Final = 60.0
_REMEDIES: Final = {
    "corrupt": "files changed while they were sent; push again",
    "no_room": "its disk has no room for it; make room, and push again",
    "disk": "its disk refuses; its log tells more, then push again",
}


class NotTaken(BadStream):
    """The coordinator could not take what was sent; `reason` is that of a `Rejected`."""

    def __init__(self, reason: str) -> None:
        """Say why, and what to do."""
        super().__init__(f"the coordinator could not take it: {_REMEDIES.get(reason, reason)}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Pushed:
    """A program that the coordinator has. `sent`: its parcel was not there before."""

    name: str
    digest: str
    size_bytes: int
    signer: str
    sent: bool

    @property
    def title(self) -> str:
        """How it is called in a manifest."""
        return f"{self.name}@{self.digest}"


Transfer = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


def push(client: OperatorClient, folder: Path, transfer: Transfer) -> Pushed:
    """Send the program in `folder`; `transfer` shows how far that is, see `ui.progress`.

    It is signed where the client has a certificate. Raises `ConfigError` for a faulty program,
    `NotDone`, `Unreachable`, and `BadStream` when the coordinator refuses the parcel.
    """
    program = read_program(folder, builtin_trainers())
    with tempfile.TemporaryDirectory(prefix="fleet-push-") as aside:
        parcel = Path(aside) / "parcel.tar.zst"
        info = pack(folder, parcel)
        offer = _offer(client, program, info.artifact_id, info.size_bytes)
        with parcel.open("rb") as file, transfer(program.name, info.size_bytes) as advance:
            sent = _send(client, offer, file, advance)
    signer = next(iter(offer.program.signers), "")
    return Pushed(program.name, info.artifact_id, info.size_bytes, signer, sent)


def _offer(
    client: OperatorClient, program: Program, digest: str, size_bytes: int
) -> m.ProgramOffer:  # fmt: skip
    signatures: tuple[m.ProgramSignature, ...] = ()
    if client.identity is not None:
        from broker.programs.signatures import sign  # with a certificate alone: it loads 11 MiB

        signatures = (sign(client.identity.folder, program.name, digest),)
    return m.ProgramOffer(
        name=program.name,
        program=m.Program(
            digest=digest, size_bytes=size_bytes, signers=tuple(one.signer for one in signatures),
            environment=program.environment, resumable=program.resumable,
        ),
        hyper_schema=program.info(digest).hyper_schema,
        data=tuple(program.data),
        inputs=tuple(program.inputs),
        needs=m.Needs(**program.needs.model_dump()),
        signatures=signatures,
    )  # fmt: skip


def _send(
    client: OperatorClient, offer: m.ProgramOffer, file: IO[bytes], advance: Callable[[int], object]
) -> bool:  # fmt: skip
    """Send the parcel as it is granted; return whether anything had to be sent."""
    size_bytes = offer.program.size_bytes
    chunk_bytes = chunk_size(size_bytes)

    def is_there() -> bool:
        ask = m.AskPush(id=new_id(), offer=offer, chunk_bytes=chunk_bytes)
        data: dict[str, Any] = client.ask(ask)
        return data["lacks"] is None

    def read(offset: int, length: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    if is_there():
        return False
    transmit(client, size_bytes, chunk_bytes, read, is_there, advance)
    if not is_there():  # the coordinator knows it now
        raise BadStream("what was sent is gone from the store; the coordinator's log says")
    return True


def transmit(
    client: OperatorClient, size_bytes: int, chunk_bytes: int, read: Callable[[int, int], bytes],
    is_there: Callable[[], bool], advance: Callable[[int], object],
) -> None:  # fmt: skip
    """Send what was offered as it is granted, until it is stored.

    `read` returns bytes by offset and length. `is_there` offers it again and returns whether the
    coordinator has it by now. Raises `NotTaken`, and `Unreachable` when nothing is asked for.
    """
    sender = Sender(size_bytes, chunk_bytes)
    heard_s, asked_s, shown = time.monotonic(), time.monotonic(), 0
    while True:
        now_s = time.monotonic()
        advance(0)  # nothing may come for a while, which is shown
        if now_s - heard_s > STALL_S:
            raise Unreachable("answer", f"nothing was asked for in {STALL_S:g} s")
        if now_s - max(heard_s, asked_s) > ASK_AGAIN_S:
            asked_s = now_s
            if is_there():  # another client was quicker, or the last word was lost
                return
        due_s = sender.next_deadline()
        wait_s = 1.0 if due_s is None else min(1.0, max(0.0, due_s - now_s))
        chunks = []
        for topic, payload in client.messages(wait_s):
            if topic.kind is not Kind.PUSH_GRANT:
                continue
            heard_s = time.monotonic()
            grant = m.decode(m.GRANT, payload)
            if isinstance(grant, m.Stored):
                advance(size_bytes - shown)
                return
            if isinstance(grant, m.Rejected):
                raise NotTaken(grant.reason)
            chunks += sender.on_grant(grant, heard_s)
            done = round((sender.share or 0.0) * size_bytes)
            advance(done - shown)
            shown = done
        for chunk in chunks or sender.on_timer(time.monotonic()):
            client.send_chunk(chunk.index, read(chunk.offset, chunk.length))
