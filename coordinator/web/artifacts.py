"""Artifacts on their way from the coordinator to a browser: fetched once, kept for a while.

What comes is a stranger's: its sha256 is checked by whoever fetches, its archive is unpacked by
`broker.system.archive` alone, and of what it holds only the report's two files are kept, each
bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.errors import BadMessage, FleetError, LocalError
from broker.sentences import is_figure
from broker.system.archive import Limits, unpack
from coordinator.client.rows import interval_of

# A trainer's report as the job's page shows it; nothing in it is believed to have its shape.

MAX_BYTES: Final = 16 * 1024**2
MAX_POINTS: Final = 2_000
MAX_METRICS: Final = 60


@dataclass(frozen=True, slots=True)
class Report:
    """What a report tells. `curve` has (epoch, training loss, validation loss), at most so many.

    `page` is the report's own page, if it has one.
    """

    curve: tuple[tuple[int, float | None, float | None], ...]
    best_epoch: int | None
    simulated: bool
    page: Path | None

    def forget(self) -> None:
        """Remove its page."""
        if self.page is not None:
            self.page.unlink(missing_ok=True)


def read_report(path: Path, page: Path | None) -> Report:
    """Return a report. Raises `BadMessage` when the file holds none, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        document = json.loads(data) if len(data) <= MAX_BYTES else None
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
    if not isinstance(curve, list):
        return ()
    step = max(1, len(curve) // MAX_POINTS)
    return tuple(
        (epoch, _number(point[0]), _number(point[1]))
        for epoch, point in enumerate(curve, 1)
        if epoch % step == 0 and isinstance(point, list) and len(point) == 2
    )


def _number(value: Any) -> float | None:
    return float(value) if is_figure(value) and not isinstance(value, bool) else None


def metric_rows(metrics: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return name, value and 95 % interval of each metric, in words."""
    found = []
    for name, value in list((metrics or {}).items())[:MAX_METRICS]:
        number = _number(value)
        if number is None or name.endswith("_ci"):
            continue
        interval = interval_of((metrics or {}).get(f"{name}_ci"))
        text = f"{number:.4f}" if abs(number) < 1e6 else f"{number:.4g}"
        found.append((name.replace("_", " "), text, interval))
    return found


KEPT_BYTES: Final = 2 * 1024**3
UNPACK: Final = Limits(entries=1_000, total_bytes=1024**3)
AUTO_BYTES: Final = 64 * 1024**2  # a report is fetched unasked from an artifact up to this size
MAX_PAGE_BYTES: Final = 16 * 1024**2
AT_ONCE: Final = 2

# fetch(job_id, attempt, target, most_bytes, on_bytes(done, total)) -> artifact_id; blocks. Attempt
# none: what the job has. It raises `FleetError` with what to do, and `TooLarge` for what is larger
# than `most_bytes`.
Fetch = Callable[[str, int | None, Path, int | None, Callable[[int, int], None]], str]


T = TypeVar("T")


class TooLarge(LocalError):  # noqa: N818 - a state of the world, not a mistake
    """An artifact is larger than what is fetched unasked."""


@dataclass(slots=True)
class Progress:
    """How much of an artifact is here."""

    done_bytes: int = 0
    total_bytes: int = 0


class Artifacts:
    """The artifacts that browsers have asked for, in `folder`, which is emptied at the end."""

    def __init__(self, folder: Path, fetch: Fetch) -> None:
        """Prepare; the folder is there, empty, and nobody else's."""
        self._folder = folder
        self._fetch = fetch
        self._kept: OrderedDict[str, Path] = OrderedDict()
        self._reports: OrderedDict[str, Report] = OrderedDict()
        self._under_way: dict[object, asyncio.Task[Any]] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)
        self.progress: dict[str, Progress] = {}

    async def get(
        self, job_id: str, artifact_id: str, most_bytes: int | None = None,
        attempt: int | None = None,
    ) -> Path:  # fmt: skip
        """Return an artifact's file, fetched if need be. Raises `FleetError`, and OSError.

        It is what the job has, or what an `attempt` has brought.
        """
        path = self._kept.get(artifact_id)
        if path is not None and path.exists():
            self._kept.move_to_end(artifact_id)
            return path
        return await self._once(
            (artifact_id, most_bytes), lambda: self._bring(job_id, artifact_id, most_bytes, attempt)
        )

    async def report(self, job_id: str, artifact_id: str, *, asked: bool) -> Report:
        """Return the report in an artifact. Raises `FleetError`, and OSError."""
        if (known := self._reports.get(artifact_id)) is not None:
            return known
        bundle = await self.get(job_id, artifact_id, None if asked else AUTO_BYTES)
        return await self._once(artifact_id, lambda: self._read(artifact_id, bundle))

    async def _once(self, key: object, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for what is under way already, or begin it."""
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
        folder = self._folder / f"{artifact_id}.report"
        found = self._reports[artifact_id] = await asyncio.to_thread(_read, bundle, folder)
        while len(self._reports) > 200:
            self._reports.popitem(last=False)[1].forget()
        return found

    async def _bring(
        self, job_id: str, artifact_id: str, most_bytes: int | None, attempt: int | None
    ) -> Path:
        # With a limit and without one, it may come twice at a time.
        target = self._folder / f"{artifact_id}.{most_bytes or 'whole'}.part"
        progress = self.progress[artifact_id] = Progress()

        def tell(done: int, total: int) -> None:
            progress.done_bytes, progress.total_bytes = done, total

        try:
            async with self._limit:
                got = await asyncio.to_thread(
                    self._fetch, job_id, attempt, target, most_bytes, tell
                )
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


def _read(bundle: Path, folder: Path) -> Report:
    """Unpack a bundle, keep the report's page, return the report."""
    shutil.rmtree(folder, ignore_errors=True)
    unpacked = folder.with_suffix(".unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        files = unpack(bundle, unpacked, UNPACK)
        found = next((path for path in files if path.name.endswith("_train.json")), None)
        if found is None:
            raise FleetError("there is no report in this artifact")
        page = found.with_suffix(".html")
        kept = folder.with_suffix(".html")
        if page.is_file() and page.stat().st_size <= MAX_PAGE_BYTES:
            page.replace(kept)
            return read_report(found, kept)
        return read_report(found, None)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
