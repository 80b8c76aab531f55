"""The fork server of an agent, and the keepers that it forks.

    python -I -S agent/process/keeper.py

An interpreter's start is most of what a small job costs, so the fork server waits from one trainer
to the next, with a socket of `agent.process.forkserver` as standard input. For each trainer it
forks a keeper, the leader of the trainer's process group, with a socket of its own: the agent holds
that open for as long as the trainer is to run. The socket's end, also that of a killed agent, ends
all of the group by SIGKILL.

On Linux a keeper adopts every process of its trainer that has lost its parent, in whatever session
and with whatever environment (PR_SET_CHILD_SUBREAPER), and ends them before it reports the end. The
trainer gets a parent-death signal besides, for the case that the keeper is killed. Other systems
have neither: there the agent ends the process group, and `agent.process.orphans` looks for the
rest.

For POSIX. It is a program of its own that imports a few light modules, and its command line does
not have the trainer's, so that a trainer is seen once in a list of processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping

TYPE_CHECKING = False  # the module `typing` would take longer than all of these
if TYPE_CHECKING:
    from typing import Final, NoReturn

# To the fork server: the size of a body, with the keeper's socket and the pipe for the output; then
# the body. Its answer is the keeper's process id, or minus an errno.
SIZE: Final = struct.Struct("!I")
# From a keeper: the trainer's process id; then its exit code, and whether all of it has ended.
NUMBER: Final = struct.Struct("!i")
END: Final = struct.Struct("!i?")
NOT_STARTED = 127  # what a shell returns for a command that it cannot start
END_S = 5.0  # until a trainer's processes have ended; one that waits for a driver may take longer
_LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the whole group gets them
_BLOCK_BYTES = 65536


def main() -> None:
    """Fork a keeper for each request, until the agent is gone."""
    control = _process_control()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the keepers
    # What ends the agent is the agent's to judge; and a keeper is to find what comes early.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    with socket.socket(fileno=os.dup(0)) as agent:
        while (request := _request(agent)) is not None:
            body, descriptors = request
            try:
                answer = os.fork()
                if answer == 0:
                    _keep(body, descriptors, control)
            except OSError as error:
                answer = -(error.errno or 1)
            for descriptor in descriptors:
                os.close(descriptor)
            agent.sendall(NUMBER.pack(answer))


def _keep(body: bytes, descriptors: list[int], control: Callable[[int, int], object]) -> NoReturn:
    """Keep one trainer, in a process that was forked for it."""
    try:
        os.setsid()
        for descriptor, number in zip((*descriptors, descriptors[1]), (0, 1, 2)):
            os.dup2(descriptor, number)
        os.closerange(3, 3 + _BLOCK_BYTES)
        work, count, *words = body.split(b"\0")[:-1]
        pairs = (word.partition(b"=") for word in words[: int(count)])
        os.chdir(work)
        keeper = _Keeper(control)
        keeper.start(words[int(count) :], {name: value for name, _, value in pairs})
        os.write(0, NUMBER.pack(keeper.trainer))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the output ends when the trainer's does
        os.dup2(1, 2)
        code = os.waitstatus_to_exitcode(keeper.outcome())
        os.write(0, END.pack(code, keeper.end_family()))
        os.read(0, 1)  # the group's id stays taken until the agent lets go
    finally:
        os.killpg(0, signal.SIGKILL)
        os._exit(NOT_STARTED)


class _Keeper:
    """Starts a trainer, and waits for its end, or the agent's."""

    def __init__(self, control: Callable[[int, int], object]) -> None:
        self.trainer = -1
        self._control = control
        is_told = os.path.exists(f"/proc/{os.getpid()}/stat")  # noqa: PTH110 - a light module
        self._adopts = is_told and control(_PR_SET_CHILD_SUBREAPER, 1) == 0
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_PASSED_ON):
            signal.signal(number, lambda *_: None)

    def start(self, command: list[bytes], environment: Mapping[bytes, bytes]) -> None:
        """Fork the trainer. A signal for the group that has come already is sent to it. OSError."""
        keeper, early = os.getpid(), signal.sigpending()
        self.trainer = os.fork()
        if self.trainer == 0:
            _become(command, environment, keeper, self._control)
        for number in early.intersection(_PASSED_ON):
            os.kill(self.trainer, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)

    def outcome(self) -> int:
        """Wait for the trainer's end and return its wait status; the input's end ends all of it."""
        while True:
            ended = -1
            while ended:
                ended, status = os.waitpid(-1, os.WNOHANG)  # others are what was adopted
                if ended == self.trainer:
                    return status
            readable, _, _ = select.select([0, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, _BLOCK_BYTES)
            if 0 in readable and not os.read(0, _BLOCK_BYTES):
                self.end_family()
                os.killpg(0, signal.SIGKILL)

    def end_family(self) -> bool:
        """End the trainer and its descendants, wherever they are; tell whether all have ended.

        Where this process adopts nobody it does nothing, and cannot tell.
        """
        deadline_s = time.monotonic() + END_S
        while self._adopts and time.monotonic() < deadline_s:
            if _has_no_child():
                return True
            for child in _children():  # those of a child that ends are this process's next
                with contextlib.suppress(OSError):  # it has another user's rights, by sudo
                    os.kill(child, signal.SIGKILL)
            if select.select([self._wake], [], [], _LOOK_S)[0]:
                os.read(self._wake, _BLOCK_BYTES)
        return False


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
            # Python ignores some, nohup and background shells others, and programs inherit that;
            # ours would take what is meant for the program.
            if signal.getsignal(number) not in {signal.SIG_DFL, None}:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
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


def _has_no_child() -> bool:
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


def _request(agent: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return a body and the two descriptors that came with it; none when the agent is gone."""
    data, descriptors, _, _ = socket.recv_fds(agent, SIZE.size, 2)
    data += _read(agent, SIZE.size - len(data)) if data else b""
    if len(data) < SIZE.size or len(descriptors) < 2:
        return None
    (size,) = SIZE.unpack(data)
    body = _read(agent, size)
    return (body, descriptors) if len(body) == size else None


def _read(agent: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (block := agent.recv(min(size - len(data), 1 << 20))):
        data += block
    return bytes(data)


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):  # the agent is gone, in the middle of a word
        main()
