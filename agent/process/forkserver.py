"""Starts trainers quickly: by programs that stand ready, see `agent/process/keeper.py`. For Linux.

One forks the keepers; a keeper whose trainer has left nothing behind waits for another. Should the
first of them end, every keeper and trainer is ended as well, and the next start makes a new one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from agent.process import keeper as launch
from broker.system import children

LAUNCH: Final = Path(__file__).with_name("keeper.py")
KILLED: Final = -9
MOST_IDLE: Final = 8
_PATIENCE_S: Final = 30.0
_END_S: Final = 2 * launch.END_S  # of a keeper that was told to end
_PRIVATE: Final = "FLEET_"


class Keeper:
    """A process that keeps one trainer at a time: `pid` is that of their group.

    `trainer_pid` is the trainer's own.
    """

    def __init__(self, process: _Process, pid: int, ours: socket.socket) -> None:
        """Made by `Nursery.start`. It ends, and its group with it, when nobody has `ours`."""
        self.process = process
        self.pid = pid
        self.trainer_pid = pid
        self.is_lost = False  # whether its id may be somebody else's by now
        self._socket = ours

    def start(self, body: bytes, printed: int) -> bool:
        """Have it start a trainer; tell whether there was still somebody to do so.

        Raises OSError when the system refused.
        """
        self._socket.settimeout(_PATIENCE_S)
        try:
            header = launch.HEADER.pack(launch.START, len(body))
            socket.send_fds(self._socket, [header], [printed])
            self._socket.sendall(body)
        except OSError:
            return False
        said = self.word()
        if said is not None and said[0] == launch.REFUSED:
            raise OSError(said[1], os.strerror(said[1]))
        self._socket.settimeout(None)
        if said is not None:
            self.trainer_pid = said[1]
        return said is not None

    def word(self) -> tuple[bytes, int] | None:
        """Wait for its next word; none when it has ended, or is too slow to start."""
        try:
            word = self._socket.recv(launch.WORD.size, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(word) < launch.WORD.size:
            return None
        what, number = launch.WORD.unpack(word)
        return what, number

    def await_end(self) -> None:
        """Wait for its end, which is that of its trainer's processes; end it where it hangs."""
        with contextlib.suppress(OSError):  # it has ended, and nobody has its id
            ended = os.pidfd_open(self.pid)
            try:
                if not _is_readable(ended, _END_S) and not self.is_lost:
                    os.killpg(self.pid, signal.SIGKILL)
            finally:
                os.close(ended)

    def lose(self) -> None:
        """Nobody reaps it any more: it is to end."""
        self.is_lost = True
        self.end()

    def end(self) -> None:
        """Have it end all that it keeps, and itself; whoever waits for a word waits no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it; it is to end, if it has not yet."""
        self._socket.close()


