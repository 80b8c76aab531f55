"""Starts trainers by a fork server that stands ready (`agent/process/keeper.py`). For POSIX.

Should the fork server end, the trainers that run go on, and the next start makes another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from agent.process import keeper
from broker.system import children

PROGRAM: Final = Path(__file__).with_name("keeper.py")
KILLED: Final = -9
_PATIENCE_S: Final = 20.0
_END_S: Final = 2 * keeper.END_S  # of a keeper that was told to end
_POLL_S: Final = 0.05
_PRIVATE: Final = "FLEET_"


class Kept:
    """A trainer under a keeper: `pid` is that of its group and keeper, `trainer_pid` its own.

    `output` is what it prints. All of it ends when nobody has the socket `ours`.
    """

    def __init__(self, pid: int, ours: socket.socket, output: IO[bytes]) -> None:
        """Wait until the trainer runs. Raises OSError when it cannot be started."""
        self.pid = pid
        self.output = output
        self.has_left_nothing = False  # whether it is known that all of the trainer has ended
        self._socket = ours
        started = self._read(keeper.NUMBER.size, _PATIENCE_S)
        if started is None:
            raise ChildProcessError("the keeper has ended before it had started the trainer")
        (self.trainer_pid,) = keeper.NUMBER.unpack(started)

    def await_end(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        end = self._read(keeper.END.size, None)
        if end is None:
            self._await_keeper()
            return KILLED
        code, self.has_left_nothing = keeper.END.unpack(end)
        return int(code)

    def let_go(self) -> None:
        """Have its keeper end all of it, and itself; `await_end` waits for that."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def signal(self, number: int) -> None:
        """Send a signal to its group."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def end_rest(self) -> None:
        """After its end: end what is left of its group, and let its id be used again."""
        if not self.has_left_nothing:  # its keeper was killed, or cannot adopt
            self.signal(signal.SIGKILL)
        self._socket.close()

    def _read(self, size: int, timeout_s: float | None) -> bytes | None:
        """Wait for the keeper's next word; none when there is none."""
        try:
            self._socket.settimeout(timeout_s)
            word = self._socket.recv(size, socket.MSG_WAITALL)
        except OSError:
            return None
        return word if len(word) == size else None

    def _await_keeper(self) -> None:
        """Wait for the end of a keeper that was told to end, or killed; end one that hangs."""
        deadline_s = time.monotonic() + _END_S
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline_s:
                os.kill(self.pid, 0)
                time.sleep(_POLL_S)
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """Starts trainers; may be used by several threads."""

    def __init__(self) -> None:
        """Start nothing yet; the first trainer does."""
        self._socket: socket.socket | None = None
        self._process: children.Process | None = None
        self._lock = threading.Lock()

    def start(self, command: Sequence[str], environment: Mapping[str, str], work: Path) -> Kept:
        """Start a trainer under a keeper in its work folder. Raises OSError when that fails."""
        words = [str(work), str(len(environment))]
        words += [f"{name}={value}" for name, value in environment.items()]
        words += command
        body = os.fsencode("\0".join([*words, ""]))
        if body.count(b"\0") != len(words):
            raise OSError("an argument or a variable of the environment has a NUL byte in it")
        ours, theirs = socket.socketpair()
        output, printed = os.pipe()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            stream = undo.enter_context(os.fdopen(output, "rb"))
            try:
                with theirs:
                    pid = self._fork(body, [theirs.fileno(), printed])
            finally:
                os.close(printed)
            kept = Kept(pid, ours, stream)
            undo.pop_all()
            return kept

    def close(self) -> None:
        """End the fork server."""
        with self._lock:
            self._end()

    def _fork(self, body: bytes, descriptors: Sequence[int]) -> int:
        """Return the process id of a new keeper; makes another server where the first has ended."""
        with self._lock:
            try:
                answer = self._ask(body, descriptors)
            except OSError:
                self._end()
                answer = self._ask(body, descriptors)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer

    def _ask(self, body: bytes, descriptors: Sequence[int]) -> int:
        server = self._socket or self._serve()
        socket.send_fds(server, [keeper.SIZE.pack(len(body))], descriptors)
        server.sendall(body)
        answer = server.recv(keeper.NUMBER.size, socket.MSG_WAITALL)
        if len(answer) < keeper.NUMBER.size:
            raise ChildProcessError(f"{PROGRAM.name} has ended")
        return int(keeper.NUMBER.unpack(answer)[0])

    def _serve(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {k: v for k, v in os.environ.items() if not k.startswith(_PRIVATE)}
            command = [sys.executable, "-I", "-S", str(PROGRAM)]
            self._process = children.start(
                command, environment, stdin=theirs.fileno(), stdout=children.NULL
            )
        ours.settimeout(_PATIENCE_S)
        self._socket = ours
        return ours

    def _end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None
