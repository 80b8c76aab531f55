"""Processes of `fleet up` and the programs that verbs become."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.errors import LocalError
from broker.figures import how_ended
from broker.system import children
from broker.system.files import make_wanted
from broker.system.process import VARIABLE

REPORT_ENDS: Final = "_train.json"  # the name of a report in a job's result
_DRAW_MODULE: Final = "agent.trainer.draw"
STOP_TIMEOUT_S: Final = 25.0
TAIL_LINES: Final = 15
TAIL_BYTES: Final = 16 * 1024
MAX_OLD_LOG_BYTES: Final = 4 * 1024 * 1024


def become(module: str, arguments: Sequence[str]) -> int:
    """Turn into `python -m module`; where the system cannot, run it and return its exit code."""
    if os.name == "posix":
        sys.stdout.flush()
        command = [*_python(), "-m", module, *arguments]
        os.execv(sys.executable, command)  # noqa: S606 - our own module, no shell
    return carry_out(module, arguments)


def carry_out(module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module` to its end, and return its exit code."""
    return children.run([*_python(), "-m", module, *arguments])


def answer_of(module: str, arguments: Sequence[str]) -> Any:
    """Return the JSON that `python -m module` prints. Raises `LocalError` when it prints none."""
    done = children.answer_of([*_python(), "-m", module, *arguments])
    try:
        return json.loads(done.output)
    except ValueError:
        complaint = done.complaint(f"it {how_ended(done.code)}")
        raise LocalError(f"{module}: {complaint}") from None


def draw(folder: Path) -> list[Path]:
    """Have the pages of the reports in a job's result drawn; return their paths.

    Raises `LocalError` where there is no report that the trainers of this version have written.
    """
    place = folder.resolve()
    said = answer_of(_DRAW_MODULE, [str(place)])
    if said["event"] != "result":
        raise LocalError(said["message"])
    return [folder / Path(name).relative_to(place) for name in said["files"]]


def _python() -> list[str]:
    """Return the interpreter, told to take our modules from where this process took them.

    `python -m` looks in the working folder first, where people may have an `agent` of their own.
    """
    ours = Path.cwd() == Path(__file__).resolve().parents[2]
    return [sys.executable] if ours else [sys.executable, "-P"]


class Child:
    """One service as a child process. It ends when this process does, however that ends."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], log: Path,
        environment: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Start it; what it says on standard error goes to `log`, after what is there already."""
        self.name = name
        self._log = log
        self._said: list[dict[str, Any]] = []
        self._ready = threading.Condition()
        make_wanted(log.parent)
        with contextlib.suppress(OSError):
            if log.stat().st_size > MAX_OLD_LOG_BYTES:
                log.replace(log.with_suffix(".old.log"))
        with log.open("ab") as errors:
            self._log_begins = errors.seek(0, os.SEEK_END)
            self._process = children.start(
                [*_python(), "-m", module, *arguments],
                {**environment, VARIABLE: "1"},
                stdin=children.PIPE,
                stderr=errors,
            )
        threading.Thread(target=self._read, name=f"fleet-{name}", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or none while it runs."""
        return self._process.poll()

    def wait_ready(self, timeout_s: float) -> dict[str, Any]:
        """Return the first line that it says. Raises `LocalError` when it ends, or says nothing."""
        with self._ready:
            self._ready.wait_for(lambda: self._said or self.exit_code is not None, timeout_s)
            if self._said and "event" in self._said[0]:
                return self._said[0]
        if self.exit_code is not None:
            raise LocalError(f"the {self.name} {how_ended(self.exit_code)}\n{self.tail()}")
        raise LocalError(f"the {self.name} was not ready in {timeout_s:g} s\n{self.tail()}")

    def tail(self) -> str:
        """Return the end of its log, of this run alone."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(self._log_begins, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
            return "\n".join([f"{self._log}:", *(f"  {line}" for line in lines)])
        return f"{self._log}: nothing"

    def stop(self, timeout_s: float) -> None:
        """Ask it to end and wait; end it when it does not."""
        if self.exit_code is None and os.name == "posix":  # Windows would end it at once
            with contextlib.suppress(OSError):
                self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        if not children.has_ended(self._process, timeout_s):
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
            children.has_ended(self._process, 5)

    def _read(self) -> None:
        output = self._process.stdout
        assert output is not None  # noqa: S101 - it is a pipe
        with output:
            for line in output:
                said: Any = None
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                with self._ready:
                    if isinstance(said, dict) and not self._said:
                        self._said.append(said)
                    self._ready.notify_all()
        with self._ready:
            children.has_ended(self._process, 1.0)
            self._ready.notify_all()


@dataclass(slots=True)
class Fleet:
    """What runs, in the order of its start; it is stopped the other way round."""

    state: Path
    environment: dict[str, str]
    children: list[Child] = field(default_factory=list)

    def start(
        self,
        name: str,
        module: str,
        arguments: list[str],
        more: Mapping[str, str] | None = None,
    ) -> Child:
        """Start one service, with `more` in its environment than the others have."""
        log = self.state / "logs" / f"{name}.log"
        child = Child(name, module, arguments, log, {**self.environment, **(more or {})})
        self.children.append(child)
        return child

    def check(self) -> None:
        """Raise `LocalError` with the end of its log when a service has ended by itself."""
        for child in self.children:
            if child.exit_code is not None:
                how = how_ended(child.exit_code)
                raise LocalError(f"the {child.name} {how}\n{child.tail()}")

    def stop(self) -> None:
        """Stop everything: agents first, together, then the coordinator, then the broker."""
        agents = [child for child in self.children if child.name.startswith("agent")]
        threads = [threading.Thread(target=agent.stop, args=(STOP_TIMEOUT_S,)) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for child in reversed(self.children):
            child.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End everything at once."""
        for child in self.children:
            child.kill()
