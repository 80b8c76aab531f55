"""The keeper: a small process between an agent and one trainer, which ends both ways.

    python -I -S agent/process/keeper.py COUNT < COUNT arguments, each with a NUL byte behind it
    python -I -S agent/process/keeper.py nursery   with a socket of `agent.process.forkserver` as
    standard input

It is the leader of the trainer's process group. Its standard input is held open by the agent for
as long as the trainer is to run: the input's end, also that of a killed agent, ends all of it by
SIGKILL. Where the trainer ends by itself, the keeper ends as that has ended, by its exit code or
its signal.

On Linux it takes in whatever of its trainer has lost its parent, in whatever session and with
whatever environment (PR_SET_CHILD_SUBREAPER), and ends all of that before it ends itself. The
trainer gets a parent-death signal besides, for the case that the keeper is killed. Other systems
have neither: there the keeper ends the process group, and `agent.process.orphans` looks for the
rest.

For POSIX. It is a program of its own, imports nothing but a few modules of Python's, and leaves
the command out of its own command line, so that a trainer is seen once in a list of processes.

An interpreter's start is most of what a small job costs. On Linux a nursery therefore waits from
one trainer to the next, and forks the keepers. Such a keeper may keep another trainer once nothing
is left of the one before. Its standard input is a socket, by which it is told what to start.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping

TYPE_CHECKING = False  # the module `typing` would take longer than all of these
if TYPE_CHECKING:
    import socket
    from typing import Final, NoReturn

# To the nursery: KEEPER, with its socket; or REAP, process id. To a keeper: START, body's bytes,
# with the pipe for the output; then the body.
HEADER: Final = struct.Struct("!cI")
WORD: Final = struct.Struct("!ci")  # to the agent: what, and process id, errno or exit code
KEEPER, REAP, START = b"K", b"R", b"S"
STARTED, REFUSED, ENDED, ENDED_CLEAN = b"s", b"e", b"x", b"c"
NOT_STARTED = 127  # what a shell returns for a command that it cannot start
END_S = 5.0  # until a trainer's processes have ended; one that waits for a driver may take longer
_LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PASSED_ON: Final = tuple(  # the group gets them, not us alone
    signal.Signals[name]
    for name in ("SIGTERM", "SIGINT", "SIGHUP")
    if name in signal.Signals.__members__
)
_BLOCK_BYTES = 65536


def main() -> None:
    """Serve as a nursery; or read the command, start it, and end with it or with the agent."""
    control = _process_control()
    if sys.argv[1] == "nursery":
        import socket

        with contextlib.suppress(ConnectionError):  # the agent is gone, in the middle of a word
            _Nursery(socket.socket(fileno=0), control).serve()
        return
    command = _read_command(int(sys.argv[1]))
    if command is None:
        sys.exit(NOT_STARTED)  # the agent was gone before it had said what to start
    keeper = _Keeper(control)
    keeper.start(command, os.environb)
    status = keeper.outcome()
    keeper.end_family()
    _end_like(status)


class _Keeper:
    """Starts one trainer at a time, and waits for its end, or the agent's."""

    def __init__(self, control: Callable[[int, int], object]) -> None:
        self._control = control
        is_told = os.path.exists(f"/proc/{os.getpid()}/stat")  # noqa: PTH110 - a light module
        self._takes_in = is_told and control(_PR_SET_CHILD_SUBREAPER, 1) == 0
        self._trainer = -1
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        # A signal for the group that comes now waits until there is a trainer to take it, too.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        for number in (signal.SIGCHLD, *_PASSED_ON):
            signal.signal(number, lambda *_: None)

    def start(
        self,
        command: list[bytes],
        environment: Mapping[bytes, bytes],
        work: bytes = b".",
        output: int | None = None,
    ) -> None:
        """Fork the trainer; `output` is where it prints. Raises OSError."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        keeper, early = os.getpid(), signal.sigpending()
        try:
            self._trainer = os.fork()
            if self._trainer == 0:
                _become(command, environment, work, output, keeper, self._control)
            for number in early.intersection(_PASSED_ON):
                os.kill(self._trainer, number)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)

    def outcome(self) -> int:
        """Wait for the trainer's end and return its wait status; the input's end ends all of it."""
        while True:
            ended = -1
            while ended:
                ended, status = os.waitpid(-1, os.WNOHANG)  # others are what was taken in
                if ended == self._trainer:
                    return status
            readable, _, _ = select.select([0, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, _BLOCK_BYTES)
            if 0 in readable and not os.read(0, _BLOCK_BYTES):
                self.end_family()
                os.killpg(0, signal.SIGKILL)

    def end_family(self) -> bool:
        """End the trainer and what has come of it, wherever that is; tell whether all has ended.

        Where this process takes in nobody it does nothing, and cannot tell.
        """
        deadline_s = time.monotonic() + END_S
        while self._takes_in and time.monotonic() < deadline_s:
            if _has_nobody():
                return True
            for child in _children():  # those of a child that ends are this process's next
                with contextlib.suppress(OSError):  # it has another user's rights, by sudo
                    os.kill(child, signal.SIGKILL)
            if select.select([self._wake], [], [], _LOOK_S)[0]:
                os.read(self._wake, _BLOCK_BYTES)
        return False

    def serve(self, agent: socket.socket) -> None:
        """Keep one trainer after the other, until the agent is gone or something does not end."""
        priority = _priority()
        while (request := _request(agent)) is not None:
            _, body, output = request
            work, count, *words = body.split(b"\0")[:-1]
            pairs = (word.partition(b"=") for word in words[: int(count)])
            environment = {name: value for name, _, value in pairs}
            try:
                self.start(words[int(count) :], environment, work, output)
            except OSError as error:
                agent.sendall(WORD.pack(REFUSED, error.errno or 0))
                continue
            finally:
                os.close(output)
            agent.sendall(WORD.pack(STARTED, self._trainer))
            code = os.waitstatus_to_exitcode(self.outcome())
            # A trainer may change its whole group's priority, and with it that of the next one.
            is_clean = self.end_family() and _priority() == priority
            agent.sendall(WORD.pack(ENDED_CLEAN if is_clean else ENDED, code))


def _read_command(count: int) -> list[bytes] | None:
    data = b""
    while data.count(b"\0") < count:
        block = os.read(0, _BLOCK_BYTES)
        if not block:
            return None
        data += block
    return data.split(b"\0")[:count]


def _become(
    command: list[bytes],
    environment: Mapping[bytes, bytes],
    work: bytes,
    output: int | None,
    keeper: int,
    control: Callable[[int, int], object],
) -> NoReturn:
    """Turn this forked child into the trainer."""
    try:
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        control(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != keeper:
            os._exit(NOT_STARTED)  # it was killed before the system knew that we go with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in signal.valid_signals():
            # Python ignores some, nohup and background shells others, and programs inherit that;
            # ours would take what is meant for the program.
            if signal.getsignal(number) not in {signal.SIG_DFL, None}:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(work)
        os.execvpe(command[0], command, environment)  # noqa: S606 - the agent has checked it
    except OSError as error:
        os.write(2, f"{os.fsdecode(command[0])} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _process_control() -> Callable[[int, int], object]:
    """Return Linux's prctl; elsewhere what does nothing."""
    if sys.platform == "linux":
        try:
            # Loaded here: after the fork, as little as can be is done.
            import ctypes

            prctl = ctypes.CDLL(None).prctl
            return lambda option, value: prctl(option, value, 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            pass  # the group is ended by the agent, too
    return lambda *_: None


def _priority() -> int:
    """Return this process's niceness."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def _has_nobody() -> bool:
    """Whether this process has no child left, ended or not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _children() -> Iterator[int]:
    """Yield the process ids of this process's children. For Linux."""
    me = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - likewise
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if int(file.read().rpartition(b")")[2].split()[1]) == me:
                    yield int(name)


def _end_like(status: int) -> NoReturn:
    """End by the same exit code, or by the same signal."""
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump is enough
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _request(agent: socket.socket) -> tuple[bytes, bytes, int] | None:
    """Return a request of the agent: what, body, descriptor that came with it; none at its end.

    Of REAP, the descriptor is the process id.
    """
    import socket

    data, descriptors, _, _ = socket.recv_fds(agent, HEADER.size, 1)
    data += _read(agent, HEADER.size - len(data)) if data else b""
    if len(data) < HEADER.size:
        return None
    kind, number = HEADER.unpack(data)
    if kind == REAP:
        return kind, b"", number
    body = _read(agent, number)
    return (kind, body, descriptors[0]) if len(body) == number and descriptors else None


def _read(agent: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (block := agent.recv(min(size - len(data), 1 << 20))):
        data += block
    return bytes(data)


class _Nursery:
    """Forks keepers on request, and reaps each when it is told to.

    Until then nobody else can have its process id. When the agent is gone, so is this; each keeper
    then finds its own input ended.
    """

    def __init__(self, agent: socket.socket, control: Callable[[int, int], object]) -> None:
        self._agent = agent
        self._control = control
        self._ending: set[int] = set()  # they are to be reaped
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # What ends the agent is the agent's to judge; and a keeper is to find what comes early.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)

    def serve(self) -> None:
        """Serve until the agent is gone."""
        agent = self._agent.fileno()
        while True:
            readable, _, _ = select.select([agent, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, _BLOCK_BYTES)
            if agent in readable and not self._take_request():
                return
            self._ending -= {pid for pid in self._ending if os.waitpid(pid, os.WNOHANG)[0]}

    def _take_request(self) -> bool:
        request = _request(self._agent)
        if request is None:
            return False
        kind, _, number = request
        if kind == REAP:
            self._ending.add(number)
            return True
        try:
            word = WORD.pack(STARTED, self._fork(number))
        except OSError as error:
            word = WORD.pack(REFUSED, error.errno or 0)
        finally:
            os.close(number)
        self._agent.sendall(word)
        return True

    def _fork(self, descriptor: int) -> int:
        import socket

        keeper = os.fork()
        if keeper == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                os.dup2(descriptor, 0)
                os.close(descriptor)
                with socket.socket(fileno=0) as agent:
                    _Keeper(self._control).serve(agent)
            finally:
                os.killpg(0, signal.SIGKILL)
        return keeper


if __name__ == "__main__":
    main()
