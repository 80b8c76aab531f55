"""Opens the ledger of a state folder, unless it has lost jobs.

A small file beside the ledger holds the number of its newest event. It is written after each
commit, so it may lag behind, never lead: a ledger that ends earlier has lost its write-ahead log,
or is an old copy. A copy by `fleet backup` is known by its header, and is taken as it is.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Final

from broker.errors import StorageError
from broker.wrapping import quoted
from coordinator.ledger.database import RESTORE, header, is_live
from coordinator.ledger.ledger import FILE_NAME, Ledger
from coordinator.service.state_files import RECEIPT_KEY
from coordinator.store.store import BUNDLE, is_pushed

MARK: Final = "newest-event"
_DIGITS: Final = 20


def _marked(path: Path) -> int:
    """Return the number in the file; 0 when there is none, or it cannot be understood."""
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return 0


def _mark(path: Path, event: int) -> None:
    """Overwrite the number. It is not flushed: a disk that refuses it only makes it lag behind."""
    with contextlib.suppress(OSError):
        if not path.exists():
            path.touch()
        with path.open("r+b", buffering=0) as file:
            file.write(f"{event:0{_DIGITS}d}\n".encode())


def open_ledger(state: Path, *, accept: bool = False) -> Ledger:
    """Open or create the ledger, and return it.

    Raises `StorageError` with the remedy when it is empty, or ends too early, though a fleet with
    jobs was here; with `accept` such a ledger is taken as it is.
    """
    path, mark = state / FILE_NAME, state / MARK
    found, marked, traces = header(path), _marked(mark), _traces(state)
    if not found and (traces or marked) and not accept:
        raise _refusal(path, "is missing or empty", traces)
    ledger = Ledger(path, note=partial(_mark, mark))
    try:
        newest = ledger.newest_event()
        if is_live(found) and not accept:
            _check(path, newest, marked, traces)
    except BaseException:
        ledger.close()
        raise
    _mark(mark, newest)
    return ledger


def _check(path: Path, newest: int, marked: int, traces: list[str]) -> None:
    # A key alone shows nothing here: it is made at the first start, before there is a job.
    if newest < marked:
        what = f"ends with event {newest}, and the coordinator has written {marked}"
    elif newest == 0 and traces != [RECEIPT_KEY] and traces:
        what = "has no job"
    else:
        return
    raise _refusal(path, f"{what}; its -wal is gone, or it is an old copy", traces)


def _refusal(path: Path, what: str, traces: list[str]) -> StorageError:
    beside = f", though a fleet was here ({', '.join(traces)})" if traces else ""
    return StorageError(
        f"ledger {path}: {what}{beside}: {RESTORE}; to go on without what is lost, start once with "
        f"`fleet coordinator --accept-ledger --state {quoted(path.parent)}`"
    )


def _traces(state: Path) -> list[str]:
    """Return the names of what a fleet leaves in its state folder."""
    models = state / "models"
    found = {
        RECEIPT_KEY: (state / RECEIPT_KEY).exists(),
        # Programs and datasets may be pushed before there is a job.
        "models/": any(not is_pushed(one) for one in models.glob(f"*/*/{BUNDLE}")),
    }
    return [name for name, is_there in found.items() if is_there]
