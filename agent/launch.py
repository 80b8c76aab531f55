"""The keeper: a small process between an agent and one trainer, which ends both ways.

    python -I -S agent/launch.py COUNT < COUNT arguments, each with a NUL byte behind it

It is the leader of the trainer's process group. Its standard input is held open by the agent for
as long as that lives: the input's end, however the agent has ended, ends the whole group by
SIGKILL. On Linux the trainer gets a parent-death signal besides, for the case that the keeper is
killed. The keeper ends as the trainer has ended, by its exit code or its signal.

For POSIX. It is a program of its own, imports nothing but a few modules of Python's, and leaves
the command out of its own command line, so that a trainer is seen once in a list of processes.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

NOT_STARTED = 127  # what a shell returns for a command that it cannot start
_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the group gets them, not us alone
_BLOCK_BYTES = 65536


def main() -> None:
    """Read the command, start it, and end with it or with the agent."""
    command = _read_command(int(sys.argv[1]))
    if command is None:
        sys.exit(NOT_STARTED)  # the agent was gone before it had said what to start
    die_with_parent = _parent_death_signal()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # A signal for the group that comes now waits until there is a trainer to take it, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    keeper = os.getpid()
    trainer = os.fork()
    if trainer == 0:
        _become(command, keeper, die_with_parent)
    for number in _PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _end_like(_outcome(trainer, wake))


def _read_command(count: int) -> list[bytes] | None:
    data = b""
    while data.count(b"\0") < count:
        block = os.read(0, _BLOCK_BYTES)
        if not block:
            return None
        data += block
    return data.split(b"\0")[:count]


def _become(command: list[bytes], keeper: int, die_with_parent: Callable[[], object]) -> None:
    """Turn this forked child into the trainer. Never returns."""
    try:
        die_with_parent()
        if os.getppid() != keeper:
            os._exit(NOT_STARTED)  # it was killed before the system knew that we go with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in signal.valid_signals():
            # Python ignores some, nohup and background shells others, and programs inherit that.
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)  # noqa: S606 - the agent has checked it
    except OSError as error:
        os.write(2, f"{os.fsdecode(command[0])} cannot be started: {error}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _parent_death_signal() -> Callable[[], object]:
    """Return what has the system kill this process when its parent ends; without it, nothing."""
    if sys.platform == "linux":
        try:
            # Loaded here: after the fork, as little as can be is done.
            import ctypes

            prctl = ctypes.CDLL(None).prctl
            return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            pass  # the group is ended by the agent, too
    return lambda: None


def _outcome(trainer: int, wake: int) -> int:
    """Wait for the trainer's end and return its wait status; the agent's end ends the group."""
    while True:
        ended, status = os.waitpid(trainer, os.WNOHANG)
        if ended:
            return status
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, _BLOCK_BYTES)
        if 0 in readable and not os.read(0, _BLOCK_BYTES):
            os.killpg(0, signal.SIGKILL)


def _end_like(status: int) -> None:
    """End by the same exit code, or by the same signal."""
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump is enough
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
