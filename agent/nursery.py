"""Starts keepers quickly: by a program that stands ready, see `agent/launch.py`. For Linux.

Should that program end, every trainer that it has started is ended as well, and the next start
makes a new one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from agent import launch

LAUNCH: Final = Path(__file__).with_name("launch.py")
KILLED: Final = -9
_PATIENCE_S: Final = 30.0
_PRIVATE: Final = "FLEET_"


class Kept:
    """A keeper with its trainer: `pid` is that of their group, `output` what they print."""

    def __init__(self, nursery: Nursery, pid: int, output: IO[bytes], lifeline: int) -> None:
        """Made by `Nursery.start`."""
        self.pid = pid
        self.output = output
        self.code = KILLED
        self.is_clean = False  # whether it is known that nothing of the trainer is left
        self.is_lost = False  # whether its id may be somebody else's by now
        self._nursery = nursery
        self._lifeline = lifeline
        self._ended = threading.Event()
        self._closing = threading.Lock()

    def await_end(self) -> None:
        """Wait for its end."""
        self._ended.wait()

    def let_go(self) -> None:
        """Close what it holds on to: it ends, and its group with it."""
        with self._closing:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1

    def reap(self) -> int:
        """Let its id be used again; return its exit code, negative for a signal."""
        if not self.is_lost:
            self._nursery.reap(self.pid)
        return self.code

    def has_ended(self, code: int, *, clean: bool) -> None:
        """Take word of its end."""
        self.code, self.is_clean = code, clean
        self._ended.set()

    def lose(self) -> None:
        """Nobody will tell of its end: end it."""
        self.is_lost = True
        self.let_go()
        self._ended.set()


class _Process:
    """One run of the program, and the thread that hears it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {k: v for k, v in os.environ.items() if not k.startswith(_PRIVATE)}
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), "nursery"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self.socket = ours
        self.answers: queue.SimpleQueue[tuple[bytes, int]] = queue.SimpleQueue()
        self.kept: dict[int, Kept] = {}
        self._early: dict[int, tuple[int, bool]] = {}
        self._lock = threading.Lock()
        self.is_over = False
        self._hearing = threading.Thread(target=self._hear, name="fleet-nursery", daemon=True)
        self._hearing.start()

    def add(self, kept: Kept) -> None:
        """Have a keeper told of its end, which may have come already."""
        with self._lock:
            early = self._early.pop(kept.pid, None)
            if early is None and not self.is_over:
                self.kept[kept.pid] = kept
                return
        if early is None:
            kept.lose()
        else:
            kept.has_ended(early[0], clean=early[1])

    def _hear(self) -> None:
        size = launch.WORD.size
        with contextlib.suppress(OSError):
            while len(word := self.socket.recv(size, socket.MSG_WAITALL)) == size:
                self._take(*launch.WORD.unpack(word))
        with self._lock:
            self.is_over = True
            lost, self.kept = list(self.kept.values()), {}
        for kept in lost:
            kept.lose()
        self.answers.put((b"", 0))
        self.socket.close()
        self._process.wait()

    def close(self) -> None:
        """End it, and with it whatever it has started that still runs."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._hearing.join(_PATIENCE_S)

    def _take(self, what: bytes, number: int, code: int) -> None:
        if what in {launch.STARTED, launch.REFUSED}:
            self.answers.put((what, number))
            return
        clean = what == launch.ENDED_CLEAN
        with self._lock:
            kept = self.kept.pop(number, None)
            if kept is None:
                self._early[number] = (code, clean)
        if kept is not None:
            kept.has_ended(code, clean=clean)


class Nursery:
    """Starts keepers one after the other; may be used by several threads."""

    def __init__(self) -> None:
        """Start nothing yet; `warm` does, or the first trainer."""
        self._process: _Process | None = None
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Have the program stand ready. Raises OSError when it cannot be started."""
        with self._lock:
            self._ready()

    def start(self, command: Sequence[str], environment: Mapping[str, str], work: Path) -> Kept:
        """Start a trainer under a keeper in its work folder. Raises OSError when that fails."""
        words = [str(work), str(len(environment))]
        words += [f"{name}={value}" for name, value in environment.items()]
        body = b"".join(os.fsencode(word) + b"\0" for word in [*words, *command])
        if body.count(b"\0") != len(words) + len(command):
            raise OSError("an argument or a variable of the environment has a NUL byte in it")
        lifeline, held = os.pipe()
        output, printed = os.pipe()
        try:
            with self._lock:
                process = self._ready()
                kept = self._ask(process, body, [lifeline, printed], output, held)
        except BaseException:
            os.close(held)
            os.close(output)
            raise
        finally:
            os.close(lifeline)
            os.close(printed)
        process.add(kept)
        return kept

    def reap(self, pid: int) -> None:
        """Have a keeper that has ended reaped."""
        with self._lock, contextlib.suppress(OSError):
            if self._process is not None:
                self._process.socket.sendall(launch.HEADER.pack(launch.REAP, pid))

    def close(self) -> None:
        """End the program, and with it whatever it has started that still runs."""
        with self._lock:
            if self._process is not None:
                self._process.close()

    def _ready(self) -> _Process:
        if self._process is None or self._process.is_over:
            self._process = _Process()
        return self._process

    def _ask(
        self, process: _Process, body: bytes, given: list[int], output: int, held: int
    ) -> Kept:
        header = launch.HEADER.pack(launch.START, len(body))
        socket.send_fds(process.socket, [header], given)
        process.socket.sendall(body)
        try:
            what, number = process.answers.get(timeout=_PATIENCE_S)
        except queue.Empty:
            process.close()
            raise TimeoutError(f"no answer of {LAUNCH.name} in {_PATIENCE_S:.0f} s") from None
        if what != launch.STARTED:
            why = os.strerror(number) if what else f"{LAUNCH.name} has ended"
            raise OSError(number, why)
        return Kept(self, number, os.fdopen(output, "rb"), held)
