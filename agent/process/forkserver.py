"""Starts trainers by fork servers that stand ready (`agent/process/keeper.py`). For POSIX.

Should a fork server end, the trainers that run go on, and the next start makes another.

Python trainers that name the modules they need get a fork server that imports these, as soon as two
of a kind are started within `IDLE_S`. It takes trainers once it is ready.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TypeAlias

from agent.process import keeper
from agent.process.orphans import MARK
from broker.system import children

PROGRAM: Final = Path(__file__).with_name("keeper.py")
KILLED: Final = -9
_PATIENCE_S: Final = 20.0
IDLE_S: Final = 60.0  # what has imported modules waits for the next trainer
_END_S: Final = 2 * keeper.END_S  # of a keeper that was told to end
_POLL_S: Final = 0.05
_PRIVATE: Final = "FLEET_"
OF_ONE_JOB: Final = {MARK, "CUDA_VISIBLE_DEVICES"}  # variables that a loaded server does not have
# Arrow's allocator would start a thread when it is imported: no thread survives a fork.
_ONE_THREAD: Final = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
Kind: TypeAlias = tuple[object, ...]


class Kept:
    """A trainer under a keeper: `pid` is that of its group and keeper, `trainer_pid` its own.

    `output` is what it prints. All of it ends when nobody has the socket `ours`.
    """

    def __init__(
        self,
        pid: int,
        ours: socket.socket,
        output: IO[bytes],
        free: Callable[[int, socket.socket], None],
    ) -> None:
        """Wait until the trainer runs. Raises OSError when it cannot be started.

        `free` takes a keeper that may be given the next trainer.
        """
        self.pid = pid
        self._free = free
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
        if self.has_left_nothing:
            self._free(self.pid, self._socket)
        else:  # its keeper was killed, or cannot adopt
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

    def __init__(self, idle_s: float = IDLE_S) -> None:
        """Start nothing yet; the first trainer does."""
        self._idle_s = idle_s
        self._bare: _Server | None = None
        self._loaded: dict[Kind, _Server] = {}
        self._started_s: dict[Kind, float] = {}  # the last trainer of a kind
        self._idle: deque[tuple[float, int, socket.socket]] = deque()  # keepers, since when
        self._lock = threading.Lock()

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        work: Path,
        modules: Sequence[str] = (),
    ) -> Kept:
        """Start a trainer under a keeper in its work folder. Raises OSError when that fails.

        With `modules` it is a Python program: `[PYTHON, "-m", MODULE, …]` or `[PYTHON, FILE, …]`.
        """
        words = [str(work), str(len(environment))]
        words += [f"{name}={value}" for name, value in environment.items()]
        words += command
        body = os.fsencode("\0".join([*words, ""]))
        if body.count(b"\0") != len(words):
            raise OSError("an argument or a variable of the environment has a NUL byte in it")
        output, printed = os.pipe()
        with contextlib.ExitStack() as undo:
            stream = undo.enter_context(os.fdopen(output, "rb"))
            try:
                with self._lock:
                    loaded = self._loaded_for(command[0], environment, modules)
                    found = None if loaded else self._again(body, printed)
                    pid, ours = found or self._fork(loaded, body, printed)
            finally:
                os.close(printed)
            undo.callback(ours.close)
            kept = Kept(pid, ours, stream, _close if loaded else self._keep)
            undo.pop_all()
            return kept

    def close(self) -> None:
        """End the fork servers."""
        with self._lock:
            for server in (self._bare, *self._loaded.values()):
                if server is not None:
                    server.end()
            self._bare, self._loaded = None, {}
            while self._idle:
                self._idle.pop()[2].close()

    def _keep(self, pid: int, ours: socket.socket) -> None:
        """Let a keeper wait for its next trainer."""
        self._idle.append((time.monotonic(), pid, ours))

    def _again(self, body: bytes, printed: int) -> tuple[int, socket.socket] | None:
        """Give a trainer to a keeper that waits: a fork takes longer. None if none does."""
        while self._idle:
            since_s, pid, ours = self._idle.pop()
            with contextlib.suppress(OSError):
                if time.monotonic() - since_s < keeper.WAIT_S:
                    _send(ours, body, [printed])
                    return pid, ours
            ours.close()
        return None

    def _fork(
        self, loaded: _Server | None, body: bytes, printed: int
    ) -> tuple[int, socket.socket]:  # fmt: skip
        """Return a new keeper and its socket; makes another server where the first has ended."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo, theirs:
            undo.callback(ours.close)
            pid = self._forked(loaded, body, [printed, theirs.fileno()])
            undo.pop_all()
            return pid, ours

    def _forked(self, loaded: _Server | None, body: bytes, descriptors: Sequence[int]) -> int:
        for server in (loaded, self._bare):
            if server is not None:
                try:
                    return server.fork(body, descriptors)
                except ConnectionError:
                    server.end()
                except TimeoutError:  # its answer would be taken for the next one
                    server.end()
                    self._bare = None if server is self._bare else self._bare
                    raise
        self._bare = _Server([sys.executable, "-I", "-S", str(PROGRAM)], os.environ)
        return self._bare.fork(body, descriptors)

    def _loaded_for(
        self, python: str, environment: Mapping[str, str], modules: Sequence[str]
    ) -> _Server | None:
        """Return the server that has what a trainer needs, if it is ready; begin one, if it pays.

        One that could not import its modules stays, so that it is not tried again.
        """
        if not modules or sys.platform != "linux":
            return None
        same = {name: value for name, value in environment.items() if name not in OF_ONE_JOB}
        kind = (python, tuple(modules), tuple(sorted(same.items())))
        server, now_s = self._loaded.get(kind), time.monotonic()
        lately = now_s - self._started_s.get(kind, -math.inf) < self._idle_s
        self._started_s[kind] = now_s
        if lately and (server is None or server.has_ended_well()):
            room = {MARK: " " * keeper.PADDING_BYTES}
            words = [",".join(modules), str(self._idle_s), " " * keeper.PADDING_BYTES]
            self._loaded[kind] = _Server([python, str(PROGRAM), *words], room | same | _ONE_THREAD)
        return server if server is not None and server.is_ready() else None


