"""A trainer's standard output: one JSON object a line, nothing else; and how SIGTERM ends it.

| event      | other keys                                                              |
| ---------- | ----------------------------------------------------------------------- |
| phase      | phase: load, train, evaluate or save                                    |
| progress   | epoch, epochs, train_loss, val_loss, metrics, eta_s                     |
| checkpoint | epoch: the one that the run would go on in                              |
| log        | message                                                                 |
| result     | metrics, files                                                          |
| error      | kind: bad_input, out_of_memory, diverged or internal; message: one line |
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, TextIO

from pydantic import BaseModel

from agent.trainer.common.config import EXIT_CTRL_C, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from agent.trainer.common.errors import InterruptedBySignalError, TrainerError

DECIMALS: Final = 6
MESSAGE_LIMIT: Final = 2000  # characters
SURE_AFTER_S: Final = 5.0  # of training


def as_json(event: Mapping[str, Any]) -> str:
    """Return an event as a line of JSON."""
    return json.dumps(rounded(event), allow_nan=False) + "\n"


class Progress:
    """Writes the events, each as the text that `form` gives; `clock` returns monotonic seconds.

    Whoever reports to it learns from its `interruption` when to end.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        form: Callable[[Mapping[str, Any]], str] = as_json,
    ) -> None:
        self._stream = stream
        self._form = form
        self._clock = clock
        self._training_since_s = clock()
        self._done_before = 0.0
        self.part = (0, 1)  # which training it is, from 0, and how many there are
        self.interruption = Interruption()

    def phase(self, phase: str) -> None:
        """Announce that a phase begins."""
        self.begins(0.0)
        self._emit({"event": "phase", "phase": phase})

    def begins(self, done_epochs: float) -> None:
        """Count time from now on; an earlier process trained `done_epochs`."""
        self._training_since_s, self._done_before = self._clock(), done_epochs

    def epoch(self, epoch: int, epochs: int, train_loss: float, val_loss: float) -> None:
        """Report that `epoch` of at most `epochs` is over; several trainings count as one.

        The eta is None for the first `SURE_AFTER_S`: the first epochs warm up caches.
        """
        spent_s, done = self._clock() - self._training_since_s, epoch - self._done_before
        is_sure = done > 0 and (spent_s >= SURE_AFTER_S or epoch >= epochs)
        before, trainings = self.part
        left = trainings * epochs - (before * epochs + epoch)
        eta_s = round(spent_s / done * left, 1) if is_sure else None
        self._emit(
            {
                "event": "progress",
                "epoch": before * epochs + epoch,
                "epochs": trainings * epochs,
                "train_loss": train_loss,
                "val_loss": val_loss,
                "metrics": {},
                "eta_s": eta_s,
            }
        )

    def checkpoint(self, epoch: int) -> None:
        """Report that the run could go on from here, in or after `epoch`."""
        self._emit({"event": "checkpoint", "epoch": epoch})

    def log(self, message: str) -> None:
        """Report a message for the log."""
        self._emit({"event": "log", "message": one_line(message)})

    def result(self, metrics: Mapping[str, Any], files: Iterable[str]) -> None:
        """Report that the run succeeded."""
        self._emit({"event": "result", "metrics": dict(metrics), "files": sorted(files)})

    def error(self, kind: str, message: str) -> None:
        """Report why the run ends."""
        self._emit({"event": "error", "kind": kind, "message": one_line(message)})

    def _emit(self, event: dict[str, Any]) -> None:
        try:
            self._stream.write(self._form(event))
            self._stream.flush()
        except OSError:  # a closed pipe is EINVAL on Windows
            # The reader is gone; the work is still worth finishing. A stream on the null device
            # keeps the interpreter from failing at its own last flush.
            self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as the process


class Interruption:
    """Whether SIGTERM has asked this process to end."""

    def __init__(self) -> None:
        self.asked = False
        self._deferred = False

    def install(self) -> None:
        """Take SIGTERM from now on; on Windows also Ctrl-Break, which an agent sends there."""
        signal.signal(signal.SIGTERM, self._on_signal)
        if sys.platform == "win32":
            signal.signal(signal.SIGBREAK, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, SIGTERM only sets `asked`: the code inside looks at it and ends itself."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def check(self) -> None:
        """End here if that was asked for. Raises InterruptedBySignalError."""
        if self.asked:
            raise InterruptedBySignalError

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self._deferred:
            raise InterruptedBySignalError


def one_line(message: str) -> str:
    """Return `message` on one line of bounded length."""
    return " ".join(message.split())[:MESSAGE_LIMIT]


def rounded(value: Any) -> Any:
    """Return `value` as JSON has it, floats at six decimals, what is no finite number as None."""
    if isinstance(value, BaseModel):
        return rounded(value.model_dump())
    if isinstance(value, float):
        return round(value, DECIMALS) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def own_output() -> TextIO:
    """Return standard output for ourselves: what libraries print there goes to standard error."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def program(work: Callable[[Progress], None]) -> int:
    """Run `work` as a program whose output are its events, and return the exit code."""
    return run_reported(Progress(own_output()), work)


def leave(code: int) -> NoReturn:
    """Exit at once: what a library would clean up, its process takes with it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


def run_reported(progress: Progress, work: Callable[[Progress], None]) -> int:
    """Run `work`, report how it ended, and return the exit code that says the same."""
    progress.interruption.install()
    try:
        work(progress)
    except TrainerError as error:
        progress.error(error.kind, str(error))
        return error.exit_code
    except InterruptedBySignalError:
        progress.log("interrupted by SIGTERM")
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        progress.log("interrupted by SIGINT")
        return EXIT_CTRL_C
    except Exception as error:  # noqa: BLE001 - the last line of defence reports and exits
        traceback.print_exc(file=sys.stderr)
        kind = "out_of_memory" if _is_out_of_memory(error) else "internal"
        progress.error(kind, f"{type(error).__name__}: {error}")
        return EXIT_FAILED
    return EXIT_DONE


def _is_out_of_memory(error: Exception) -> bool:
    # By name: a gbt run need not import torch, which takes two seconds.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On a CPU torch raises RuntimeError with this text.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
