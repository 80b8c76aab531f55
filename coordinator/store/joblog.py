"""The last output of each job: one bounded file, of its newest attempt; and the jobs' curves."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.protocol.loglines import LogLines, missing
from broker.system.files import RealDisk, read, write_atomically
from coordinator.store.curve_files import CurveFiles

MAX_ANSWER_BYTES: Final = 120_000
LINE: Final = re.compile("([0-9]{1,10}) ([0-9]{1,15}) (.*)", re.DOTALL)  # number, ms, text
CUT: Final = "..."  # the first line of a file whose beginning was deleted


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log.

    `times` are when each line was heard, in seconds since the epoch; none: it was not. `last` is
    the number of its last line, 0 when it has none; `truncated`: there was more before.
    """

    lines: list[str]
    times: list[float | None]
    last: int
    truncated: bool


class JobLogs:
    """Logs under `folder`; the older half of one that is longer than `max_bytes` is deleted."""

    def __init__(self, folder: Path, max_bytes: int, disk: RealDisk | None = None) -> None:
        """Make the folder."""
        self._disk = disk or RealDisk()
        self._folder = folder
        self._max_bytes = max_bytes
        self._disk.make_folder(folder)
        self.curves = CurveFiles(folder, self._disk)

    def append(self, job_id: str, said: LogLines, at_s: float) -> None:
        """Append lines, heard at `at_s`; a disk that refuses costs the lines, nothing else."""
        path = self._path(job_id, said.attempt)
        head = f"{max(0, round(at_s * 1000))}"  # ms: a tail with its times is no longer than it is
        text = "".join(f"{n} {head} {line}\n" for n, line in enumerate(said.lines, said.number))
        with contextlib.suppress(OSError):
            if said.attempt > 1 and self._disk.size_bytes(path) is None:
                self._forget_older(path)
            with self._disk.open(path, "ab") as file:
                file.write(text.encode("utf-8", "replace"))
                size_bytes = file.tell()
            if size_bytes > self._max_bytes:
                self._halve(path)

    def tail(self, job_id: str, attempt: int, lines: int) -> LogTail:
        """Return the last `lines` lines; where some are missing a line says how many."""
        try:
            with self._disk.open(self._path(job_id, attempt), "rb") as file:
                size_bytes = file.seek(0, 2)
                start = max(0, size_bytes - MAX_ANSWER_BYTES)
                file.seek(start)
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return LogTail([], [], 0, truncated=False)
        kept = text.split("\n")[1 if start else 0 :]
        return _tail(kept, lines, cut=bool(start) or kept[0] == CUT)

    def _path(self, job_id: str, attempt: int) -> Path:
        return self._folder / f"{job_id}.{attempt}.log"

    def _forget_older(self, path: Path) -> None:
        for older in self._disk.glob(self._folder, f"{path.name.split('.', 1)[0]}.*.log"):
            self._disk.unlink(older)

    def _halve(self, path: Path) -> None:
        kept = read(self._disk, path)[-self._max_bytes // 2 :]
        data = CUT.encode() + b"\n" + kept[kept.find(b"\n") + 1 :]
        write_atomically(self._disk, path, data, durable=False)


def _tail(kept: Sequence[str], most: int, *, cut: bool) -> LogTail:
    """Put the lines in order: they may have come twice, and late."""
    found = {
        int(one[1]): (one[3], int(one[2]) / 1000) for one in map(LINE.fullmatch, kept) if one
    }  # fmt: skip
    lines: list[tuple[str, float | None]] = []
    before = min(found, default=1) - 1 if cut else 0
    for number in sorted(found):
        if number > before + 1:
            lines.append((missing(number - before - 1), None))
        lines.append(found[number])
        before = number
    last = lines[-most:]
    return LogTail(
        [line for line, _ in last], [at_s for _, at_s in last], before,
        truncated=cut or len(lines) > most,
    )  # fmt: skip
