"""Artifacts on their way from the coordinator to a browser: fetched once, kept for a while.

What comes is a stranger's: its sha256 is checked by whoever fetches, its archive is unpacked by
`broker.system.archive` alone, and of what it holds only the report's page is kept, bounded. The
page is drawn when somebody looks, by a process of its own; a trainer may bring one instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.errors import BadMessage, FleetError, LocalError
from broker.figures import is_figure
from broker.system.archive import Limits, unpack
from coordinator.ui.processes import REPORT_ENDS, draw

MAX_BYTES: Final = 16 * 1024**2  # of a report, and of its page
MAX_POINTS: Final = 2_000
KEPT_BYTES: Final = 2 * 1024**3
KEPT_REPORTS: Final = 200
UNPACK: Final = Limits(entries=1_000, total_bytes=1024**3)
AUTO_BYTES: Final = 64 * 1024**2  # a report is fetched unasked from an artifact up to this size
AT_ONCE: Final = 2

# fetch(job_id, attempt, target, on_bytes(done, total)) -> artifact_id; blocks. Attempt none: what
# the job has. It raises `FleetError` with what to do.
Fetch = Callable[[str, int | None, Path, Callable[[int, int], None]], str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """What a report tells. `page` is its own page, if it has one.

    `curve` has (epoch, training loss, validation loss): a trainer that is fast tells few of them.
    """

    curve: tuple[tuple[int, float | None, float | None], ...]
    best_epoch: int | None
    simulated: bool
    page: Path | None


def read_report(path: Path, page: Path | None) -> Report:
    """Return a report. Raises `BadMessage` when the file holds none, and OSError."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadMessage("the report in this artifact cannot be read")
    training = document.get("training")
    training = training if isinstance(training, dict) else {}
    best = training.get("best_epoch")
    return Report(
        _thinned(training.get("curve")),
        best if isinstance(best, int) else None,
        document.get("simulated") is True,
        page,
    )


def _thinned(curve: Any) -> tuple[tuple[int, float | None, float | None], ...]:
    points = curve if isinstance(curve, list) else []
    step = max(1, len(points) // MAX_POINTS)
    return tuple(
        (epoch, _loss(point[0]), _loss(point[1]))
        for epoch, point in enumerate(points, 1)
        if epoch % step == 0 and isinstance(point, list) and len(point) == 2
    )


def _loss(value: Any) -> float | None:
    return value if is_figure(value) else None


class Artifacts:
    """The artifacts that browsers have asked for, in `folder`, which is emptied at the end.

    `progress` has, of each that is on its way, the bytes that are here and those of all of it.
    """

    def __init__(self, folder: Path, fetch: Fetch) -> None:
        """Prepare; the folder is there, empty, and nobody else's."""
        self._folder = folder
        self._fetch = fetch
        self._kept: OrderedDict[str, Path] = OrderedDict()
        self._reports: OrderedDict[str, Report] = OrderedDict()
        self._under_way: dict[object, asyncio.Task[Any]] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)
        self.progress: dict[str, tuple[int, int]] = {}

    async def get(self, job_id: str, artifact_id: str, attempt: int | None = None) -> Path:
        """Return an artifact's file, fetched if need be. Raises `FleetError`, and OSError.

        It is what the job has, or what an `attempt` has brought.
        """
        path = self._kept.get(artifact_id)
        if path is not None and path.exists():
            self._kept.move_to_end(artifact_id)
            return path
        return await self._once(
            (artifact_id, "file"), lambda: self._bring(job_id, artifact_id, attempt)
        )

    async def report(self, job_id: str, artifact_id: str) -> Report:
        """Return the report in an artifact. Raises `FleetError`, and OSError."""
        if (known := self._reports.get(artifact_id)) is not None:
            return known
        bundle = await self.get(job_id, artifact_id)
        return await self._once((artifact_id, "report"), lambda: self._read(artifact_id, bundle))

    async def _once(self, key: object, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        found: T = await asyncio.shield(task)
        return found

    def known_report(self, artifact_id: str) -> Report | None:
        """Return a report that was read before."""
        return self._reports.get(artifact_id)

    async def _read(self, artifact_id: str, bundle: Path) -> Report:
        page = self._folder / f"{artifact_id}.html"
        found = self._reports[artifact_id] = await asyncio.to_thread(_read, bundle, page)
        while len(self._reports) > KEPT_REPORTS:
            _, oldest = self._reports.popitem(last=False)
            if oldest.page is not None:
                oldest.page.unlink(missing_ok=True)
        return found

    async def _bring(self, job_id: str, artifact_id: str, attempt: int | None) -> Path:
        target = self._folder / f"{artifact_id}.part"

        def tell(done: int, total: int) -> None:
            self.progress[artifact_id] = (done, total)

        try:
            async with self._limit:
                got = await asyncio.to_thread(self._fetch, job_id, attempt, target, tell)
            if got != artifact_id:
                raise LocalError("the job has got another artifact meanwhile; look again")
            path = target.replace(self._folder / f"{artifact_id}.tar.zst")
        finally:
            self.progress.pop(artifact_id, None)
            with contextlib.suppress(OSError):
                target.unlink(missing_ok=True)
        self._kept[artifact_id] = path
        self._make_room()
        return path

    def _make_room(self) -> None:
        sizes = {key: path.stat().st_size for key, path in self._kept.items() if path.exists()}
        while len(self._kept) > 1 and sum(sizes.values()) > KEPT_BYTES:
            key, path = self._kept.popitem(last=False)
            sizes.pop(key, None)
            path.unlink(missing_ok=True)


def _read(bundle: Path, page: Path) -> Report:
    """Unpack a bundle, keep the report's page as `page`, return the report."""
    unpacked = page.with_suffix(".unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        files = unpack(bundle, unpacked, UNPACK)
        found = next((path for path in files if path.name.endswith(REPORT_ENDS)), None)
        if found is None:
            raise FleetError("there is no report in this artifact")
        drawn = found.with_suffix(".html")
        if not drawn.is_file() and found.stat().st_size <= MAX_BYTES:
            with contextlib.suppress(LocalError):  # a trainer of another kind has written it
                draw(unpacked)
        if not drawn.is_file() or drawn.stat().st_size > MAX_BYTES:
            return read_report(found, None)
        return read_report(found, drawn.replace(page))
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
