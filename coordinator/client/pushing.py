"""Sends what the coordinator asks for of a program or a dataset, blob by blob."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Final

from broker.errors import BadStream, LocalError
from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.stream.stream import Sender, chunk_size
from broker.system.machine import new_id
from coordinator.client.client import OperatorClient
from coordinator.client.contact import Unreachable
from coordinator.client.dataset_tree import Found, PackReader

ASK_AGAIN_S: Final = 15.0  # longer than a sender waits before it sends again
STALL_S: Final = 60.0
_REMEDIES: Final = {
    "corrupt": "files changed while they were sent; push again",
    "no_room": "its disk has no room for it; make room, and push again",
    "disk": "its disk refuses; its log tells more, then push again",
}


# Each blob has a connection of its own: what still comes of one would be taken for the next.
Connect = Callable[[], OperatorClient]
Transfer = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


class PackGoneError(LocalError):
    """The fleet lacks a pack of an earlier version, which only a new plan replaces."""


class Sending:
    """A program or a dataset on its way to the coordinator.

    `files` are those that each blob is made of, by its id. What the fleet has already need not be
    there.
    """

    def __init__(
        self, offer: m.ProgramOffer | m.DataOffer, files: Mapping[str, Sequence[Found]],
        connect: Connect,
    ) -> None:  # fmt: skip
        self._offer = offer
        self._files = files
        self._connect = connect
        self._chunk_bytes = chunk_size(max(blob.size_bytes for blob in offer.blobs()))

    def send(self, transfer: Transfer) -> dict[str, int]:
        """Send what the coordinator lacks, until it lacks nothing; return the sizes of that, by id.

        `transfer` shows how far that is, see `ui.progress`. Raises `NotDone`, `Unreachable`,
        `PackGoneError`, and `BadStream` when the coordinator refuses a blob.
        """
        sent = dict[str, int]()
        ours = [one for one in self._offer.blobs() if one.artifact_id in self._files]
        ends = dict(zip((one[0] for one in ours), accumulate(one[1] for one in ours), strict=True))
        with transfer(self._offer.name, max(ends.values())) as advance:
            shown = 0
            while (blob := self._send_next(sent, advance, ends, shown)) is not None:
                sent[blob.artifact_id] = blob.size_bytes
                shown = ends[blob.artifact_id]
        return sent

    def _send_next(
        self, sent: dict[str, int], advance: Callable[[int], object], ends: dict[str, int],
        shown: int,
    ) -> m.Blob | None:  # fmt: skip
        """Send the first blob that is lacking and return it; none: there is none."""
        with self._connect() as client:
            lacks = self._ask(client)
            if lacks is None:
                return None
            blob = next(one for one in self._offer.blobs() if one.artifact_id == lacks)
            if lacks not in ends:
                raise PackGoneError("the fleet lacks a part of an earlier version; push again")
            if lacks in sent:
                raise BadStream("what was sent is gone from the store; the coordinator's log says")
            advance(ends[lacks] - blob.size_bytes - shown)
            with PackReader(self._files[lacks]) as pack:
                transmit(
                    client, blob.size_bytes, self._chunk_bytes, pack.read,
                    lambda: self._ask(client) != lacks, advance,
                )  # fmt: skip
            return blob

    def _ask(self, client: OperatorClient) -> str | None:
        """Offer it; return the id of the first blob that the coordinator lacks."""
        ask = m.AskPush(id=new_id(), offer=self._offer, chunk_bytes=self._chunk_bytes)
        lacks: str | None = client.ask(ask)["lacks"]
        return lacks


def transmit(
    client: OperatorClient, size_bytes: int, chunk_bytes: int, read: Callable[[int, int], bytes],
    is_there: Callable[[], bool], advance: Callable[[int], object],
) -> None:  # fmt: skip
    """Send what was offered as it is granted, until it is stored.

    `read` returns bytes by offset and length. `is_there` offers it again and returns whether the
    coordinator has it by now. Raises `BadStream` when the coordinator could not take it, and
    `Unreachable` when nothing is asked for.
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
                remedy = _REMEDIES[grant.reason]
                raise BadStream(f"the coordinator could not take it: {remedy}")
            chunks += sender.on_grant(grant, heard_s)
            done = round((sender.share or 0.0) * size_bytes)
            advance(done - shown)
            shown = done
        for chunk in chunks or sender.on_timer(time.monotonic()):
            client.send_chunk(chunk.index, read(chunk.offset, chunk.length))
