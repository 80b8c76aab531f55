"""Receives what the coordinator sends a client by the chunk stream: artifacts, layouts."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import IO, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import BadMessage, BadStream
from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.stream.ranges import RangeSet
from broker.stream.stream import Complete, Receiver, WriteChunk
from coordinator.client.client import OperatorClient
from coordinator.client.contact import Unreachable

ASK_AGAIN_S: Final = 10.0
STALL_S: Final = 60.0


class Coming(BaseModel):
    """What the coordinator says it will send."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: m.Word
    artifact_id: m.ArtifactId
    size_bytes: int = Field(ge=1)
    chunk_bytes: int = Field(ge=1, le=m.MAX_CHUNK_BYTES)

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return what an answer says. Raises `BadMessage`: of it paths are made, none unread."""
        try:
            return cls.model_validate(data)
        except ValidationError:
            wrong = "the answer makes no sense; is the coordinator of this version?"
            raise BadMessage(wrong) from None


def receive(
    client: OperatorClient, coming: Coming, ask: Callable[[], Coming], file: IO[bytes],
    advance: Callable[[int], object] = lambda _: None, stall_s: float = STALL_S,
) -> None:  # fmt: skip
    """Write it into `file`; `advance(bytes)` is told of each chunk that is new.

    `ask` asks for it again. Raises `Unreachable` when nothing comes for `stall_s`, `BadStream` for
    another artifact, and OSError. What has come is yet to be checked by `verify`.
    """
    receiver = Receiver(coming.size_bytes, coming.chunk_bytes, RangeSet())
    heard_s = asked_s = time.monotonic()
    effects: list[Any] = list(receiver.ask(heard_s))
    while not any(isinstance(effect, Complete) for effect in effects):
        for effect in effects:
            if isinstance(effect, m.Grant):
                client.grant(effect)
        now_s = time.monotonic()
        advance(0)  # as `pushing.transmit`
        if now_s - heard_s > stall_s:
            wrong = f"nothing of the artifact came for {stall_s:g} s"
            raise Unreachable("answer", wrong, "try again")
        if now_s - max(heard_s, asked_s) > ASK_AGAIN_S:
            asked_s = now_s
            # One that was started again knows of no download; one that is away may return.
            with contextlib.suppress(Unreachable):
                if ask().artifact_id != coming.artifact_id:
                    raise BadStream(f"{coming.name} has got another artifact meanwhile; try again")
        due_s = receiver.next_deadline()
        wait_s = 1.0 if due_s is None else min(1.0, max(0.0, due_s - now_s))
        effects = []
        for topic, payload in client.messages(wait_s):
            if topic.kind is Kind.DOWNLOAD_CHUNK:
                heard_s = time.monotonic()
                effects += _write(receiver, topic.index, payload, file, advance, heard_s)
        effects += receiver.on_timer(time.monotonic())
    client.grant(m.Stored())


def _write(
    receiver: Receiver, index: int, payload: bytes, file: IO[bytes],
    advance: Callable[[int], object], now_s: float,
) -> list[Any]:  # fmt: skip
    try:
        effects = receiver.on_chunk(index, len(payload), now_s)
    except BadStream:
        return []
    for effect in effects:
        if isinstance(effect, WriteChunk):
            file.seek(effect.offset)
            file.write(payload[effect.begin : effect.end])
            advance(effect.end - effect.begin)
    return [*effects, *receiver.on_written(len(payload), now_s)]


def verify(file: IO[bytes], artifact_id: str) -> None:
    """Check what has come against the artifact's id. Raises `BadStream` where it differs."""
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(1 << 20):
        digest.update(data)
    if digest.hexdigest() != artifact_id:
        raise BadStream(
            "what came does not hash to the artifact's id; try again, and if it does so again, the "
            "stored one is damaged: run `fleet fsck` on the coordinator's machine"
        )
