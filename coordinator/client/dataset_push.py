"""Sends a folder to the coordinator as a dataset: only what the fleet does not have yet."""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker.errors import BadStream, ConfigError
from broker.file_names import is_plain
from broker.programs.datasets import Layout, read_layout, write_layout
from broker.protocol import messages as m
from broker.system.machine import new_id
from broker.system.process import tune
from coordinator.client.contact import NotDone
from coordinator.client.dataset_tree import Found, Planned, files_of, plan
from coordinator.client.pushing import Connect, PackGoneError, Sending, Transfer
from coordinator.client.receiving import Coming, receive, verify

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
        ask = m.AskPushed(id=new_id(), kind="dataset")
        rows: list[dict[str, Any]] = client.ask(ask)["pushed"]
    found = planned(_layout(connect, [row for row in rows if row["name"] == name]))
    if len(found.layout.packs) > m.MAX_PACKS:  # of many versions, each with some packs of its own
        found = planned(None)
    digest = found.layout.digest()
    if known := _layout(connect, [row for row in rows if row["digest"] == digest]):
        found = Planned(known, found.packs)  # in the packs that it has, whatever it is called
    try:
        return _send(name, found, connect, transfer)
    except PackGoneError:
        return _send(name, planned(None), connect, transfer)


def _send(name: str, planned: Planned, connect: Connect, transfer: Transfer) -> PushedData:
    layout = planned.layout
    try:
        data = write_layout(layout)
    except BadStream as objection:
        raise ConfigError(f"dataset {name}: {objection}") from None
    offer = m.DataOffer(
        name=name, digest=layout.digest(), size_bytes=layout.size_bytes,
        files=len(layout.files), layout=m.Blob(hashlib.sha256(data).hexdigest(), len(data)),
        packs=tuple(m.Blob(*pack) for pack in layout.packs),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="fleet-push-") as aside:
        path = Path(aside) / "layout"
        path.write_bytes(data)
        files = {**planned.packs, offer.layout.artifact_id: [Found(path.name, path, len(data))]}
        sent = Sending(offer, files, connect).send(transfer)
    sent.pop(offer.layout.artifact_id, None)  # it holds no bytes of files
    return PushedData(name, offer.digest, offer.size_bytes, offer.files, sum(sent.values()))


def _layout(connect: Connect, rows: Sequence[dict[str, Any]]) -> Layout | None:
    """Return the layout of the last row's dataset; none without a row, or a usable layout."""
    if not rows:
        return None
    title, file = f"{rows[-1]['name']}@{rows[-1]['digest']}", io.BytesIO()

    def ask() -> Coming:
        return Coming.of(client.ask(m.AskLayout(id=new_id(), name=title)))

    try:
        with connect() as client:
            coming = ask()
            receive(client, coming, ask, file)
        verify(file, coming.artifact_id)
        return read_layout(file.getvalue())
    except (BadStream, NotDone):  # all of it is sent then
        return None
