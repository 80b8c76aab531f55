"""The fork server of an agent, and the keepers that it forks.

    python -I -S agent/process/keeper.py
    python agent/process/keeper.py MODULES IDLE_S PADDING

An interpreter's start is most of what a small job costs, so the fork server waits from one trainer
to the next, with a socket of `agent.process.forkserver` as standard input. For each trainer it
forks a keeper, the leader of the trainer's process group, with a socket of its own: the agent holds
that open for as long as the trainer is to run. The socket's end, also that of a killed agent, ends
all of the group by SIGKILL. A keeper of whose trainer nothing is left may be given the next one.

With MODULES it imports these first, and its trainers are Python programs that run in the forked
process instead of a new interpreter. Such a fork server ends when nothing was asked of it for
IDLE_S, or when memory is short. For Linux.

On Linux a keeper adopts every process of its trainer that has lost its parent, in whatever session
and with whatever environment (PR_SET_CHILD_SUBREAPER), and ends them before it reports the end. The
trainer gets a parent-death signal besides, for the case that the keeper is killed. Other systems
have neither: there the agent ends the group, and `agent.process.orphans` looks for the rest.

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

    Control = Callable[[int, int], object]

# To the fork server: the size of a body, with the pipe for the output and the keeper's socket; then
# the body. Its answer is the keeper's process id, or minus an errno. To a keeper: no socket.
SIZE: Final = struct.Struct("!I")
# From a keeper: the trainer's process id; then its exit code, and whether all of it has ended.
NUMBER: Final = struct.Struct("!i")
END: Final = struct.Struct("!i?")
NOT_STARTED = 127  # what a shell returns for a command that it cannot start
READY = 0  # from a fork server with modules, once
PADDING_BYTES = 4096  # room for a trainer's command line, and for the mark in its environment
END_S = 5.0  # until a trainer's processes have ended; one that waits for a driver may take longer
_LOOK_S = 0.05
WAIT_S = 30.0  # of a keeper for its next trainer
_MEMORY_S = 5.0  # between two looks at the host's memory
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the whole group gets them
_BLOCK_BYTES = 65536


def main(modules: list[str], idle_s: float) -> list[bytes]:
    """Fork a keeper for each request, until the agent is gone.

    With modules it returns in each trainer, with its command; else it returns nothing, at the end.
    """
    control = _process_control()
    score = _swap_oom_score(b"1000") if modules else b""  # it is the first to be ended
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the keepers
    # What ends the agent is the agent's to judge; and a keeper is to find what comes early.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    with socket.socket(fileno=os.dup(0)) as agent:
        if modules and not _is_memory_short():
            _load(modules)
            agent.sendall(NUMBER.pack(READY))
        while (not modules or _is_asked(agent, idle_s)) and (
            request := _request(agent, 2)
        ) is not None:
            body, descriptors = request
            try:
                answer = os.fork()
            except OSError as error:
                answer = -(error.errno or 1)
            if answer == 0:
                agent.close()
                return _keep(body, descriptors, control, score)
            for descriptor in descriptors:
                os.close(descriptor)
            agent.sendall(NUMBER.pack(answer))
    return []


def _load(modules: list[str]) -> None:
    """Import what trainers need; not from this file's own folder."""
    import gc
    import importlib

    del sys.path[0]
    _show([b"fleet trainers start from here:", *map(os.fsencode, modules)])
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection writes to each object, and would copy its page


def _keep(body: bytes, descriptors: list[int], control: Control, score: bytes) -> list[bytes]:
    """Keep one trainer, in a process that was forked for it.

    With a score for when memory is short, the trainer needs no new interpreter: this returns in it.
    """
    me = os.getpid()
    try:
        os.setsid()
        output, agent = descriptors
        os.dup2(agent, 0)
        os.close(agent)
        keeper = _Keeper(control)
        words = keeper.start(body, output, score)
        while os.getpid() == me and keeper.attend() and (request := keeper.next()):
            keeper.start(request[0], request[1][0], b"")
    finally:
        if os.getpid() == me:
            os.killpg(0, signal.SIGKILL)
            os._exit(NOT_STARTED)
    return words


