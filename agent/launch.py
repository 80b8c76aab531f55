"""The keeper: a small process between an agent and one trainer, which ends both ways.

    python -I -S agent/launch.py COUNT < COUNT arguments, each with a NUL byte behind it
    python -I -S agent/launch.py nursery   with a socket of `agent.nursery` as standard input

It is the leader of the trainer's process group. Its standard input is held open by the agent for
as long as that lives: the input's end, however the agent has ended, ends the whole group by
SIGKILL. On Linux the trainer gets a parent-death signal besides, for the case that the keeper is
killed. The keeper ends as the trainer has ended, by its exit code or its signal.

For POSIX. It is a program of its own, imports nothing but a few modules of Python's, and leaves
the command out of its own command line, so that a trainer is seen once in a list of processes.

An interpreter's start is most of what a small job costs. On Linux a nursery therefore waits from
one trainer to the next, and forks the keepers. Such a keeper also takes in whatever its trainer
leaves behind, wherever that has gone (PR_SET_CHILD_SUBREAPER), and so knows when it left nothing.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
from collections.abc import Callable, Mapping

TYPE_CHECKING = False  # the module `typing` would take longer than all of these
if TYPE_CHECKING:
    import socket
    from typing import Final, NoReturn

HEADER: Final = struct.Struct("!cI")  # from the agent: START, body's bytes; or REAP, process id
WORD: Final = struct.Struct("!cii")  # to the agent: what, process id or errno, exit code
START, REAP = b"S", b"R"
STARTED, REFUSED, ENDED, ENDED_CLEAN = b"s", b"e", b"x", b"c"
NOT_STARTED = 127  # what a shell returns for a command that it cannot start
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
    if sys.argv[1] == "nursery":
        import contextlib
        import socket

        with contextlib.suppress(ConnectionError):  # the agent is gone, in the middle of a word
            _Nursery(socket.socket(fileno=0)).serve()
        return
    command = _read_command(int(sys.argv[1]))
    if command is None:
        sys.exit(NOT_STARTED)  # the agent was gone before it had said what to start
    _end_like(_keep(command, os.environb, _process_control(), None))


def _keep(
    command: list[bytes],
    environment: Mapping[bytes, bytes],
    control: Callable[[int, int], object],
    clean: int | None,
) -> int:
    """Start the trainer and wait for its end, or the agent's; return its wait status.

    `clean` is a pipe that gets this process's id when the trainer has left nothing behind.
    """
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # A signal for the group that comes now waits until there is a trainer to take it, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    if clean is not None:
        control(_PR_SET_CHILD_SUBREAPER, 1)
    keeper, early = os.getpid(), signal.sigpending()
    trainer = os.fork()
    if trainer == 0:
        _become(command, environment, keeper, control)
    for number in early.intersection(_PASSED_ON):
        os.kill(trainer, number)
    for number in _PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    status = _outcome(trainer, wake)
    if clean is not None and _has_nobody():
        os.write(clean, struct.pack("!i", keeper))
    return status


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
    keeper: int,
    control: Callable[[int, int], object],
) -> NoReturn:
    """Turn this forked child into the trainer."""
    try:
        control(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != keeper:
            os._exit(NOT_STARTED)  # it was killed before the system knew that we go with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in signal.valid_signals():
            # Python ignores some, nohup and background shells others, and programs inherit that.
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(command[0], command, environment)  # noqa: S606 - the agent has checked it
    except OSError as error:
        os.write(2, f"{os.fsdecode(command[0])} cannot be started: {error}\n".encode())
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


def _outcome(trainer: int, wake: int) -> int:
    """Wait for the trainer's end and return its wait status; the agent's end ends the group."""
    while True:
        ended = -1
        while ended:
            ended, status = os.waitpid(-1, os.WNOHANG)  # others are what was taken in
            if ended == trainer:
                return status
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, _BLOCK_BYTES)
        if 0 in readable and not os.read(0, _BLOCK_BYTES):
            os.killpg(0, signal.SIGKILL)


def _has_nobody() -> bool:
    """Whether this process has no child left, ended or not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


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


class _Nursery:
    """Forks keepers on request, tells of their ends, and reaps each when it is told to.

    Until then nobody else can have its process id. When the agent is gone, so is this; each keeper
    then finds its own input ended.
    """

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._control = _process_control()
        self._living: set[int] = set()
        self._ended: set[int] = set()
        self._are_clean: set[int] = set()
        self._wake, woken = os.pipe()
        self._clean, self._say_clean = os.pipe()
        os.set_blocking(self._clean, False)
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
                self._tell_ended()
            if agent in readable and not self._take_request():
                return

    def _take_request(self) -> bool:
        import socket

        data, descriptors, _, _ = socket.recv_fds(self._agent, HEADER.size, 2)
        data += self._read(HEADER.size - len(data)) if data else b""
        if len(data) < HEADER.size:
            return False
        kind, number = HEADER.unpack(data)
        if kind == REAP:
            if number in self._ended:
                self._ended.discard(number)
                os.waitpid(number, 0)
            return True
        body: bytes = self._read(number)
        whole: bool = len(body) == number
        if whole and len(descriptors) == 2:
            self._start(body, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return whole

    def _start(self, body: bytes, descriptors: list[int]) -> None:
        try:
            keeper = self._fork(body, descriptors)
        except OSError as error:
            self._say(REFUSED, error.errno or 0, 0)
        else:
            self._living.add(keeper)
            self._say(STARTED, keeper, 0)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (block := self._agent.recv(min(size - len(data), 1 << 20))):
            data += block
        return bytes(data)

    def _say(self, what: bytes, number: int, code: int) -> None:
        self._agent.sendall(WORD.pack(what, number, code))

    def _tell_ended(self) -> None:
        for keeper in list(self._living):
            found = os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            self._hear_clean()
            self._living.discard(keeper)
            self._ended.add(keeper)
            code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            self._say(ENDED_CLEAN if keeper in self._are_clean else ENDED, keeper, code)
            self._are_clean.discard(keeper)

    def _hear_clean(self) -> None:
        try:
            said = os.read(self._clean, _BLOCK_BYTES)
        except BlockingIOError:
            return
        # Each says it before it ends; some have not ended yet.
        self._are_clean.update(pid for (pid,) in struct.iter_unpack("!i", said))

    def _fork(self, body: bytes, descriptors: list[int]) -> int:
        work, count, *words = body.split(b"\0")[:-1]
        pairs = (word.partition(b"=") for word in words[: int(count)])
        environment = {name: value for name, _, value in pairs}
        keeper = os.fork()
        if keeper == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                os.dup2(descriptors[0], 0)
                os.dup2(descriptors[1], 1)
                os.dup2(descriptors[1], 2)
                for descriptor in (*descriptors, self._wake, self._clean):
                    os.close(descriptor)
                os.chdir(work)
                command = words[int(count) :]
                _end_like(_keep(command, environment, self._control, self._say_clean))
            except OSError as error:
                os.write(2, f"the trainer cannot be started: {error}\n".encode())
            finally:
                os._exit(NOT_STARTED)
        return keeper


if __name__ == "__main__":
    main()
