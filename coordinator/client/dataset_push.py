"""Sends a folder to the coordinator as a dataset: only what the fleet does not have yet."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from broker.errors import BadMessage, BadStream, ConfigError, LocalError
from broker.file_names import is_plain
from broker.programs.datasets import Layout, read_layout, write_layout
from broker.protocol import messages as m
from broker.stream.stream import chunk_size
from broker.system.machine import new_id
from broker.system.process import tune
from coordinator.client.client import OperatorClient
from coordinator.client.contact import NotDone
from coordinator.client.dataset_tree import PackReader, Planned, files_of, plan
from coordinator.client.pushing import Transfer, transmit
from coordinator.client.receiving import Coming, receive, verify

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Each blob has a connection of its own: what still comes of one would be taken for the next.
Connect = Callable[[], OperatorClient]


@dataclass(frozen=True, slots=True)
class PushedData:
    """A dataset that the fleet has; `sent_bytes` of its files were not there."""

    name: str
    digest: str
    size_bytes: int
    files: int
    sent_bytes: int

    @property
    def title(self) -> str:
        """How it is called in a manifest."""
        return f"{self.name}@{self.digest}"


class _PackGoneError(LocalError):
    """The fleet lacks a pack of an earlier version, which only a new plan replaces."""


def push_data(connect: Connect, name: str, folder: Path, transfer: Transfer) -> PushedData:
    """Send a folder as a dataset; `transfer` shows how far that is, see `ui.progress`.

    What a push before had sent when it was cut off is not sent again. Raises `ConfigError` for what
    no dataset may hold, `NotDone`, `Unreachable`, and `BadStream` for files that change meanwhile.
    """
    if not _NAME.fullmatch(name) or not is_plain(name):
        rule = "up to 64 of a-z, A-Z, 0-9, '.', '_', '-', a letter or digit first"
        raise ConfigError(f"{name!r} cannot be the name of a dataset: {rule}")
    tune()
    files = files_of(folder)
    total_bytes = sum(one.size_bytes for one in files)

    def planned(known: Layout | None) -> Planned:
        with transfer(f"{name}: hashing", total_bytes) as advance:
            return plan(files, known, advance)

    with connect() as client:
        rows: list[dict[str, Any]] = client.ask(m.AskDatasets(id=new_id()))["datasets"]
    found = planned(_layout(connect, [row for row in rows if row["name"] == name]))
    if len(found.layout.packs) > m.MAX_PACKS:  # of many versions, each with some packs of its own
        found = planned(None)
    digest = found.layout.digest()
    if known := _layout(connect, [row for row in rows if row["digest"] == digest]):
        found = Planned(known, found.packs)  # in the packs that it has, whatever it is called
    try:
        return _Push(name, found, connect).send(transfer)
    except _PackGoneError:
        return _Push(name, planned(None), connect).send(transfer)


def _layout(connect: Connect, rows: Sequence[dict[str, Any]]) -> Layout | None:
    """Return the layout of the last row's dataset; none without a row, or a usable layout."""
    if not rows:
        return None
    title, file = f"{rows[-1]['name']}@{rows[-1]['digest']}", io.BytesIO()
    try:
        with connect() as client:
            coming = _ask_layout(client, title)
            receive(client, coming, lambda: _ask_layout(client, title).artifact_id, file)
        verify(file, coming.artifact_id)
        return read_layout(file.getvalue())
    except (BadStream, NotDone):  # all of it is sent then
        return None


def _ask_layout(client: OperatorClient, title: str) -> Coming:
    data = client.ask(m.AskLayout(id=new_id(), name=title))
    try:
        return Coming.model_validate(data)
    except ValidationError:
        raise BadMessage("the answer makes no sense; is the coordinator of this version?") from None


class _Push:
    """One dataset on its way to the coordinator."""

    def __init__(self, name: str, planned: Planned, connect: Connect) -> None:
        layout = planned.layout
        try:
            data = write_layout(layout)
        except BadStream as objection:
            raise ConfigError(f"dataset {name}: {objection}") from None
        self._connect = connect
        self._layout = data
        self._packs = planned.packs
        self._offer = m.DataOffer(
            name=name, digest=layout.digest(), size_bytes=layout.size_bytes,
            files=len(layout.files), layout=m.Blob(hashlib.sha256(data).hexdigest(), len(data)),
            packs=tuple(m.Blob(*pack) for pack in layout.packs),
        )  # fmt: skip
        self._chunk_bytes = chunk_size(max(blob.size_bytes for blob in self._offer.blobs()))

    def send(self, transfer: Transfer) -> PushedData:
        """Send what the coordinator lacks, blob by blob; return what is known then."""
        offer, sent = self._offer, dict[str, int]()
        ours = [one for one in offer.blobs() if one == offer.layout or one[0] in self._packs]
        ends = dict(zip((one[0] for one in ours), accumulate(one[1] for one in ours), strict=True))
        with transfer(offer.name, max(ends.values())) as advance:
            shown = 0
            while True:
                with self._connect() as client:
                    if (lacks := self._ask(client)) is None:
                        break
                    if lacks not in ends:
                        why = "the fleet lacks a part of an earlier version; push again"
                        raise _PackGoneError(why)
                    if lacks in sent:
                        why = "what was sent is gone from the store; the coordinator's log says"
                        raise BadStream(why)
                    blob = next(one for one in ours if one.artifact_id == lacks)
                    advance(ends[lacks] - blob.size_bytes - shown)
                    self._transmit(client, blob, advance)
                sent[lacks], shown = blob.size_bytes, ends[lacks]
        sent.pop(offer.layout.artifact_id, None)  # it holds no bytes of files
        return PushedData(
            offer.name, offer.digest, offer.size_bytes, offer.files, sum(sent.values())
        )  # fmt: skip

    def _ask(self, client: OperatorClient) -> str | None:
        """Offer the dataset; return the id of the first blob that the coordinator lacks."""
        ask = m.AskData(id=new_id(), offer=self._offer, chunk_bytes=self._chunk_bytes)
        lacks: str | None = client.ask(ask)["lacks"]
        return lacks

    def _transmit(
        self, client: OperatorClient, blob: m.Blob, advance: Callable[[int], object]
    ) -> None:
        def send(read: Callable[[int, int], bytes]) -> None:
            transmit(
                client, blob.size_bytes, self._chunk_bytes, read,
                lambda: self._ask(client) != blob.artifact_id, advance,
            )  # fmt: skip

        if blob == self._offer.layout:
            send(lambda offset, length: self._layout[offset : offset + length])
            return
        with PackReader(self._packs[blob.artifact_id]) as pack:
            send(pack.read)