class _Keeper:
    """Starts a trainer, and waits for its end, or the agent's. Its input is the agent's socket."""

    def __init__(self, control: Control) -> None:
        self.trainer = -1
        self._control = control
        is_told = os.path.exists(f"/proc/{os.getpid()}/stat")  # noqa: PTH110 - a light module
        self._adopts = is_told and control(_PR_SET_CHILD_SUBREAPER, 1) == 0
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_PASSED_ON):
            signal.signal(number, lambda *_: None)

    def start(self, body: bytes, output: int, score: bytes) -> list[bytes]:
        """Fork the trainer; return its command, with a score in the trainer, too. OSError."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        _print_to(output)
        work, count, *words = body.split(b"\0")[:-1]
        pairs, command = words[: int(count)], words[int(count) :]
        environment = {name: value for name, _, value in (one.partition(b"=") for one in pairs)}
        os.chdir(work)
        keeper, early = os.getpid(), signal.sigpending()
        self.trainer = os.fork()
        if self.trainer == 0 and score:
            signal.set_wakeup_fd(-1)
            os.close(self._woken)
            os.close(self._wake)
            _begin(keeper, self._control)
            _turn_into(command, environment, score)
            return command
        if self.trainer == 0:
            _become(command, environment, keeper, self._control)
        for number in early.intersection(_PASSED_ON):  # they were for it
            os.kill(self.trainer, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        return command

    def attend(self) -> bool:
        """Tell who the trainer is, await its end, and tell that; return whether all has ended."""
        os.write(0, NUMBER.pack(self.trainer))
        _print_to(os.open(os.devnull, os.O_WRONLY))  # the output ends when the trainer's does
        code = os.waitstatus_to_exitcode(self.outcome())
        has_ended = self.end_family()
        os.write(0, END.pack(code, has_ended))
        if not has_ended:
            os.read(0, 1)  # the group's id stays taken until the agent lets go
        return has_ended

    def next(self) -> tuple[bytes, list[int]] | None:
        """Return the next trainer's body and output; none when the agent lets go, or asks late."""
        with socket.socket(fileno=os.dup(0)) as agent:
            return _request(agent, 1) if select.select([0], [], [], 2 * WAIT_S)[0] else None

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
    command: list[bytes], environment: Mapping[bytes, bytes], keeper: int, control: Control
) -> NoReturn:
    """Turn this forked child into the trainer, in a new interpreter or whatever it is."""
    try:
        _begin(keeper, control)
        os.execvpe(command[0], command, environment)  # noqa: S606 - the agent has checked it
    except OSError as error:
        os.write(2, f"{os.fsdecode(command[0])} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _begin(keeper: int, control: Control) -> None:
    """Have this forked child end with its keeper, read nothing, and take signals as any program."""
    control(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != keeper:
        os._exit(NOT_STARTED)  # it was killed before the system knew that we go with it
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number in signal.valid_signals():
        # Python ignores some, nohup and background shells others, and programs inherit that;
        # ours would take what is meant for the program.
        if signal.getsignal(number) not in {signal.SIG_DFL, None}:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _turn_into(command: list[bytes], environment: Mapping[bytes, bytes], score: bytes) -> None:
    """Make this forked child look as a new interpreter for a command does, inside and outside."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    _swap_oom_score(score)
    os.environb.clear()
    os.environb.update(environment)
    _show(command, environment)
    if "numpy.random" in sys.modules:  # `random` sees to that itself
        sys.modules["numpy.random"].seed()


def _run(words: list[str]) -> None:
    """Run a Python command, as `python -m MODULE …` or `python FILE …` does."""
    import runpy

    if words[1] == "-m":
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a light module
        sys.argv = words[2:]
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(words[1])))  # noqa: PTH120
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")


def _show(command: list[bytes], environment: Mapping[bytes, bytes] | None = None) -> None:
    """Write a command line and an environment where the system shows those of this process.

    A list of processes names the trainer, and `agent.process.orphans` finds its mark. Linux shows
    the memory that proc_pid_stat(5) calls arg_start, arg_end, env_start and env_end. Of arguments
    that do not end with a NUL byte it shows what is before the first one. What does not fit is cut.
    """
    import ctypes

    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        stat = file.read().rpartition(b")")[2].split()
    arguments, arguments_end, start, end = map(int, stat[45:49])
    if arguments:
        size = arguments_end - arguments
        line = b" ".join(command)[: size - 2]
        ctypes.memmove(arguments, line.ljust(size - 1, b"\0") + b".", size)
    if start and environment is not None:
        pairs = b"\0".join(b"%s=%s" % pair for pair in environment.items())[: end - start - 1]
        ctypes.memmove(start, pairs.ljust(end - start, b"\0"), end - start)


def _swap_oom_score(score: bytes) -> bytes:
    """Set how soon the system ends this process when memory is short; return how soon until now."""
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:  # noqa: PTH123
        before = file.read().strip()
        with contextlib.suppress(OSError):
            file.write(score)
    return before


def _is_memory_short() -> bool:
    """Whether less than a tenth of the memory is available. See proc_meminfo(5)."""
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
        size_kib = {words[0]: int(words[1]) for words in map(bytes.split, file)}
    return size_kib[b"MemAvailable:"] * 10 < size_kib[b"MemTotal:"]


def _is_asked(agent: socket.socket, idle_s: float) -> bool:
    """Wait for a request, or the agent's end; not when memory is short."""
    end_s = time.monotonic() + idle_s
    while (left_s := end_s - time.monotonic()) > 0 and not _is_memory_short():
        if select.select([agent], [], [], min(left_s, _MEMORY_S))[0]:
            return True
    return False


def _process_control() -> Control:
    """Return Linux's prctl; elsewhere what does nothing."""
    if sys.platform == "linux":
        # Loaded here: after the fork, as little as can be is done. The agent ends the group, too.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            prctl = ctypes.CDLL(None).prctl
            return lambda option, value: prctl(option, value, 0, 0, 0)
    return lambda *_: None


def _has_no_child() -> bool:
    """Whether this process has no child left, ended or not."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return False
    return True


def _children() -> Iterator[int]:
    """Yield the process ids of this process's children. For Linux."""
    me = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - likewise
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if int(file.read().rpartition(b")")[2].split()[1]) == me:
                    yield int(name)


def _print_to(output: int) -> None:
    """Have what is printed go there."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _request(agent: socket.socket, count: int) -> tuple[bytes, list[int]] | None:
    """Return a body and the descriptors that came with it; none when the agent is gone."""
    data, descriptors, _, _ = socket.recv_fds(agent, SIZE.size, count)
    data += _read(agent, SIZE.size - len(data)) if data else b""
    if len(data) < SIZE.size or len(descriptors) < count:
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
    trainer: list[bytes] = []
    with contextlib.suppress(ConnectionError):  # the agent is gone, in the middle of a word
        names, idle = sys.argv[1:3] if len(sys.argv) > 1 else ("", "0")
        trainer = main(names.split(",") if names else [], float(idle))
    if trainer:
        _run([os.fsdecode(word) for word in trainer])