class Kept:
    """A trainer that is kept: `pid` is that of its group, `output` what it prints.

    `trainer_pid` is its own.
    """

    def __init__(self, nursery: Nursery, keeper: Keeper, output: IO[bytes]) -> None:
        """Made by `Nursery.start`."""
        self.pid, self.trainer_pid = keeper.pid, keeper.trainer_pid
        self.output = output
        self.is_clean = False  # whether it is known that nothing of the trainer is left
        self._nursery = nursery
        self._keeper = keeper
        self._code = KILLED

    @property
    def is_lost(self) -> bool:
        """Whether its id may be somebody else's by now."""
        return self._keeper.is_lost

    def await_end(self) -> None:
        """Wait for its end."""
        said = self._keeper.word()
        if said is None:
            self._keeper.await_end()
        else:
            what, self._code = said
            self.is_clean = what == launch.ENDED_CLEAN

    def let_go(self) -> None:
        """Have its keeper end all of it."""
        if not self.is_clean:
            self._keeper.end()

    def reap(self) -> int:
        """Let its id be used again; return its exit code, negative for a signal."""
        self._nursery.take_back(self._keeper, usable=self.is_clean)
        return self._code


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class _Process:
    """One run of the program, and the thread that hears it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {k: v for k, v in os.environ.items() if not k.startswith(_PRIVATE)}
            command = [sys.executable, "-I", "-S", str(LAUNCH), "nursery"]
            self._process = children.start(
                command, environment, stdin=theirs.fileno(), stdout=children.NULL
            )
        self.socket = ours
        self.answers: queue.SimpleQueue[tuple[bytes, int]] = queue.SimpleQueue()
        self.idle: list[Keeper] = []
        self.is_over = False
        self._keepers: set[Keeper] = set()
        self._lock = threading.Lock()
        self._hearing = threading.Thread(target=self._hear, name="fleet-nursery", daemon=True)
        self._hearing.start()

    def add(self, keeper: Keeper) -> None:
        """Have a keeper end with this program, which may have ended already."""
        with self._lock:
            if not self.is_over:
                self._keepers.add(keeper)
                return
        keeper.lose()

    def remove(self, keeper: Keeper) -> None:
        """Have a keeper end, if it has not yet, and be reaped."""
        with self._lock:
            self._keepers.discard(keeper)
        keeper.close()
        if not keeper.is_lost:
            with contextlib.suppress(OSError):
                self.socket.sendall(launch.HEADER.pack(launch.REAP, keeper.pid))

    def leave_idle(self) -> None:
        """Let go of the keepers that wait, now that they have ended with this program."""
        for keeper in self.idle:
            keeper.close()

    def close(self) -> None:
        """End it, and with it whatever it has started that still runs."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._hearing.join(_PATIENCE_S)

    def _hear(self) -> None:
        size = launch.WORD.size
        with contextlib.suppress(OSError):
            while len(word := self.socket.recv(size, socket.MSG_WAITALL)) == size:
                self.answers.put(launch.WORD.unpack(word))
        with self._lock:
            self.is_over = True
            for keeper in self._keepers:
                keeper.lose()
            self._keepers.clear()
        self.answers.put((b"", 0))
        self.socket.close()
        self._process.wait()


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
        words += command
        body = os.fsencode("\0".join([*words, ""]))
        if body.count(b"\0") != len(words):
            raise OSError("an argument or a variable of the environment has a NUL byte in it")
        output, printed = os.pipe()
        try:
            keeper = self._begin(body, printed)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(printed)
        return Kept(self, keeper, os.fdopen(output, "rb"))

    def take_back(self, keeper: Keeper, *, usable: bool) -> None:
        """Have a keeper wait for another trainer, or end and be reaped."""
        process = keeper.process
        with self._lock:
            if usable and process is self._process and len(process.idle) < MOST_IDLE:
                process.idle.append(keeper)
            else:
                process.remove(keeper)

    def close(self) -> None:
        """End the program, and with it whatever it has started that still runs."""
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process.leave_idle()
                self._process = None

    def _ready(self) -> _Process:
        if self._process is not None and self._process.is_over:
            self._process.leave_idle()
            self._process = None
        if self._process is None:
            self._process = _Process()
        return self._process

    def _begin(self, body: bytes, printed: int) -> Keeper:
        """Return a keeper that has started a trainer; one that waits for it, or a new one."""
        while True:
            with self._lock:
                process = self._ready()
                waiting = process.idle.pop() if process.idle else None
                keeper = waiting or self._make(process)
            try:
                if keeper.start(body, printed):
                    return keeper
            except OSError:
                self.take_back(keeper, usable=True)
                raise
            self.take_back(keeper, usable=False)
            if waiting is None:
                raise ChildProcessError(f"the keeper that {LAUNCH.name} has made has ended")

    def _make(self, process: _Process) -> Keeper:
        ours, theirs = socket.socketpair()
        try:
            number = self._ask(process, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        keeper = Keeper(process, number, ours)
        process.add(keeper)
        return keeper

    def _ask(self, process: _Process, theirs: socket.socket) -> int:
        header = launch.HEADER.pack(launch.KEEPER, 0)
        socket.send_fds(process.socket, [header], [theirs.fileno()])
        try:
            what, number = process.answers.get(timeout=_PATIENCE_S)
        except queue.Empty:
            process.close()
            raise TimeoutError(f"no answer of {LAUNCH.name} in {_PATIENCE_S:.0f} s") from None
        if what != launch.STARTED:
            why = os.strerror(number) if what else f"{LAUNCH.name} has ended"
            raise OSError(number, why)
        return number