class _Server:
    """A fork server's process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._is_ready = False
        with theirs:
            kept = {k: v for k, v in environment.items() if not k.startswith(_PRIVATE)}
            self._process = children.start(
                command, kept, stdin=theirs.fileno(), stdout=children.NULL
            )
        threading.Thread(target=self._process.wait, daemon=True).start()  # no zombie stays

    def is_ready(self) -> bool:
        """Whether it has imported its modules, and waits."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(0.0)
            self._is_ready = self._is_ready or bool(self._socket.recv(keeper.NUMBER.size))
        return self._is_ready

    def has_ended_well(self) -> bool:
        """Whether it has ended, but not since a module could not be imported."""
        return self._process.returncode not in {None, 1}

    def fork(self, body: bytes, descriptors: Sequence[int]) -> int:
        """Return the process id of a new keeper. Raises OSError.

        `ConnectionError` means that the server has ended, so that it starts nothing any more.
        """
        _send(self._socket, body, descriptors)
        answer = self._socket.recv(keeper.NUMBER.size, socket.MSG_WAITALL)
        if len(answer) < keeper.NUMBER.size:
            raise ConnectionError(f"{PROGRAM.name} has ended")
        (pid,) = keeper.NUMBER.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    def end(self) -> None:
        """End it; what it has started goes on."""
        self._is_ready = False
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _send(to: socket.socket, body: bytes, descriptors: Sequence[int]) -> None:
    to.settimeout(_PATIENCE_S)
    socket.send_fds(to, [keeper.SIZE.pack(len(body))], descriptors)
    to.sendall(body)


def _close(_pid: int, ours: socket.socket) -> None:
    ours.close()
